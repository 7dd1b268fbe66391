// All hops of a batch at once, for a graph that is all here; homogeneous is the case of one type.
//
// Hop h expands the nodes first seen in hop h-1. Within a hop, edge types follow in the graph's
// order, and all of them read the same frontier.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <variant>
#include <vector>

#include "neighbor.hpp"

namespace penstock {

using AnyAdjacency = std::variant<Bare<std::int32_t>, Bare<std::int64_t>, Paired<std::int32_t>,
                                  Paired<std::int64_t>>;
using AnyTable = std::variant<NodeTable<std::int32_t>, NodeTable<std::int64_t>>;

// One edge type as a sampler sees it: which node type it expands and which it finds.
struct Relation {
  AnyAdjacency adjacency;
  std::int64_t expands;
  std::int64_t finds;
  std::uint64_t name_hash;
  std::vector<std::int64_t> fanouts;  // one per hop
};

struct BatchSpec {
  std::vector<std::int64_t> num_nodes;  // of each node type
  std::vector<Relation> relations;
  std::int64_t num_hops;
  bool replace;
  std::uint64_t batch_key;
  std::vector<std::int64_t> node_caps;  // new nodes per hop and type; negative or missing: no cap
};

struct BatchLists {
  std::vector<NodeList> nodes;                         // by node type
  std::vector<EdgeList> edges;                         // by relation
  std::vector<std::vector<std::int64_t>> hop_nodes;    // [type][hop 0 .. num_hops]
  std::vector<std::vector<std::int64_t>> hop_edges;    // [relation][hop]
};

// What one thread keeps from batch to batch: the tables, whose memory is worth reusing.
class Workspace {
 public:
  // `lists.nodes` hold the seeds already, checked to be in range.
  Outcome sample(const BatchSpec& spec, BatchLists& lists) {
    prepare(spec, lists);
    const Clearing at_the_end{tables_, lists};
    const bool repeats = enter_seeds(lists);
    std::vector<std::int64_t> begin(lists.nodes.size(), 0);
    Outcome outcome = Outcome::kDone;
    for (std::int64_t hop = 0; hop < spec.num_hops && outcome == Outcome::kDone; ++hop) {
      outcome = expand(spec, lists, hop, begin, repeats && hop == 0);
    }
    return outcome;
  }

 private:
  // The tables are empty between batches, also after one that ran out of memory.
  struct Clearing {
    std::vector<AnyTable>& tables;
    const BatchLists& lists;

    ~Clearing() {
      for (std::size_t type = 0; type < tables.size(); ++type) {
        std::visit([&](auto& table) { table.clear(lists.nodes[type].size); }, tables[type]);
      }
    }
  };

  void prepare(const BatchSpec& spec, BatchLists& lists) {
    tables_.resize(spec.num_nodes.size());
    for (std::size_t type = 0; type < tables_.size(); ++type) {
      const bool narrow = spec.num_nodes[type] <= std::numeric_limits<std::int32_t>::max();
      const std::size_t wanted = narrow ? 0 : 1;
      if (tables_[type].index() != wanted) {
        if (narrow) tables_[type].emplace<0>();
        else tables_[type].emplace<1>();
      }
    }
    const auto hops = static_cast<std::size_t>(spec.num_hops);
    lists.hop_nodes.assign(spec.num_nodes.size(), std::vector<std::int64_t>(hops + 1, 0));
    lists.hop_edges.assign(spec.relations.size(), std::vector<std::int64_t>(hops, 0));
  }

  // True when a seed stands twice: it keeps its row, and edges point at its first occurrence.
  bool enter_seeds(BatchLists& lists) {
    bool repeats = false;
    for (std::size_t type = 0; type < tables_.size(); ++type) {
      const std::int64_t* const seeds = lists.nodes[type].ids.data();
      const std::int64_t count = lists.nodes[type].size;
      std::visit(
          [&](auto& table) {
            table.reserve(count, seeds, 0);
            for (std::int64_t i = 0; i < count; ++i) {
              repeats |= !table.find_or_insert(seeds[i], i).is_new;
            }
          },
          tables_[type]);
      lists.hop_nodes[type][0] = count;
    }
    return repeats;
  }

  Outcome expand(const BatchSpec& spec, BatchLists& lists, std::int64_t hop,
                 std::vector<std::int64_t>& begin, bool repeats) {
    std::vector<std::int64_t> end(lists.nodes.size());
    for (std::size_t type = 0; type < end.size(); ++type) end[type] = lists.nodes[type].size;
    for (std::size_t r = 0; r < spec.relations.size(); ++r) {
      const Relation& relation = spec.relations[r];
      const auto expands = static_cast<std::size_t>(relation.expands);
      const auto finds = static_cast<std::size_t>(relation.finds);
      const Frontier frontier{&lists.nodes[expands], begin[expands], end[expands]};
      const std::int64_t before = lists.edges[r].size;
      const Outcome outcome = expand_along(spec, relation, hop, frontier, repeats,
                                           lists.nodes[finds], end[finds], lists.edges[r]);
      if (outcome != Outcome::kDone) return outcome;
      lists.hop_edges[r][static_cast<std::size_t>(hop)] = lists.edges[r].size - before;
    }
    for (std::size_t type = 0; type < end.size(); ++type) {
      lists.hop_nodes[type][static_cast<std::size_t>(hop) + 1] = lists.nodes[type].size - end[type];
      begin[type] = end[type];
    }
    return Outcome::kDone;
  }

  Outcome expand_along(const BatchSpec& spec, const Relation& relation, std::int64_t hop,
                       const Frontier& frontier, bool repeats, NodeList& found,
                       std::int64_t found_before, EdgeList& edges) {
    const auto h = static_cast<std::size_t>(hop);
    // A cap that no list can reach is none; added to the list's length it would overflow.
    const std::int64_t limit = std::numeric_limits<std::int64_t>::max() - found_before;
    const std::int64_t given = h < spec.node_caps.size() ? spec.node_caps[h] : -1;
    const std::int64_t cap = given < limit ? given : -1;
    const std::int64_t num_found = spec.num_nodes[static_cast<std::size_t>(relation.finds)];
    const auto key = hop_key(spec.batch_key, static_cast<std::uint64_t>(hop), relation.name_hash);
    return std::visit(
        [&](const auto& adjacency, auto& table, const auto& seeds) {
          using Adjacency = std::decay_t<decltype(adjacency)>;
          using Table = std::decay_t<decltype(table)>;
          Hop<Adjacency, Table> run(adjacency, num_found,
                                    Chooser(relation.fanouts[h], spec.replace, key), table, found,
                                    edges, cap < 0 ? -1 : found_before + cap);
          return run.run(frontier, repeats ? &seeds : nullptr);
        },
        relation.adjacency, tables_[static_cast<std::size_t>(relation.finds)],
        tables_[static_cast<std::size_t>(relation.expands)]);
  }

  std::vector<AnyTable> tables_;
};

// The first half of a hop by itself: what nodes of any owner give, in global ids. For graphs that
// are not all here, whose hops are put together from several places.
template <class Adjacency>
Outcome sample_hop(const Adjacency& adjacency, Strided<std::int64_t> nodes, Chooser chooser,
                   std::int64_t* counts, Column& neighbors, Column& edge_ids, std::int64_t& total) {
  NodeBlock block{};
  Picks picks;
  total = 0;
  for (std::int64_t next = 0; next < nodes.size;) {
    block.size = 0;
    const std::int64_t first = next;
    for (; next < nodes.size && block.size < kBlockNodes; ++next) {
      if (next + kNodesAhead < nodes.size) {
        prefetch_once(&adjacency.indptr[nodes[next + kNodesAhead]]);
      }
      const std::int64_t node = nodes[next], i = block.size++;
      const std::int64_t begin = adjacency.indptr[node], end = adjacency.indptr[node + 1];
      if (begin < 0 || begin > end || end > adjacency.num_edges) return Outcome::kDamaged;
      block.node[i] = node;
      block.place[i] = next;
      block.begin[i] = begin;
      block.degree[i] = end - begin;
    }
    picks.size = 0;
    chooser.choose(block, picks);
    send_for(adjacency, picks);
    std::fill(counts + first, counts + next, 0);
    for (std::int64_t i = 0; i < picks.size; ++i) ++counts[picks.owner[i]];
    if (!neighbors.reserve(total + picks.size) || !edge_ids.reserve(total + picks.size)) {
      return Outcome::kTooSmall;
    }
    for (std::int64_t i = 0; i < picks.size; ++i) {
      neighbors.data()[total + i] = adjacency.neighbor(picks.at[i]);
      edge_ids.data()[total + i] = adjacency.edge_id(picks.at[i]);
    }
    total += picks.size;
  }
  return Outcome::kDone;
}

}  // namespace penstock
