// Hints to the memory system; no effect on results.
#pragma once

namespace penstock {

// The empty statements are there because compilers take a function of nothing but hints for one
// without effect, and leave out calls of it.

// For what is read once, soon: into the second level, where it does not push out what is in use.
// Measured: independent random reads take about a fifth less time than fetched into the first.
inline void prefetch_once(const void* address) {
  __builtin_prefetch(address, 0, 2);
  asm volatile("");
}
inline void prefetch_write(const void* address) {
  __builtin_prefetch(address, 1, 3);
  asm volatile("");
}

}  // namespace penstock
