// From a list of edges to rows of neighbours and back: linear time, stable, no memory beyond the
// result (except the transpose, which holds the edge list once).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "prefetch.hpp"
#include "spans.hpp"

namespace penstock {

template <class T>
std::int64_t first_outside(Strided<T> ids, std::int64_t bound) {
  bound = std::max<std::int64_t>(bound, 0);
  constexpr std::int64_t kBlock = 4096;  // checked without branches, searched only when one is bad
  for (std::int64_t begin = 0; begin < ids.size; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, ids.size);
    bool bad = false;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t id = ids[i];
      bad |= static_cast<std::uint64_t>(id) >= static_cast<std::uint64_t>(bound);
    }
    if (!bad) continue;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t id = ids[i];
      if (id < 0 || id >= bound) return i;
    }
  }
  return -1;
}

template <class T>
bool is_sorted(Strided<T> ids) {
  for (std::int64_t i = 1; i < ids.size; ++i) {
    if (ids[i - 1] > ids[i]) return false;
  }
  return true;
}

namespace detail {

template <class T>
void count_rows(Strided<T> keys, std::int64_t* indptr, std::int64_t num_rows) {
  std::fill(indptr, indptr + num_rows + 1, 0);
  for (std::int64_t i = 0; i < keys.size; ++i) ++indptr[keys[i] + 1];
  for (std::int64_t row = 0; row < num_rows; ++row) indptr[row + 1] += indptr[row];
}

}  // namespace detail

// Keys must be sorted: then the edges are already where they belong.
template <class T, class Index>
void fill_bare(Strided<T> keys, Strided<T> values, std::int64_t* indptr, std::int64_t num_rows,
               Index* entries) {
  detail::count_rows(keys, indptr, num_rows);
  for (std::int64_t i = 0; i < values.size; ++i) entries[i] = static_cast<Index>(values[i]);
}

// Counting sort, stable. While placing, indptr[row] is the cursor of its row; afterwards it stands
// where the next row begins, so moving all one place up restores it: no second array is needed.
template <class Key, class Value, class Index>
void fill_paired(Strided<Key> keys, Strided<Value> values, std::int64_t* indptr,
                 std::int64_t num_rows, Index* entries) {
  constexpr std::int64_t kCursorAhead = 64, kEntryAhead = 32;
  detail::count_rows(keys, indptr, num_rows);
  for (std::int64_t i = 0; i < keys.size; ++i) {
    if (i + kCursorAhead < keys.size) {
      prefetch_write(&indptr[keys[i + kCursorAhead]]);
      prefetch_write(&entries[2 * indptr[keys[i + kEntryAhead]]]);
    }
    const std::int64_t at = indptr[keys[i]]++;
    entries[2 * at] = static_cast<Index>(values[i]);
    entries[2 * at + 1] = static_cast<Index>(i);
  }
  for (std::int64_t row = num_rows; row > 0; --row) indptr[row] = indptr[row - 1];
  indptr[0] = 0;
}

// Turns rows of one side into rows of the other, each in the order of original edge ids. Returns
// false, with nothing of use written, where the topology is damaged.
template <class Adjacency, class Index>
bool transpose(const Adjacency& from, std::int64_t num_rows, std::int64_t* indptr, Index* entries) {
  // What owns a row of the result was a neighbour, and is as wide as those were; what will be a
  // neighbour is as wide as those of the result are.
  using Key = typename Adjacency::Id;
  using Value = Index;
  const std::int64_t size = from.num_edges;
  // Value-initialised: an edge id that stands twice leaves another one unset, as a harmless 0.
  auto keys = std::make_unique<Key[]>(static_cast<std::size_t>(size));
  auto values = std::make_unique<Value[]>(static_cast<std::size_t>(size));
  if (from.some != nullptr) return false;  // rows of some nodes only have no other side
  if (from.indptr[0] != 0 || from.indptr[from.num_nodes] != size) return false;
  for (std::int64_t node = 0; node < from.num_nodes; ++node) {
    const std::int64_t begin = from.indptr[node], end = from.indptr[node + 1];
    if (begin < 0 || begin > end || end > size) return false;
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t neighbor = from.neighbor(at), edge = from.edge_id(at);
      if (neighbor < 0 || neighbor >= num_rows || edge < 0 || edge >= size) return false;
      keys[edge] = static_cast<Key>(neighbor);
      values[edge] = static_cast<Value>(node);
    }
  }
  const Strided<Key> key_span{keys.get(), size, 1};
  const Strided<Value> value_span{values.get(), size, 1};
  fill_paired(key_span, value_span, indptr, num_rows, entries);
  return true;
}

}  // namespace penstock
