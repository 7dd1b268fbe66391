// Layers with a budget for each node type, as the Heterogeneous Graph Transformer samples them.
//
// Nodes that were sampled give each of their neighbours a share of one, and what a node was given
// is its budget. A layer draws nodes of every type, without replacement, by the squares of their
// budgets. In the end all edges among the sampled nodes are taken. Of a row with more edges than
// `max_neighbors`, so many are chosen once and for all: the rest of it counts for nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "choose.hpp"
#include "khop.hpp"
#include "node_table.hpp"
#include "prefetch.hpp"
#include "rng.hpp"

namespace penstock::hgt {

inline constexpr std::uint64_t kWord = 0x6867740000000001ULL;

using Lists = std::vector<std::vector<std::int64_t>>;

struct Rows {
  AnyAdjacency adjacency;
  std::int64_t expands;
  std::int64_t finds;
  std::uint64_t name_hash;
};

struct Spec {
  std::vector<std::int64_t> num_nodes;     // of each node type
  std::vector<std::uint64_t> name_hashes;  // of each node type
  std::vector<Rows> relations;
  Lists num_samples;  // [type][layer]
  std::int64_t num_layers;
  std::int64_t max_neighbors;
};

struct Sampled {
  Lists nodes;        // by node type
  Lists rows;         // by relation: places of the neighbours
  Lists cols;         // places of the nodes whose neighbours they are
  Lists edge_ids;
  Lists layer_nodes;  // [type][layer 0 .. num_layers]: how many each layer added
};

// Nodes by place, and where each is first found.
class Listing {
 public:
  Listing() { make_room(); }

  std::int64_t size() const { return static_cast<std::int64_t>(nodes_.size()); }
  std::int64_t operator[](std::int64_t place) const {
    return nodes_[static_cast<std::size_t>(place)];
  }
  const std::vector<std::int64_t>& nodes() const { return nodes_; }
  std::int64_t find(std::int64_t node) const { return table_.find(node); }
  void prefetch(std::int64_t node) const { table_.prefetch(node); }

  void clear() {
    table_.clear(size());
    nodes_.clear();
  }

  // A node that stands twice has two places.
  void append(std::int64_t node) {
    make_room();
    nodes_.push_back(node);
    table_.find_or_insert(node, size() - 1);
  }

  // Its place; one that is new is appended.
  std::int64_t enter(std::int64_t node) {
    make_room();
    nodes_.push_back(node);  // first: what is in the table must also be in the list
    const auto [place, is_new] = table_.find_or_insert(node, size() - 1);
    if (!is_new) nodes_.pop_back();
    return place;
  }

 private:
  void make_room() { table_.reserve(1, nodes_.data(), size()); }

  NodeTable<std::int64_t> table_;
  std::vector<std::int64_t> nodes_;
};

// Draws places one after another, each by its weight among those that are left.
class Urn {
 public:
  // A place's weight is the square of its budget, all halved alike until their sum fits a word; one
  // with a budget keeps at least 1.
  explicit Urn(const std::vector<std::uint64_t>& budgets)
      : weights_(budgets.size()), sums_(budgets.size() + 1) {
    const int shift = shift_for(budgets);
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      const auto square = static_cast<std::uint64_t>(squared(budgets[i]) >> shift);
      weights_[i] = budgets[i] == 0 ? 0 : std::max<std::uint64_t>(square, 1);
      total_ += weights_[i];
    }
    // Partial sums as in a Fenwick tree: entry i holds those of the last (i & -i) places up to i.
    for (std::size_t i = 1; i < sums_.size(); ++i) {
      sums_[i] += weights_[i - 1];
      if (const std::size_t up = i + (i & -i); up < sums_.size()) sums_[up] += sums_[i];
    }
  }

  // The place that the draw falls to; it is out from now on. Some weight must be left.
  std::size_t take(std::uint64_t word) {
    std::uint64_t left = bounded(word, total_);
    std::size_t at = 0;
    for (std::size_t step = std::bit_floor(sums_.size()); step > 0; step >>= 1) {
      if (at + step < sums_.size() && sums_[at + step] <= left) left -= sums_[at += step];
    }
    const std::uint64_t weight = weights_[at];
    total_ -= weight;
    for (std::size_t i = at + 1; i < sums_.size(); i += i & -i) sums_[i] -= weight;
    return at;
  }

 private:
  static constexpr int kTotalBits = 61;

  static Wide squared(std::uint64_t budget) { return static_cast<Wide>(budget) * budget; }

  static int shift_for(const std::vector<std::uint64_t>& budgets) {
    Wide total = 0;
    for (const std::uint64_t budget : budgets) total += squared(budget);
    const auto high = static_cast<std::uint64_t>(total >> 64);
    const int bits = high != 0 ? 64 + std::bit_width(high)
                               : std::bit_width(static_cast<std::uint64_t>(total));
    return std::max(bits - kTotalBits, 0);
  }

  std::vector<std::uint64_t> weights_;
  std::vector<std::uint64_t> sums_;
  std::uint64_t total_ = 0;
};

// What nodes that are not sampled yet were given; one that was drawn keeps its place, with nothing.
class Budget {
 public:
  void clear() {
    nodes_.clear();
    amounts_.clear();
    size_ = 0;
  }

  void prefetch(std::int64_t node) const { nodes_.prefetch(node); }

  void add(std::int64_t node, std::uint64_t share) {
    const std::int64_t place = nodes_.enter(node);
    if (place == static_cast<std::int64_t>(amounts_.size())) {
      amounts_.push_back(0);
      ++size_;
    }
    amounts_[static_cast<std::size_t>(place)] += share;
  }

  // Appends `count` nodes to the list: all there are, as they came; or drawn, as they are drawn.
  void draw_into(Listing& list, std::int64_t count, std::uint64_t key) {
    if (count == 0) return;
    if (count >= size_) {
      for (std::size_t place = 0; place < amounts_.size(); ++place) {
        if (amounts_[place] != 0) move_into(list, place);
      }
      return;
    }
    Urn urn(amounts_);
    for (std::int64_t j = 0; j < count; ++j) {
      move_into(list, urn.take(draw(key, static_cast<std::uint64_t>(j))));
    }
  }

 private:
  void move_into(Listing& list, std::size_t place) {
    list.append(nodes_[static_cast<std::int64_t>(place)]);
    amounts_[place] = 0;
    --size_;
  }

  Listing nodes_;
  std::vector<std::uint64_t> amounts_;
  std::int64_t size_ = 0;  // nodes with an amount
};

// What one thread keeps from batch to batch: the tables, whose memory is worth reusing.
class Sampler {
 public:
  // Seeds were checked to be nodes of their types.
  Outcome sample(const Spec& spec, std::uint64_t batch_key, const Lists& seeds, Sampled& out) {
    spec_ = &spec;
    key_ = fold(batch_key, kWord);
    misses_ = false;
    begin(seeds, out);
    for (std::int64_t layer = 0; layer < spec.num_layers; ++layer) {
      for (std::size_t type = 0; type < lists_.size(); ++type) {
        if (!spread(type)) return Outcome::kDamaged;
      }
      // Rows are missing: who gets how much is not known, and whoever was drawn now would be fetched
      // in vain.
      if (misses_) return Outcome::kDone;
      for (std::size_t type = 0; type < lists_.size(); ++type) draw_layer(type, layer, out);
    }
    for (std::size_t type = 0; type < lists_.size(); ++type) out.nodes[type] = lists_[type].nodes();
    return connect(out) ? Outcome::kDone : Outcome::kDamaged;
  }

 private:
  void begin(const Lists& seeds, Sampled& out) {
    const std::size_t types = seeds.size(), relations = spec_->relations.size();
    lists_.resize(types);
    budgets_.resize(types);
    spread_to_.assign(types, 0);
    num_seeds_.resize(types);
    out.nodes.assign(types, {});
    out.layer_nodes.assign(types, {});
    out.rows.assign(relations, {});
    out.cols.assign(relations, {});
    out.edge_ids.assign(relations, {});
    for (std::size_t type = 0; type < types; ++type) {
      lists_[type].clear();
      budgets_[type].clear();
      for (const std::int64_t node : seeds[type]) lists_[type].append(node);
      num_seeds_[type] = lists_[type].size();
      out.layer_nodes[type].push_back(num_seeds_[type]);
    }
  }

  // Gives shares to the neighbours of the nodes of a type that were added last. Those sampled in
  // the last layer give none, for nobody would draw by them.
  bool spread(std::size_t type) {
    const std::int64_t begin = std::exchange(spread_to_[type], lists_[type].size());
    for (const Rows& rows : spec_->relations) {
      if (rows.expands != static_cast<std::int64_t>(type)) continue;
      const auto finds = static_cast<std::size_t>(rows.finds);
      const Listing& sampled = lists_[finds];
      Budget& budget = budgets_[finds];
      const bool sound = each_edge(
          rows, begin, lists_[type].size(),
          [&](std::int64_t node) {
            sampled.prefetch(node);
            budget.prefetch(node);
          },
          [&](std::int64_t node, std::int64_t, std::int64_t, std::uint64_t share) {
            if (sampled.find(node) < 0) budget.add(node, share);
          });
      if (!sound) return false;
    }
    return true;
  }

  void draw_layer(std::size_t type, std::int64_t layer, Sampled& out) {
    const std::int64_t before = lists_[type].size();
    const std::int64_t count = spec_->num_samples[type][static_cast<std::size_t>(layer)];
    const std::uint64_t key = fold(fold(key_, static_cast<std::uint64_t>(layer)),
                                   spec_->name_hashes[type]);
    budgets_[type].draw_into(lists_[type], count, key);
    out.layer_nodes[type].push_back(lists_[type].size() - before);
  }

  // All edges among the sampled nodes, by the place of the node they lead to.
  bool connect(Sampled& out) {
    for (std::size_t r = 0; r < spec_->relations.size(); ++r) {
      const Rows& rows = spec_->relations[r];
      const Listing& sampled = lists_[static_cast<std::size_t>(rows.finds)];
      const bool sound = each_edge(
          rows, 0, lists_[static_cast<std::size_t>(rows.expands)].size(),
          [&](std::int64_t node) { sampled.prefetch(node); },
          [&](std::int64_t node, std::int64_t place, std::int64_t edge_id, std::uint64_t) {
            const std::int64_t found = sampled.find(node);
            if (found < 0) return;
            out.rows[r].push_back(found);
            out.cols[r].push_back(place);
            out.edge_ids[r].push_back(edge_id);
          });
      if (!sound) return false;
    }
    return true;
  }

  // Visits the chosen edges of the nodes at places [begin, end): `visit(neighbour, place, edge id,
  // share)`, after `send_for(neighbour)` of a good many. False when the topology is damaged.
  template <class SendFor, class Visit>
  bool each_edge(const Rows& rows, std::int64_t begin, std::int64_t end, SendFor send_for,
                 Visit visit) {
    const Listing& heads = lists_[static_cast<std::size_t>(rows.expands)];
    Chooser chooser(spec_->max_neighbors, false, fold(key_, rows.name_hash));
    return std::visit(
        [&](const auto& adjacency) {
          for (std::int64_t next = begin; next < end;) {
            if (!fill_block(adjacency, heads, next, end, rows.expands)) return false;
            picks_.size = 0;
            chooser.choose(block_, picks_);
            if (!read_entries(adjacency, spec_->num_nodes[static_cast<std::size_t>(rows.finds)],
                              send_for)) {
              return false;
            }
            for (std::int64_t i = 0; i < picks_.size; ++i) {
              const auto pick = static_cast<std::size_t>(i);
              const std::int64_t owner = picks_.owner[pick];
              visit(neighbors_[pick], place_[owner], adjacency.edge_id(picks_.at[pick]),
                    share_[owner]);
            }
          }
          return true;
        },
        rows.adjacency);
  }

  // The next few nodes; of a seed that is given twice only the first counts.
  template <class Adjacency>
  bool fill_block(const Adjacency& adjacency, const Listing& heads, std::int64_t& next,
                  std::int64_t end, std::int64_t type) {
    const RowOffsets offsets = adjacency.offsets();
    block_.size = 0;
    for (; next < end && block_.size < kBlockNodes; ++next) {
      if (next + kNodesAhead < end) {
        offsets.prefetch(heads[next + kNodesAhead]);
        offsets.prefetch_soon(heads[next + kNodesSoon]);
      }
      const std::int64_t node = heads[next], i = block_.size;
      const bool may_repeat = next < num_seeds_[static_cast<std::size_t>(type)];
      if (may_repeat && heads.find(node) != next) continue;
      const auto [first, last, is_missing] = offsets.row(node);
      misses_ |= is_missing;
      if (first < 0 || first > last || last > adjacency.num_edges) return false;
      block_.node[i] = node;
      block_.place[i] = i;
      block_.begin[i] = first;
      block_.degree[i] = last - first;
      place_[i] = next;
      share_[i] = share_of(last - first);
      ++block_.size;
    }
    return true;
  }

  // One, in parts of 2^32, divided among the neighbours that count.
  std::uint64_t share_of(std::int64_t degree) const {
    const std::int64_t parts = std::max<std::int64_t>(std::min(degree, spec_->max_neighbors), 1);
    return (1ULL << 32) / static_cast<std::uint64_t>(parts);
  }

  template <class Adjacency, class SendFor>
  bool read_entries(const Adjacency& adjacency, std::int64_t num_found, SendFor send_for) {
    if (neighbors_.size() < static_cast<std::size_t>(picks_.size)) neighbors_.resize(picks_.at.size());
    penstock::send_for(adjacency, picks_);
    for (std::int64_t i = 0; i < picks_.size; ++i) {
      const auto pick = static_cast<std::size_t>(i);
      const std::int64_t node = adjacency.neighbor(picks_.at[pick]);
      if (static_cast<std::uint64_t>(node) >= static_cast<std::uint64_t>(num_found)) return false;
      neighbors_[pick] = node;
      send_for(node);
    }
    return true;
  }

  const Spec* spec_ = nullptr;
  std::uint64_t key_ = 0;
  std::vector<Listing> lists_;
  std::vector<Budget> budgets_;
  std::vector<std::int64_t> spread_to_;  // by type: up to where nodes have given their shares
  std::vector<std::int64_t> num_seeds_;
  NodeBlock block_{};
  Picks picks_;
  std::int64_t place_[kBlockNodes];
  std::uint64_t share_[kBlockNodes];
  std::vector<std::int64_t> neighbors_;
  bool misses_ = false;  // a row that is elsewhere
};

}  // namespace penstock::hgt
