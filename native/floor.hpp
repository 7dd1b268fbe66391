// What this machine can do at best: the plainest loops that touch the same memory. Benchmarks
// divide by them; nothing else uses them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gather.hpp"
#include "prefetch.hpp"
#include "spans.hpp"

namespace penstock {

// Independent 8-byte reads at the given places, prefetched; the sum keeps them from being dropped.
// `kLocality` is that of __builtin_prefetch: 3, the usual, fetches into the first cache level, 2 into
// the second.
template <int kLocality>
std::uint64_t floor_random_reads(const std::uint64_t* words, Strided<std::int64_t> at) {
  constexpr std::int64_t kAhead = 32;
  std::uint64_t sum = 0;
  const std::int64_t steady = std::max<std::int64_t>(0, at.size - kAhead);
  for (std::int64_t i = 0; i < steady; ++i) {
    __builtin_prefetch(words + at.data[i + kAhead], 0, kLocality);
    sum += words[at.data[i]];
  }
  for (std::int64_t i = steady; i < at.size; ++i) sum += words[at.data[i]];
  return sum;
}

// Rows copied one after the other, every line of a row prefetched a few rows ahead.
inline void floor_copy_rows(const char* rows, std::int64_t row_bytes, Strided<std::int64_t> ids,
                            char* out) {
  constexpr std::int64_t kAhead = 16;
  for (std::int64_t i = 0; i < ids.size; ++i) {
    if (i + kAhead < ids.size) {
      const char* const row = rows + ids.data[i + kAhead] * row_bytes;
      for (std::int64_t at = 0; at < row_bytes; at += 64) prefetch_once(row + at);
    }
    std::memcpy(out + i * row_bytes, rows + ids.data[i] * row_bytes,
                static_cast<std::size_t>(row_bytes));
  }
}

}  // namespace penstock
