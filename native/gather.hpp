// Copies rows by id into memory that is already there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "build.hpp"
#include "prefetch.hpp"
#include "spans.hpp"

namespace penstock {

namespace detail {

inline constexpr std::int64_t kCacheLine = 64;
inline constexpr std::int64_t kRowsAhead = 16;

inline void prefetch_row(const char* row, std::int64_t row_bytes) {
  constexpr std::int64_t kMostLines = 16;  // longer rows are left to the hardware after that
  const std::int64_t bytes = std::min(row_bytes, kMostLines * kCacheLine);
  for (std::int64_t at = 0; at < bytes; at += kCacheLine) prefetch_once(row + at);
}

// A row size known when compiling lets memcpy become a few moves.
template <std::int64_t kRowBytes>
void gather_fixed(const char* rows, Strided<std::int64_t> ids, char* out, std::int64_t row_bytes) {
  const std::int64_t size = kRowBytes > 0 ? kRowBytes : row_bytes;
  for (std::int64_t i = 0; i < ids.size; ++i) {
    if (i + kRowsAhead < ids.size) prefetch_row(rows + ids[i + kRowsAhead] * size, size);
    std::memcpy(out + i * size, rows + ids[i] * size, static_cast<std::size_t>(size));
  }
}

}  // namespace detail

// Returns the first position whose id is outside [0, num_rows), with nothing written, or -1.
inline std::int64_t gather_rows(const char* rows, std::int64_t num_rows, std::int64_t row_bytes,
                                Strided<std::int64_t> ids, char* out) {
  const std::int64_t bad = first_outside(ids, num_rows);
  if (bad >= 0 || row_bytes == 0) return bad;
  switch (row_bytes) {
    case 1: detail::gather_fixed<1>(rows, ids, out, 1); break;
    case 2: detail::gather_fixed<2>(rows, ids, out, 2); break;
    case 4: detail::gather_fixed<4>(rows, ids, out, 4); break;
    case 8: detail::gather_fixed<8>(rows, ids, out, 8); break;
    default: detail::gather_fixed<0>(rows, ids, out, row_bytes);
  }
  return -1;
}

}  // namespace penstock
