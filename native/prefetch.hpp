// Hints to the memory system; no effect on results.
#pragma once

namespace penstock {

// For what is read once, soon: into the second level, where it does not push out what is in use.
// Measured: independent random reads take about a fifth less time than fetched into the first.
inline void prefetch_once(const void* address) { __builtin_prefetch(address, 0, 2); }
inline void prefetch_write(const void* address) { __builtin_prefetch(address, 1, 3); }

}  // namespace penstock
