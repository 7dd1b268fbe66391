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

// Shares added to a bare array along rows that were written down: row i begins at `begins[i]` and has
// `counts[i]` neighbours, each of which gets `shares[i]`. What rows begin with is sent for a few rows
// ahead; the hardware sees by itself how a long one goes on. False where a place is outside.
template <class Rows>
bool floor_replay(const Rows& rows, Strided<std::int64_t> begins, const std::int64_t* counts,
                  const double* shares, double* residuals, std::int64_t size) {
  constexpr std::int64_t kAhead = 16, kMost = 256, kLine = 64;
  for (std::int64_t i = 0; i < begins.size; ++i) {
    if (i + kAhead < begins.size) {
      const std::int64_t next = begins[i + kAhead];
      const auto* const from = static_cast<const char*>(rows.entry(next));
      const auto* const to =
          static_cast<const char*>(rows.entry(next + std::min(counts[i + kAhead], kMost)));
      for (std::int64_t byte = 0; byte < to - from; byte += kLine) prefetch_once(from + byte);
    }
    for (std::int64_t k = begins[i]; k < begins[i] + counts[i]; ++k) {
      const std::int64_t at = rows.neighbor(k);
      if (at < 0 || at >= size) return false;
      residuals[at] += shares[i];
    }
  }
  return true;
}

}  // namespace penstock
