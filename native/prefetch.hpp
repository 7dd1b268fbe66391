// Hints to the memory system; no effect on results.
#pragma once

namespace penstock {

// For what is read once: it should not push out what is read again (the table of nodes).
inline void prefetch_once(const void* address) { __builtin_prefetch(address, 0, 0); }
inline void prefetch_write(const void* address) { __builtin_prefetch(address, 1, 3); }

}  // namespace penstock
