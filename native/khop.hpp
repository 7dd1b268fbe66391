// All hops of a batch at once, for a graph that is all here; homogeneous is the case of one type.
//
// Hop h expands the nodes first seen in hop h-1. Within a hop, edge types follow in the graph's
// order, and all of them read the same frontier.
//
// Disjoint: every seed has a tree, and a node found in two trees is two nodes.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <variant>
#include <vector>

#include "neighbor.hpp"
#include "temporal.hpp"
#include "weighted.hpp"

namespace penstock {

using AnyAdjacency = std::variant<Bare<std::int32_t>, Bare<std::int64_t>, Paired<std::int32_t>,
                                  Paired<std::int64_t>>;
using AnyTable = std::variant<NodeTable<std::int32_t>, NodeTable<std::int64_t>,
                              NarrowTreeTable, TreeTable>;

// One edge type as a sampler sees it: which node type it expands and which it finds. All edges are
// equally likely unless there are weights, and admissible unless there are times; not both.
struct Relation {
  AnyAdjacency adjacency;
  std::int64_t expands;
  std::int64_t finds;
  std::uint64_t name_hash;
  std::vector<std::int64_t> fanouts;      // one per hop
  const std::int64_t* weights = nullptr;  // running sums within each row
  const std::int64_t* times = nullptr;    // rising within each row; only where disjoint
};

// What edges are chosen by: `weights` or `times`, by position, or all alike.
struct ChoiceSpec {
  std::int64_t fanout;
  bool replace;
  bool last;
  std::uint64_t key;
  const std::int64_t* weights;
  const std::int64_t* times;
};

// Calls `body` with what chooses so.
template <bool kTrees, class Body>
Outcome choose_by(const ChoiceSpec& spec, TreesSeen trees, const Body& body) {
  if (spec.weights != nullptr) {
    return body(WeightedChooser<kTrees>(spec.weights, spec.fanout, spec.replace, spec.key));
  }
  if constexpr (kTrees) {
    if (spec.times != nullptr) {
      return body(
          TemporalChooser(spec.times, spec.fanout, spec.replace, spec.last, spec.key, trees));
    }
  }
  return body(UniformChooser<kTrees>(spec.fanout, spec.replace, spec.key));
}

struct BatchSpec {
  std::vector<std::int64_t> num_nodes;  // of each node type
  std::vector<Relation> relations;
  std::int64_t num_hops;
  bool replace;
  std::uint64_t batch_key;
  std::vector<std::int64_t> node_caps;  // new nodes per hop and type; negative or missing: no cap
  bool disjoint = false;
  bool last = false;                          // of those not too late, the latest instead of any
  std::vector<std::int64_t> tree_times = {};  // one per seed, where a relation has times
  std::vector<Exclusion>* excluded = nullptr;  // by relation; null: nothing is
};

struct BatchLists {
  std::vector<NodeList> nodes;                         // by node type
  std::vector<EdgeList> edges;                         // by relation
  std::vector<std::vector<std::int64_t>> hop_nodes;    // [type][hop 0 .. num_hops]
  std::vector<std::vector<std::int64_t>> hop_edges;    // [relation][hop]
};

// The tables that know the nodes of a batch by their places, by node type. Empty between batches.
class BatchTables {
 public:
  AnyTable& operator[](std::size_t type) { return tables_[type]; }

  // For each node type the seeds that stand for an earlier one; empty: none does.
  const std::vector<std::uint8_t>& repeated(std::size_t type) const { return repeated_[type]; }

  void prepare(const std::vector<std::int64_t>& num_nodes, std::int64_t num_seeds, bool disjoint) {
    tables_.resize(num_nodes.size());
    for (std::size_t type = 0; type < tables_.size(); ++type) {
      if (disjoint) use_trees(tables_[type], num_nodes[type], num_seeds);
      else if (num_nodes[type] <= kNarrow) use<NodeTable<std::int32_t>>(tables_[type]);
      else use<NodeTable<std::int64_t>>(tables_[type]);
    }
    repeated_.assign(num_nodes.size(), {});
  }

  // False where there is no room for their trees.
  bool enter_seeds(std::vector<NodeList>& lists, bool disjoint) {
    std::int64_t first = 0;
    for (std::size_t type = 0; type < tables_.size(); ++type) {
      NodeList& seeds = lists[type];
      if (disjoint && !number_trees(seeds, first)) return false;
      std::visit([&](auto& table) { enter(table, seeds, repeated_[type]); }, tables_[type]);
      first += seeds.size;
    }
    return true;
  }

  // Forgets the nodes of these lists.
  void clear(const std::vector<NodeList>& lists) {
    for (std::size_t type = 0; type < tables_.size(); ++type) {
      std::visit([&](auto& table) { table.clear(lists[type].size); }, tables_[type]);
    }
  }

 private:
  template <class Table>
  static Table& use(AnyTable& table) {
    if (!std::holds_alternative<Table>(table)) table.emplace<Table>();
    return std::get<Table>(table);
  }

  static void use_trees(AnyTable& table, std::int64_t num_nodes, std::int64_t num_trees) {
    ByTree layout;
    layout.arrange(num_nodes, num_trees);
    if (layout.key_bits() <= 32) use<NarrowTreeTable>(table).layout().arrange(num_nodes, num_trees);
    else use<TreeTable>(table).layout().arrange(num_nodes, num_trees);
  }

  // Every seed is the root of a tree, numbered from `first` on.
  static bool number_trees(NodeList& list, std::int64_t first) {
    if (!list.trees.reserve(list.size)) return false;
    std::iota(list.trees.data(), list.trees.data() + list.size, first);
    return true;
  }

  // A seed that stands twice keeps its row; edges point at its first occurrence. As the root of two
  // trees it is not the same twice.
  template <class Table>
  static void enter(Table& table, const NodeList& list, std::vector<std::uint8_t>& repeated) {
    const auto keys = list.keys(table);
    table.reserve(list.size, keys, 0);
    for (std::int64_t i = 0; i < list.size; ++i) {
      if (table.find_or_insert(keys[i], i).is_new) continue;
      repeated.resize(static_cast<std::size_t>(list.size));
      repeated[static_cast<std::size_t>(i)] = 1;
    }
  }

  static constexpr std::int64_t kNarrow = std::numeric_limits<std::int32_t>::max();

  std::vector<AnyTable> tables_;
  std::vector<std::vector<std::uint8_t>> repeated_;
};

// How long a list may become in this hop, which began with `before`; negative: no limit.
inline std::int64_t most_nodes_in(const std::vector<std::int64_t>& node_caps, std::int64_t hop,
                                  std::int64_t before) {
  const auto h = static_cast<std::size_t>(hop);
  // A cap that no list can reach is none; added to the list's length it would overflow.
  const std::int64_t limit = std::numeric_limits<std::int64_t>::max() - before;
  const std::int64_t given = h < node_caps.size() ? node_caps[h] : -1;
  return given >= 0 && given < limit ? before + given : -1;
}

// What one thread keeps from batch to batch: the tables, whose memory is worth reusing.
class Workspace {
 public:
  // `lists.nodes` hold the seeds already, checked to be in range.
  Outcome sample(const BatchSpec& spec, BatchLists& lists) {
    prepare(spec, lists);
    const Clearing at_the_end{tables_, scratch_, lists};
    if (!tables_.enter_seeds(lists.nodes, spec.disjoint)) return Outcome::kTooSmall;
    for (std::size_t type = 0; type < lists.nodes.size(); ++type) {
      lists.hop_nodes[type][0] = lists.nodes[type].size;
    }
    std::vector<std::int64_t> begin(lists.nodes.size(), 0);
    Outcome outcome = Outcome::kDone;
    for (std::int64_t hop = 0; hop < spec.num_hops && outcome == Outcome::kDone; ++hop) {
      outcome = expand(spec, lists, hop, begin);
    }
    return outcome;
  }

 private:
  // The tables are empty between batches, also after one that ran out of memory.
  struct Clearing {
    BatchTables& tables;
    Scratch& scratch;
    const BatchLists& lists;

    ~Clearing() {
      scratch.shrink();
      tables.clear(lists.nodes);
    }
  };

  void prepare(const BatchSpec& spec, BatchLists& lists) {
    std::int64_t num_seeds = 0;
    for (const NodeList& list : lists.nodes) num_seeds += list.size;
    tables_.prepare(spec.num_nodes, num_seeds, spec.disjoint);
    const auto hops = static_cast<std::size_t>(spec.num_hops);
    lists.hop_nodes.assign(spec.num_nodes.size(), std::vector<std::int64_t>(hops + 1, 0));
    lists.hop_edges.assign(spec.relations.size(), std::vector<std::int64_t>(hops, 0));
    punctual_.assign(spec.tree_times.size(), {});
  }

  Outcome expand(const BatchSpec& spec, BatchLists& lists, std::int64_t hop,
                 std::vector<std::int64_t>& begin) {
    std::vector<std::int64_t> end(lists.nodes.size());
    for (std::size_t type = 0; type < end.size(); ++type) end[type] = lists.nodes[type].size;
    for (std::size_t r = 0; r < spec.relations.size(); ++r) {
      const Relation& relation = spec.relations[r];
      const auto expands = static_cast<std::size_t>(relation.expands);
      const auto finds = static_cast<std::size_t>(relation.finds);
      const std::vector<std::uint8_t>& repeated = tables_.repeated(expands);
      const Frontier frontier{&lists.nodes[expands], begin[expands], end[expands],
                              hop == 0 && !repeated.empty() ? repeated.data() : nullptr};
      const std::int64_t before = lists.edges[r].size;
      Exclusion* const some = spec.excluded == nullptr ? nullptr : &(*spec.excluded)[r];
      const Outcome outcome =
          expand_along(spec, relation, hop, frontier, lists.nodes[finds], end[finds],
                       lists.edges[r], some == nullptr || some->empty() ? nullptr : some);
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
                       const Frontier& frontier, NodeList& found, std::int64_t found_before,
                       EdgeList& edges, Exclusion* excluded) {
    const std::int64_t most_nodes = most_nodes_in(spec.node_caps, hop, found_before);
    const std::int64_t num_found = spec.num_nodes[static_cast<std::size_t>(relation.finds)];
    const std::int64_t* const times = relation.times == nullptr ? nullptr : spec.tree_times.data();
    return std::visit(
        [&]<class Adjacency, class Table>(const Adjacency& adjacency, Table& table) {
          return with_choice<Table::kTrees>(spec, relation, hop, [&]<class Choice>(Choice choice) {
            Hop<Adjacency, Table, Choice> run(adjacency, num_found, std::move(choice), table, found,
                                              edges, most_nodes, times, scratch_, excluded);
            return run.run(frontier);
          });
        },
        relation.adjacency, tables_[static_cast<std::size_t>(relation.finds)]);
  }

  template <bool kTrees, class Body>
  Outcome with_choice(const BatchSpec& spec, const Relation& relation, std::int64_t hop,
                      const Body& body) {
    const std::int64_t fanout = relation.fanouts[static_cast<std::size_t>(hop)];
    const auto key = hop_key(spec.batch_key, static_cast<std::uint64_t>(hop), relation.name_hash);
    const ChoiceSpec choice{fanout, spec.replace, spec.last, key, relation.weights, relation.times};
    return choose_by<kTrees>(choice, TreesSeen{punctual_.data(), ~std::uint64_t{0}}, body);
  }

  BatchTables tables_;
  Scratch scratch_;
  std::vector<Punctual> punctual_;  // by tree, where there are times
};

}  // namespace penstock
