// A batch in memory of the caller's, whatever comes: seeds that are no nodes, too little room, a
// damaged topology, seeds without times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "build.hpp"
#include "khop.hpp"

namespace penstock {

using IdLists = std::vector<std::vector<std::int64_t>>;

class BatchSampler {
 public:
  // Where the outcome is kTooSmall, the counts per hop say how much is needed.
  Outcome sample(const BatchSpec& spec, const IdLists& seeds, BatchLists& lists) {
    for (std::size_t type = 0; type < seeds.size(); ++type) {
      const auto count = static_cast<std::int64_t>(seeds[type].size());
      const Strided<std::int64_t> span{seeds[type].data(), count, 1};
      if (first_outside(span, spec.num_nodes[type]) >= 0) return Outcome::kDamaged;
    }
    if (!knows_its_trees(spec, seeds)) return Outcome::kDamaged;
    if (spec.excluded != nullptr && spec.excluded->size() != spec.relations.size()) {
      return Outcome::kDamaged;
    }
    Outcome outcome = Outcome::kTooSmall;
    if (enter(seeds, lists)) outcome = workspace_.sample(spec, lists);
    if (outcome == Outcome::kTooSmall) return run_aside(spec, seeds, lists);
    return outcome;
  }

  // Whether every node of every tree has a key of its own, and every tree a time if times matter.
  static bool knows_its_trees(const BatchSpec& spec, const IdLists& seeds) {
    std::size_t num_trees = 0;
    bool fits = true, timed = false;
    for (const auto& ids : seeds) num_trees += ids.size();
    for (const std::int64_t num_nodes : spec.num_nodes) {
      fits &= ByTree().arrange(num_nodes, static_cast<std::int64_t>(num_trees));
    }
    for (const Relation& relation : spec.relations) timed |= relation.times != nullptr;
    if (!spec.disjoint) return !timed;
    return fits && (!timed || spec.tree_times.size() == num_trees);
  }

 private:
  static bool enter(const IdLists& seeds, BatchLists& lists) {
    for (std::size_t type = 0; type < seeds.size(); ++type) {
      NodeList& list = lists.nodes[type];
      list.size = static_cast<std::int64_t>(seeds[type].size());
      if (!list.ids.reserve(list.size)) return false;
      std::copy(seeds[type].begin(), seeds[type].end(), list.ids.data());
    }
    return true;
  }

  // The batch again, in memory that grows: it tells how much is needed, and, since room is asked
  // for by the chunk, may turn out to fit after all.
  Outcome run_aside(const BatchSpec& spec, const IdLists& seeds, BatchLists& lists) {
    std::vector<std::vector<std::int64_t>> spill(2 * lists.nodes.size() + 3 * lists.edges.size());
    BatchLists aside;
    std::size_t next = 0;
    for (std::size_t t = 0; t < lists.nodes.size(); ++t) {
      aside.nodes.push_back({Column(&spill[next]), 0, Column(&spill[next + 1])});
      next += 2;
    }
    for (const EdgeList& edges : lists.edges) {
      aside.edges.push_back({Column(&spill[next]), Column(&spill[next + 1]),
                             Column(&spill[next + 2]), edges.with_edge_ids});
      next += 3;
    }
    enter(seeds, aside);
    const Outcome outcome = workspace_.sample(spec, aside);
    lists.hop_nodes = std::move(aside.hop_nodes);
    lists.hop_edges = std::move(aside.hop_edges);
    if (outcome != Outcome::kDone) return Outcome::kDamaged;
    return copy_back(aside, lists, spec.disjoint) ? Outcome::kDone : Outcome::kTooSmall;
  }

  static bool copy_back(const BatchLists& aside, BatchLists& lists, bool with_trees) {
    for (std::size_t t = 0; t < lists.nodes.size(); ++t) {
      if (!lists.nodes[t].ids.reserve(aside.nodes[t].size)) return false;
      if (with_trees && !lists.nodes[t].trees.reserve(aside.nodes[t].size)) return false;
    }
    for (std::size_t r = 0; r < lists.edges.size(); ++r) {
      lists.edges[r].size = 0;
      if (!lists.edges[r].reserve(aside.edges[r].size)) return false;
    }
    const auto copy = [](const Column& from, std::int64_t size, const Column& to) {
      if (size > 0) std::memcpy(to.data(), from.data(), static_cast<std::size_t>(size) * 8);
    };
    for (std::size_t t = 0; t < lists.nodes.size(); ++t) {
      copy(aside.nodes[t].ids, aside.nodes[t].size, lists.nodes[t].ids);
      if (with_trees) copy(aside.nodes[t].trees, aside.nodes[t].size, lists.nodes[t].trees);
    }
    for (std::size_t r = 0; r < lists.edges.size(); ++r) {
      const EdgeList& from = aside.edges[r];
      copy(from.row, from.size, lists.edges[r].row);
      copy(from.col, from.size, lists.edges[r].col);
      if (from.with_edge_ids) copy(from.edge_id, from.size, lists.edges[r].edge_id);
    }
    return true;
  }

  Workspace workspace_;
};

}  // namespace penstock
