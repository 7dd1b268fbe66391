// Copies rows by id into memory that is already there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "build.hpp"
#include "copy.hpp"
#include "prefetch.hpp"
#include "spans.hpp"

namespace penstock {

namespace detail {

inline constexpr std::int64_t kCacheLine = 64;
inline constexpr std::int64_t kRowsAhead = 16;
// Rows of which most lines are written whole, and so many bytes of them that caches do not help.
inline constexpr std::int64_t kLongRow = 256;
inline constexpr std::int64_t kLongRows = kLargeCopy;

inline void prefetch_row(const char* row, std::int64_t row_bytes) {
  constexpr std::int64_t kMostLines = 16;  // longer rows are left to the hardware after that
  const std::int64_t bytes = std::min(row_bytes, kMostLines * kCacheLine);
  for (std::int64_t at = 0; at < bytes; at += kCacheLine) prefetch_once(row + at);
}

// Of a row that is written, only the lines that are not written whole need to be there before.
inline void prefetch_write_row(char* row, std::int64_t row_bytes) {
  prefetch_write(row);
  if (row_bytes > 1) prefetch_write(row + row_bytes - 1);
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

template <std::int64_t kRowBytes>
void scatter_fixed(const char* rows, Strided<std::int64_t> positions, char* out,
                   std::int64_t row_bytes) {
  const std::int64_t size = kRowBytes > 0 ? kRowBytes : row_bytes;
  for (std::int64_t i = 0; i < positions.size; ++i) {
    if (i + kRowsAhead < positions.size) {
      prefetch_write_row(out + positions[i + kRowsAhead] * size, size);
    }
    std::memcpy(out + positions[i] * size, rows + i * size, static_cast<std::size_t>(size));
  }
}

// Long rows, which together do not fit the caches, and are read by somebody else.
inline void scatter_long(const char* rows, Strided<std::int64_t> positions, char* out,
                         std::int64_t size) {
  for (std::int64_t i = 0; i < positions.size; ++i) {
    if (i + kRowsAhead < positions.size) {
      prefetch_write_row(out + positions[i + kRowsAhead] * size, size);
    }
    stream(out + positions[i] * size, rows + i * size, static_cast<std::size_t>(size));
  }
  end_stream();
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

// The inverse: row i is copied to `positions[i]`. Returns the first position that is outside
// [0, num_rows), with nothing written, or -1.
inline std::int64_t scatter_rows(const char* rows, std::int64_t row_bytes,
                                 Strided<std::int64_t> positions, char* out,
                                 std::int64_t num_rows) {
  const std::int64_t bad = first_outside(positions, num_rows);
  if (bad >= 0 || row_bytes == 0) return bad;
  switch (row_bytes) {
    case 1: detail::scatter_fixed<1>(rows, positions, out, 1); break;
    case 2: detail::scatter_fixed<2>(rows, positions, out, 2); break;
    case 4: detail::scatter_fixed<4>(rows, positions, out, 4); break;
    case 8: detail::scatter_fixed<8>(rows, positions, out, 8); break;
    default:
      if (row_bytes >= detail::kLongRow && positions.size * row_bytes >= detail::kLongRows) {
        detail::scatter_long(rows, positions, out, row_bytes);
      } else {
        detail::scatter_fixed<0>(rows, positions, out, row_bytes);
      }
  }
  return -1;
}

}  // namespace penstock
