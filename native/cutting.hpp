// Cutting a graph into parts: copies of the rows of some nodes, their edges, and what is cut.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "members.hpp"
#include "prefetch.hpp"
#include "rows.hpp"
#include "spans.hpp"

namespace penstock {

namespace detail {

// Rows whose entries are on their way while another one is read.
constexpr std::int64_t kRowsAhead = 8;

// The bounds of a node's row, or {1, 0} where they are damaged.
template <class View>
RowBounds checked_row(const View& from, std::int64_t node) {
  const std::int64_t begin = from.indptr[node], end = from.indptr[node + 1];
  if (begin < 0 || begin > end || end > from.num_edges) return {1, 0};
  return {begin, end};
}

template <class View>
void prefetch_row_of(const View& from, Strided<std::int64_t> nodes, std::int64_t row) {
  if (row >= nodes.size) return;
  const std::int64_t at = from.indptr[nodes[row]];
  if (at >= 0 && at < from.num_edges) prefetch_once(from.entry(at));
}

template <class Index>
void copy_entries(const Paired<Index>& from, std::int64_t begin, std::int64_t count, Index* out) {
  std::memcpy(out, from.entries + 2 * begin, 2 * static_cast<std::size_t>(count) * sizeof(Index));
}

template <class View, class Index>
void copy_entries(const View& from, std::int64_t begin, std::int64_t count, Index* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[2 * i] = static_cast<Index>(from.neighbor(begin + i));
    out[2 * i + 1] = static_cast<Index>(from.edge_id(begin + i));
  }
}

// The neighbours alone.
template <class Index>
void copy_neighbors(const Bare<Index>& from, std::int64_t begin, std::int64_t count, Index* out) {
  std::memcpy(out, from.entries + begin, static_cast<std::size_t>(count) * sizeof(Index));
}

template <class View, class Index>
void copy_neighbors(const View& from, std::int64_t begin, std::int64_t count, Index* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<Index>(from.neighbor(begin + i));
  }
}

}  // namespace detail

// The rows of `nodes` stand one after the other, and `indptr` says where each begins. Writes their
// entries, (neighbour, edge id) where `kPairs`, or neighbours alone, from position `begin` on,
// `size` of them. Returns false, with nothing of use written, where rows are not as long as
// `indptr` says.
template <bool kPairs, class View, class Index>
bool copy_rows(const View& from, Strided<std::int64_t> nodes, const std::int64_t* indptr,
               std::int64_t begin, std::int64_t size, Index* out) {
  const std::int64_t end = begin + size;
  std::int64_t row = std::upper_bound(indptr, indptr + nodes.size + 1, begin) - indptr - 1;
  for (; begin < end; ++row) {
    if (row < 0 || row >= nodes.size) return false;
    detail::prefetch_row_of(from, nodes, row + detail::kRowsAhead);
    const RowBounds there = detail::checked_row(from, nodes[row]);
    if (there.end - there.begin != indptr[row + 1] - indptr[row]) return false;
    const std::int64_t skipped = begin - indptr[row];
    const std::int64_t count = std::min(there.end - there.begin - skipped, end - begin);
    if (skipped < 0 || count < 0) return false;
    if constexpr (kPairs) detail::copy_entries(from, there.begin + skipped, count, out);
    else detail::copy_neighbors(from, there.begin + skipped, count, out);
    out += (kPairs ? 2 : 1) * count;
    begin += count;
  }
  return true;
}

// Sets the bits of the edges of `nodes`, and the ranks. `words`, of `size` ids, hold zeros. Returns
// false where rows are damaged, or an id is out of range or stands twice.
template <class View>
bool mark_edges(const View& from, Strided<std::int64_t> nodes, MemberWord* words,
                std::int64_t size) {
  constexpr std::int64_t kAhead = 16;
  std::uint64_t marked = 0;
  for (std::int64_t row = 0; row < nodes.size; ++row) {
    detail::prefetch_row_of(from, nodes, row + detail::kRowsAhead);
    const RowBounds there = detail::checked_row(from, nodes[row]);
    if (there.begin > there.end) return false;
    for (std::int64_t at = there.begin; at < there.end; ++at) {
      const std::int64_t id = from.edge_id(at);
      if (id < 0 || id >= size) return false;
      if (at + kAhead < there.end) {
        const std::int64_t next = from.edge_id(at + kAhead);
        if (next >= 0 && next < size) prefetch_once(words + next / MemberWord::kBits);
      }
      words[id / MemberWord::kBits].bits |= std::uint64_t{1} << (id % MemberWord::kBits);
    }
    marked += static_cast<std::uint64_t>(there.end - there.begin);
  }
  std::uint64_t before = 0;
  const std::int64_t num_words = (size + MemberWord::kBits - 1) / MemberWord::kBits;
  for (std::int64_t word = 0; word < num_words; ++word) {
    words[word].before = before;
    before += static_cast<std::uint64_t>(set_bits(words[word].bits));
  }
  return before == marked;
}

// Adds up, by the part of the row's owner, how many entries lead to a node of another part. Returns
// false where rows are damaged, or a part is not below `num_parts`.
template <class View, class Part>
bool count_cut(const View& from, const Part* owners, const Part* others, std::int64_t num_others,
               std::int64_t num_parts, std::int64_t* cut) {
  std::fill(cut, cut + num_parts, 0);
  for (std::int64_t node = 0; node < from.num_nodes; ++node) {
    const RowBounds row = detail::checked_row(from, node);
    const auto part = static_cast<std::int64_t>(owners[node]);
    if (row.begin > row.end || part < 0 || part >= num_parts) return false;
    std::int64_t away = 0;
    for (std::int64_t at = row.begin; at < row.end; ++at) {
      const std::int64_t neighbor = from.neighbor(at);
      if (neighbor < 0 || neighbor >= num_others) return false;
      away += others[neighbor] != owners[node];
    }
    cut[part] += away;
  }
  return true;
}

}  // namespace penstock
