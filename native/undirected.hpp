// The undirected graph of all edges, as programs that partition graphs want it: each neighbour of a
// node once, with the number of edges between the two, in rising order; no self-loops.
//
// Nodes of all types have one index space: those of a type begin at its base.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cutting.hpp"

namespace penstock {

namespace detail {

// Calls `found(node, neighbour)` for each entry but self-loops, and for its reverse if that is wanted.
// Returns false where rows are damaged.
template <class View, class Found>
bool each_end(const View& from, std::int64_t row_base, std::int64_t base, std::int64_t size,
              bool reversed, Found found) {
  for (std::int64_t row = 0; row < from.num_nodes; ++row) {
    const RowBounds bounds = checked_row(from, row);
    if (bounds.begin > bounds.end) return false;
    const std::int64_t node = row_base + row;
    for (std::int64_t at = bounds.begin; at < bounds.end; ++at) {
      const std::int64_t neighbor = from.neighbor(at);
      if (neighbor < 0 || neighbor >= size) return false;
      const std::int64_t other = base + neighbor;
      if (node == other) continue;
      if (!found(node, other) || (reversed && !found(other, node))) return false;
    }
  }
  return true;
}

}  // namespace detail

// Adds to counts[node] how many neighbours the rows give each node.
template <class View>
bool count_ends(const View& from, std::int64_t row_base, std::int64_t base, std::int64_t size,
                bool reversed, std::int64_t* counts) {
  return detail::each_end(from, row_base, base, size, reversed,
                          [&](std::int64_t node, std::int64_t) { return ++counts[node] > 0; });
}

// Writes neighbours to where cursors[node] says, and moves it on; never beyond `room` entries.
template <class View, class Index>
bool place_ends(const View& from, std::int64_t row_base, std::int64_t base, std::int64_t size,
                bool reversed, std::int64_t* cursors, std::int64_t room, Index* ends) {
  return detail::each_end(from, row_base, base, size, reversed,
                          [&](std::int64_t node, std::int64_t neighbor) {
                            const std::int64_t at = cursors[node]++;
                            if (at < 0 || at >= room) return false;
                            ends[at] = static_cast<Index>(neighbor);
                            return true;
                          });
}

// Sorts each row, and merges equal neighbours into one with their number as its weight. Rows move
// together: `indptr` says where they are then. Returns how many neighbours are left, or -1 where
// `indptr` does not rise from 0 to `room` at most.
template <class Index>
std::int64_t merge_ends(std::int64_t* indptr, std::int64_t num_nodes, std::int64_t room, Index* ends,
                        Index* weights) {
  std::int64_t written = 0, begin = indptr[0];
  if (begin != 0) return -1;
  for (std::int64_t node = 0; node < num_nodes; ++node) {
    const std::int64_t end = indptr[node + 1];
    if (end < begin || end > room) return -1;
    std::sort(ends + begin, ends + end);
    for (std::int64_t at = begin, next = begin; at < end; at = next) {
      while (next < end && ends[next] == ends[at]) ++next;
      const Index neighbor = ends[at];
      ends[written] = neighbor;
      weights[written++] = static_cast<Index>(next - at);
    }
    indptr[node + 1] = written;
    begin = end;
  }
  return written;
}

}  // namespace penstock
