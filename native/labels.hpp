// The labels of anchors: the first neighbours of each, in storage order, up to a cap.
#pragma once

#include <algorithm>
#include <cstdint>

#include "neighbor.hpp"
#include "prefetch.hpp"
#include "spans.hpp"

namespace penstock {

// Writes how many of its first neighbours each node gives, and how many all of them do. A negative
// cap means all. False where an offset points outside.
template <class Adjacency>
bool count_first(const Adjacency& adjacency, Strided<std::int64_t> nodes, std::int64_t most,
                 std::int64_t* counts, std::int64_t& total) {
  const RowOffsets offsets = adjacency.offsets();
  total = 0;
  for (std::int64_t i = 0; i < nodes.size; ++i) {
    if (i + kNodesAhead < nodes.size) {
      offsets.prefetch(nodes[i + kNodesAhead]);
      offsets.prefetch_soon(nodes[i + kNodesSoon]);
    }
    const auto [begin, end, is_missing] = offsets.row(nodes[i]);
    if (begin < 0 || begin > end || end > adjacency.num_edges) return false;
    counts[i] = most < 0 ? end - begin : std::min(end - begin, most);
    total += counts[i];
  }
  return true;
}

// Writes the neighbours that were counted. False where one points outside.
template <class Adjacency>
bool read_first(const Adjacency& adjacency, Strided<std::int64_t> nodes, std::int64_t num_found,
                const std::int64_t* counts, std::int64_t* found) {
  bool sound = true;
  for (std::int64_t i = 0; i < nodes.size; ++i) {
    const std::int64_t begin = adjacency.row(nodes[i]).begin;
    for (std::int64_t j = 0; j < counts[i]; ++j) {
      const std::int64_t neighbor = adjacency.neighbor(begin + j);
      sound &= static_cast<std::uint64_t>(neighbor) < static_cast<std::uint64_t>(num_found);
      *found++ = neighbor;
    }
  }
  return sound;
}

}  // namespace penstock
