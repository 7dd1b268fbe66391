// The second half of hops by itself: a batch that grows by edges which were drawn elsewhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "build.hpp"
#include "khop.hpp"
#include "neighbor.hpp"
#include "spans.hpp"

namespace penstock {

struct AssemblySpec {
  std::vector<std::int64_t> num_nodes;                         // of each node type
  std::vector<std::pair<std::size_t, std::size_t>> ends;       // of each relation: expands, finds
  std::int64_t num_hops;
  std::vector<std::int64_t> node_caps;
  bool disjoint;
};

// Where a batch is to be written. What does not fit is kept elsewhere.
struct BatchMemory {
  struct Room {
    std::int64_t* data = nullptr;
    std::int64_t capacity = 0;
  };
  std::vector<Room> nodes, trees;            // by node type
  std::vector<Room> rows, cols, edge_ids;    // by relation
  bool with_edge_ids = true;
};

class Assembly {
 public:
  explicit Assembly(AssemblySpec spec) : spec_(std::move(spec)) {
    spilled_nodes_.resize(2 * spec_.num_nodes.size());
    spilled_edges_.resize(3 * spec_.ends.size());
  }

  const AssemblySpec& spec() const { return spec_; }
  const BatchLists& lists() const { return lists_; }
  std::int64_t hop() const { return hop_; }

  // Seeds were checked to be nodes of their types, and a tree and a node to fit a key.
  void begin(const std::vector<std::vector<std::int64_t>>& seeds, const BatchMemory& memory) {
    forget();
    std::int64_t num_seeds = 0;
    for (const auto& ids : seeds) num_seeds += static_cast<std::int64_t>(ids.size());
    tables_.prepare(spec_.num_nodes, num_seeds, spec_.disjoint);
    are_filled_ = true;
    enter(memory);
    for (std::size_t type = 0; type < seeds.size(); ++type) {
      NodeList& list = lists_.nodes[type];
      const auto count = static_cast<std::int64_t>(seeds[type].size());
      list.ids.reserve(count);
      std::copy(seeds[type].begin(), seeds[type].end(), list.ids.data());
      list.size = count;
    }
    tables_.enter_seeds(lists_.nodes, spec_.disjoint);
    begins_.assign(seeds.size(), 0);
    hop_ = -1;
    start_hop();
  }

  // The nodes of a type that this hop expands.
  std::int64_t num_expanded(std::size_t type) const { return expanded(type).size; }

  void copy_frontier(std::size_t type, std::int64_t* ids, std::int64_t* trees) const {
    const Expanded nodes = expanded(type);
    const NodeList& list = lists_.nodes[type];
    for (std::int64_t i = 0; i < nodes.size; ++i) ids[i] = list.ids.data()[nodes.place(i)];
    for (std::int64_t i = 0; trees != nullptr && i < nodes.size; ++i) {
      trees[i] = list.trees.data()[nodes.place(i)];
    }
  }

  enum class Taken { kDone, kBadCount, kBadSum, kNoNode };
  struct Verdict {
    Taken what;
    std::int64_t at = 0;  // the count, the sum of all counts, or the neighbour
  };

  // Adds edges along a relation: one count for each node that is expanded, and as many edges as they
  // add up to. Where that is not so, or a neighbour is no node, nothing is added.
  template <class Count, class Neighbor, class EdgeId>
  Verdict take(std::size_t relation, Strided<Count> counts, Strided<Neighbor> neighbors,
               Strided<EdgeId> edge_ids) {
    const auto [expands, finds] = spec_.ends[relation];
    counts_.clear();  // read once: others may write to them
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < counts.size; ++i) {
      const std::int64_t count = counts[i];
      if (count < 0 || count > neighbors.size) return {Taken::kBadCount, i};
      counts_.push_back(count);
      total += count;
    }
    if (total != neighbors.size) return {Taken::kBadSum, total};
    const std::int64_t bad = first_outside(neighbors, spec_.num_nodes[finds]);
    if (bad >= 0) return {Taken::kNoNode, bad};
    EdgeList& edges = lists_.edges[relation];
    const std::int64_t before = edges.size;
    const std::int64_t most = most_nodes_in(spec_.node_caps, hop_, ends_[finds]);
    const Outcome outcome = std::visit(
        [&]<class Table>(Table& table) {
          Naming<Table> naming(spec_.num_nodes[finds], table, lists_.nodes[finds], edges, most);
          return name_all(naming, expanded(expands), lists_.nodes[expands], neighbors, edge_ids);
        },
        tables_[finds]);
    lists_.hop_edges[relation][static_cast<std::size_t>(hop_)] += edges.size - before;
    return {outcome == Outcome::kDone ? Taken::kDone : Taken::kNoNode};
  }

  void end_hop() {
    const auto next = static_cast<std::size_t>(hop_) + 1;
    for (std::size_t type = 0; type < ends_.size(); ++type) {
      lists_.hop_nodes[type][next] = lists_.nodes[type].size - ends_[type];
    }
    begins_ = ends_;
    start_hop();
  }

  // The batch is not added to any more. It stays until another one begins.
  void finish() { clear_tables(); }

  // Writes the batch into this memory. False where it does not fit.
  bool write(const BatchMemory& memory) const {
    for (std::size_t type = 0; type < lists_.nodes.size(); ++type) {
      const NodeList& list = lists_.nodes[type];
      if (list.size > memory.nodes[type].capacity) return false;
      if (spec_.disjoint && list.size > memory.trees[type].capacity) return false;
    }
    for (std::size_t r = 0; r < lists_.edges.size(); ++r) {
      const std::int64_t size = lists_.edges[r].size;
      if (size > memory.rows[r].capacity || size > memory.cols[r].capacity) return false;
      if (memory.with_edge_ids && size > memory.edge_ids[r].capacity) return false;
    }
    for (std::size_t type = 0; type < lists_.nodes.size(); ++type) {
      const NodeList& list = lists_.nodes[type];
      copy(list.ids, list.size, memory.nodes[type]);
      if (spec_.disjoint) copy(list.trees, list.size, memory.trees[type]);
    }
    for (std::size_t r = 0; r < lists_.edges.size(); ++r) {
      const EdgeList& edges = lists_.edges[r];
      copy(edges.row, edges.size, memory.rows[r]);
      copy(edges.col, edges.size, memory.cols[r]);
      if (memory.with_edge_ids) copy(edges.edge_id, edges.size, memory.edge_ids[r]);
    }
    return true;
  }

  // Keeps what lies in the caller's memory, which is the caller's from now on, in our own.
  void take_back() {
    for (std::size_t type = 0; type < lists_.nodes.size(); ++type) {
      keep(lists_.nodes[type].ids, lists_.nodes[type].size, spilled_nodes_[2 * type]);
      if (spec_.disjoint) {
        keep(lists_.nodes[type].trees, lists_.nodes[type].size, spilled_nodes_[2 * type + 1]);
      }
    }
    for (std::size_t r = 0; r < lists_.edges.size(); ++r) {
      EdgeList& edges = lists_.edges[r];
      keep(edges.row, edges.size, spilled_edges_[3 * r]);
      keep(edges.col, edges.size, spilled_edges_[3 * r + 1]);
      if (edges.with_edge_ids) keep(edges.edge_id, edges.size, spilled_edges_[3 * r + 2]);
    }
  }

  // Forgets the batch, and gives back more memory than is worth keeping.
  void forget() {
    clear_tables();
    lists_ = {};
    for (auto* const spilled : {&spilled_nodes_, &spilled_edges_}) {
      for (std::vector<std::int64_t>& list : *spilled) {
        if (list.capacity() > kWorthKeeping) std::vector<std::int64_t>().swap(list);
      }
    }
  }

 private:
  static constexpr std::size_t kWorthKeeping = 1 << 16;

  // The places of the nodes that a hop expands: all from `begin` on, or those listed.
  struct Expanded {
    std::int64_t begin;
    std::int64_t size;
    const std::int64_t* places;  // null: all

    std::int64_t place(std::int64_t i) const { return places == nullptr ? begin + i : places[i]; }
  };

  Expanded expanded(std::size_t type) const {
    if (hop_ == 0 && !tables_.repeated(type).empty()) {
      return {0, static_cast<std::int64_t>(firsts_[type].size()), firsts_[type].data()};
    }
    return {begins_[type], ends_[type] - begins_[type], nullptr};
  }

  void enter(const BatchMemory& memory) {
    const auto hops = static_cast<std::size_t>(spec_.num_hops);
    const auto column = [](const BatchMemory::Room& room, std::vector<std::int64_t>& spilled) {
      return Column(room.data, room.capacity, &spilled);
    };
    for (std::size_t type = 0; type < spec_.num_nodes.size(); ++type) {
      const BatchMemory::Room trees = spec_.disjoint ? memory.trees[type] : BatchMemory::Room{};
      lists_.nodes.push_back({column(memory.nodes[type], spilled_nodes_[2 * type]), 0,
                              column(trees, spilled_nodes_[2 * type + 1])});
    }
    for (std::size_t r = 0; r < spec_.ends.size(); ++r) {
      const BatchMemory::Room ids = memory.with_edge_ids ? memory.edge_ids[r] : BatchMemory::Room{};
      lists_.edges.push_back({column(memory.rows[r], spilled_edges_[3 * r]),
                              column(memory.cols[r], spilled_edges_[3 * r + 1]),
                              column(ids, spilled_edges_[3 * r + 2]), memory.with_edge_ids});
    }
    lists_.hop_nodes.assign(spec_.num_nodes.size(), std::vector<std::int64_t>(hops + 1, 0));
    lists_.hop_edges.assign(spec_.ends.size(), std::vector<std::int64_t>(hops, 0));
  }

  void start_hop() {
    ++hop_;
    ends_.clear();
    for (const NodeList& list : lists_.nodes) ends_.push_back(list.size);
    if (hop_ > 0) return;
    firsts_.assign(lists_.nodes.size(), {});
    for (std::size_t type = 0; type < lists_.nodes.size(); ++type) {
      lists_.hop_nodes[type][0] = lists_.nodes[type].size;
      const std::vector<std::uint8_t>& repeated = tables_.repeated(type);
      for (std::size_t place = 0; place < repeated.size(); ++place) {
        if (repeated[place] == 0) firsts_[type].push_back(static_cast<std::int64_t>(place));
      }
    }
  }

  template <class Table, class Neighbor, class EdgeId>
  Outcome name_all(Naming<Table>& naming, const Expanded& nodes, const NodeList& expanding,
                   Strided<Neighbor> neighbors, Strided<EdgeId> edge_ids) const {
    std::int64_t owner[kChunkPicks];
    std::int64_t node = -1, left = 0;  // of the edges of this node
    for (std::int64_t begin = 0; begin < neighbors.size; begin += kChunkPicks) {
      const std::int64_t size = std::min(kChunkPicks, neighbors.size - begin);
      const std::int64_t ahead = std::min(begin + 2 * kChunkPicks, neighbors.size);
      for (std::int64_t at = begin + size; at < ahead; ++at) naming.prefetch(neighbors[at]);
      for (std::int64_t i = 0; i < size;) {
        while (left == 0) left = counts_[static_cast<std::size_t>(++node)];
        const std::int64_t some = std::min(left, size - i);
        std::fill_n(owner + i, some, nodes.place(node));
        i += some;
        left -= some;
      }
      const Outcome outcome = naming.name(
          expanding, owner, size, [&](std::int64_t i) { return neighbors[begin + i]; },
          [&](std::int64_t i) { return edge_ids[begin + i]; });
      if (outcome != Outcome::kDone) return outcome;
    }
    return Outcome::kDone;
  }

  void clear_tables() {
    if (std::exchange(are_filled_, false)) tables_.clear(lists_.nodes);
  }

  static void copy(const Column& from, std::int64_t size, const BatchMemory::Room& to) {
    if (size == 0 || from.data() == to.data) return;
    std::memcpy(to.data, from.data(), static_cast<std::size_t>(size) * sizeof(std::int64_t));
  }

  static void keep(Column& list, std::int64_t size, std::vector<std::int64_t>& kept) {
    if (size > 0 && list.data() != kept.data()) kept.assign(list.data(), list.data() + size);
    list = Column(kept.data(), size, &kept);
  }

  AssemblySpec spec_;
  BatchTables tables_;
  bool are_filled_ = false;  // the tables, by the batch in `lists_`
  BatchLists lists_;
  std::vector<std::vector<std::int64_t>> spilled_nodes_, spilled_edges_;
  std::vector<std::int64_t> begins_, ends_;         // by node type, of what this hop expands
  std::vector<std::vector<std::int64_t>> firsts_;  // by node type, seeds that stand for themselves
  std::vector<std::int64_t> counts_;               // of the edges that are being taken
  std::int64_t hop_ = 0;
};

}  // namespace penstock
