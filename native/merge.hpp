// Rows of nodes that came in several lists, put back in the order of all nodes.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

inline constexpr std::uint16_t kNobody = 0xffff;
inline constexpr std::size_t kMostLists = kNobody;

// One list: whose rows it has, how long each is, and the entries of all, one after the other.
template <class Index>
struct RowList {
  const std::int64_t* positions;  // of its nodes among all; rising
  const std::int32_t* counts;
  const Index* neighbors;
  const Index* edge_ids;
  std::int64_t num_nodes;
  std::int64_t num_entries;
};

// Writes how many entries each node has, and returns how many there are in all; -1 where a position
// is outside, a count is negative, or a list has other entries than its counts say.
template <class Index>
std::int64_t merge_counts(const std::vector<RowList<Index>>& lists, std::int32_t* counts,
                          std::int64_t num_nodes) {
  for (std::int64_t i = 0; i < num_nodes; ++i) counts[i] = 0;
  std::int64_t total = 0;
  for (const RowList<Index>& list : lists) {
    std::int64_t entries = 0;
    for (std::int64_t i = 0; i < list.num_nodes; ++i) {
      const std::int64_t at = list.positions[i];
      if (static_cast<std::uint64_t>(at) >= static_cast<std::uint64_t>(num_nodes)) return -1;
      if (list.counts[i] < 0 || counts[at] != 0) return -1;
      counts[at] = list.counts[i];
      entries += list.counts[i];
    }
    if (entries != list.num_entries) return -1;
    total += entries;
  }
  return total;
}

// Writes the entries in the order of all nodes. Each list is read from its beginning to its end: a
// cursor for each stands where its next node's entries begin.
template <class Index>
void merge_entries(const std::vector<RowList<Index>>& lists, std::int64_t num_nodes,
                   Index* neighbors, Index* edge_ids) {
  std::vector<std::int64_t> node(lists.size(), 0), entry(lists.size(), 0);
  std::vector<std::uint16_t> owner(static_cast<std::size_t>(num_nodes), kNobody);
  for (std::size_t k = 0; k < lists.size(); ++k) {
    for (std::int64_t i = 0; i < lists[k].num_nodes; ++i) {
      owner[static_cast<std::size_t>(lists[k].positions[i])] = static_cast<std::uint16_t>(k);
    }
  }
  for (std::int64_t i = 0; i < num_nodes; ++i) {
    const std::uint16_t k = owner[static_cast<std::size_t>(i)];
    if (k == kNobody) continue;
    const RowList<Index>& list = lists[k];
    const std::int32_t count = list.counts[node[k]++];
    const Index* const from = list.neighbors + entry[k];
    const Index* const ids = list.edge_ids + entry[k];
    for (std::int32_t j = 0; j < count; ++j) neighbors[j] = from[j];
    for (std::int32_t j = 0; j < count; ++j) edge_ids[j] = ids[j];
    neighbors += count;
    edge_ids += count;
    entry[k] += count;
  }
}

}  // namespace penstock
