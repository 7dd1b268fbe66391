// Hints to the memory system; no effect on results.
#pragma once

namespace penstock {

inline void prefetch_read(const void* address) { __builtin_prefetch(address, 0, 3); }
inline void prefetch_write(const void* address) { __builtin_prefetch(address, 1, 3); }

}  // namespace penstock
