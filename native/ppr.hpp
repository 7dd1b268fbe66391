// Personalised PageRank of one node by forward push (Andersen, Chung and Lang).
//
// The seed begins with a residual of alpha. In each round every node whose residual has reached its
// threshold, alpha * eps * degree, adds the residual to its score and passes (1 - alpha) of it on,
// in equal parts, to its neighbours. All nodes of a round give up their residuals before any is
// passed on: so their rows are one long stream of edges, and no step waits for memory.
//
// What is added to what, in which order, is part of the result: kernels/twins/ppr.py does the same
// additions and gets the same bits. Nodes of all types have one numbering here, type by type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "choose.hpp"
#include "khop.hpp"
#include "node_table.hpp"
#include "prefetch.hpp"
#include "rng.hpp"

namespace penstock {

// Where the hop stands in keys: no hop has this number, so that the streams are apart.
inline constexpr std::uint64_t kPushWord = 0x7070720000000001ULL;

struct PushRelation {
  AnyAdjacency adjacency;
  const std::int64_t* indptr;  // the adjacency's, of whichever kind it is
  std::int64_t num_edges;
  std::int64_t expands;
  std::int64_t finds;
  std::uint64_t name_hash;
};

// A walk along some of the relations. `share` counts the nodes it may claim of each type.
struct PushChannel {
  std::vector<std::vector<std::size_t>> leaving;  // by node type, the relations it may follow
  std::int64_t share;
};

struct PushSpec {
  std::vector<std::int64_t> num_nodes;
  std::vector<std::int64_t> first;  // by node type, the number of its node 0 among all nodes
  std::vector<PushRelation> relations;
  std::vector<std::vector<std::size_t>> leaving;  // by node type, all relations that leave it
  std::vector<PushChannel> channels;
  double alpha;
  double eps;
  std::int64_t max_nodes;
  std::int64_t max_neighbors;
  std::int64_t max_openings;  // rounds that may look at rows not seen before; negative: no limit
  bool is_typed;
  bool has_topup;
  bool with_edges;
};

struct RowRange {
  std::int64_t begin;
  std::int64_t degree;
  bool is_sound;
};

inline RowRange row_of(const PushRelation& relation, std::int64_t node) {
  const std::int64_t begin = relation.indptr[node], end = relation.indptr[node + 1];
  if (begin < 0 || begin > end || end > relation.num_edges) return {0, 0, false};
  return {begin, end - begin, true};
}

// Which neighbours of a node with too many of them are looked at: the same for all seeds of a batch.
class RowSampler {
 public:
  RowSampler(std::int64_t most, std::uint64_t batch_key, std::uint64_t name_hash)
      : chooser_(most, false, hop_key(batch_key, kPushWord, name_hash)) {}

  const Picks& choose(std::int64_t node, std::int64_t begin, std::int64_t degree) {
    block_.size = 1;
    block_.node[0] = node;
    block_.begin[0] = begin;
    block_.degree[0] = degree;
    picks_.size = 0;
    chooser_.choose(block_, picks_);
    return picks_;
  }

 private:
  Chooser chooser_;
  NodeBlock block_{};
  Picks picks_;
};

// A node that a push has come to.
struct Reached {
  double residual;
  double score;
  double threshold;  // infinite where nothing leads on: its residual is its score, in the end
  std::int32_t hop;
  std::uint16_t type;
  bool is_queued;
  bool is_open;  // its row has been looked at
};

inline constexpr std::int64_t kPushChunk = 128;   // edges at a time; their slots fit the first cache
inline constexpr std::size_t kPushAhead = 8;      // how many nodes ahead rows are sent for

template <class Id>
class Push {
 public:
  // `opened(id)` is called once for every node whose row is looked at.
  template <class Opened>
  Outcome run(const PushSpec& spec, const PushChannel& channel, std::vector<RowSampler>& samplers,
              std::int64_t seed_type, std::int64_t seed, Opened opened) {
    begin(spec, channel, samplers);
    if (!enter_seed(static_cast<std::size_t>(seed_type), seed)) return Outcome::kDamaged;
    std::int64_t openings = 0;
    while (num_next_ > 0) {
      const bool may_open = spec.max_openings < 0 || openings < spec.max_openings;
      bool has_opened = false;
      if (!take(may_open, has_opened, opened)) return Outcome::kDamaged;
      openings += has_opened;
      for (std::size_t r = 0; r < rows_.size(); ++r) {
        if (!rows_[r].empty() && !spread(r)) return Outcome::kDamaged;
      }
    }
    settle_ends();
    return Outcome::kDone;
  }

  // How many residuals have been passed along an edge, in all runs so far.
  std::int64_t pushes() const { return pushes_; }

  const std::vector<std::int64_t>& scored() const { return scored_; }
  std::int64_t size() const { return size_; }
  std::int64_t id(std::int64_t local) const { return ids_[static_cast<std::size_t>(local)]; }
  const Reached& reached(std::int64_t local) const {
    return reached_[static_cast<std::size_t>(local)];
  }

 private:
  // A node whose residual is on its way: its neighbours each get `share`.
  struct Giver {
    double share;
    std::int32_t hop;
  };
  struct Row {
    std::int64_t node;
    std::int64_t begin;
    std::int64_t degree;
    std::size_t giver;
  };

  void begin(const PushSpec& spec, const PushChannel& channel, std::vector<RowSampler>& samplers) {
    spec_ = &spec;
    channel_ = &channel;
    samplers_ = &samplers;
    keep_ = 1.0 - spec.alpha;
    factor_ = spec.alpha * spec.eps;
    table_.clear(size_);
    size_ = 0;
    num_next_ = 0;
    if (next_.size() < ids_.size()) next_.resize(ids_.size());
    scored_.clear();
    ends_.clear();
    rows_.resize(spec.relations.size());
  }

  bool enter_seed(std::size_t type, std::int64_t seed) {
    make_room(1);
    ids_[0] = spec_->first[type] + seed;
    table_.find_or_insert(ids_[0], 0);
    size_ = 1;
    if (!enter(0, type, 0)) return false;
    reached_[0].residual = spec_->alpha;
    reached_[0].is_queued = true;
    next_[num_next_++] = 0;
    return true;
  }

  // One more than asked for: what is not new, or not queued, is written at the end, too.
  void make_room(std::int64_t more) {
    const auto wanted = static_cast<std::size_t>(size_ + more + 1);
    if (ids_.size() < wanted) {
      const std::size_t room = std::max(wanted, 2 * ids_.size());
      reached_.resize(room);
      next_.resize(room);
      ids_.resize(room);  // last: its size stands for that of all three, also when memory runs out
    }
    table_.reserve(more, ids_.data(), size_);
  }

  // Nodes just found, from place `from` on: the degree says how much residual they can bear.
  bool enter(std::int64_t from, std::size_t type, std::int32_t hop) {
    const std::vector<std::size_t>& leaving = spec_->leaving[type];
    const std::int64_t first = spec_->first[type];
    for (const std::size_t r : leaving) {
      const std::int64_t* const indptr = spec_->relations[r].indptr;
      for (std::int64_t local = from; local < size_; ++local) {
        prefetch_once(indptr + (id(local) - first));
      }
    }
    for (std::int64_t local = from; local < size_; ++local) {
      std::int64_t degree = 0;
      for (const std::size_t r : leaving) {
        const RowRange row = row_of(spec_->relations[r], id(local) - first);
        if (!row.is_sound) return false;
        degree += row.degree;
      }
      if (degree == 0) ends_.push_back(local);
      const double bears = degree == 0 ? std::numeric_limits<double>::infinity()
                                       : factor_ * static_cast<double>(degree);
      reached_[static_cast<std::size_t>(local)] = {
          0.0, 0.0, bears, hop, static_cast<std::uint16_t>(type), false, false};
    }
    return true;
  }

  // All that is queued gives up its residual; what it passes on waits in `rows_`.
  template <class Opened>
  bool take(bool may_open, bool& has_opened, Opened& opened) {
    std::swap(next_, current_);
    if (next_.size() < current_.size()) next_.resize(current_.size());
    const std::size_t count = std::exchange(num_next_, 0);
    givers_.clear();
    for (auto& rows : rows_) rows.clear();
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kPushAhead < count) send_for_rows(current_[i + kPushAhead]);
      const std::int64_t local = current_[i];
      Reached& node = reached_[static_cast<std::size_t>(local)];
      const double residual = node.residual;
      if (node.score == 0.0) scored_.push_back(local);
      node.score += residual;
      node.residual = 0.0;
      node.is_queued = false;
      const std::vector<std::size_t>& leaving = channel_->leaving[node.type];
      if (leaving.empty() || (!node.is_open && !may_open)) continue;
      if (!node.is_open) {
        node.is_open = true;
        has_opened = true;
        opened(id(local));
      }
      if (!give(local, node, residual, leaving)) return false;
    }
    return true;
  }

  void send_for_rows(std::int64_t local) const {
    const std::size_t type = reached(local).type;
    for (const std::size_t r : channel_->leaving[type]) {
      prefetch_once(spec_->relations[r].indptr + (id(local) - spec_->first[type]));
    }
  }

  bool give(std::int64_t local, const Reached& node, double residual,
            const std::vector<std::size_t>& leaving) {
    const std::int64_t number = id(local) - spec_->first[node.type];
    std::int64_t total = 0;
    for (const std::size_t r : leaving) {
      const RowRange row = row_of(spec_->relations[r], number);
      if (!row.is_sound) return false;
      if (row.degree == 0) continue;
      total += std::min(row.degree, spec_->max_neighbors);
      rows_[r].push_back({number, row.begin, row.degree, givers_.size()});
    }
    if (total > 0) {
      const double share = keep_ * residual / static_cast<double>(total);
      givers_.push_back({share, node.hop + 1});
    }
    return true;
  }

  // Passes on what waits for one relation.
  bool spread(std::size_t relation) {
    return std::visit([&](const auto& view) { return spread_along(view, relation); },
                      spec_->relations[relation].adjacency);
  }

  template <class Adjacency>
  bool spread_along(const Adjacency& adjacency, std::size_t relation) {
    const std::vector<Row>& rows = rows_[relation];
    const auto finds = static_cast<std::size_t>(spec_->relations[relation].finds);
    for (std::size_t i = 0; i < std::min(rows.size(), kPushAhead); ++i) {
      prefetch_once(adjacency.entry(rows[i].begin));
    }
    num_edges_ = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i + kPushAhead < rows.size()) prefetch_once(adjacency.entry(rows[i + kPushAhead].begin));
      const Row& row = rows[i];
      bool is_sound;
      if (row.degree <= spec_->max_neighbors) {
        is_sound = stream(adjacency, finds, row, row.degree,
                          [&row](std::int64_t k) { return row.begin + k; });
      } else {
        const Picks& picks = (*samplers_)[relation].choose(row.node, row.begin, row.degree);
        const std::int64_t* const at = picks.at.data();
        is_sound = stream(adjacency, finds, row, picks.size,
                          [at](std::int64_t k) { return at[k]; });
      }
      if (!is_sound) return false;
    }
    return flush(finds);
  }

  // Adds the edges of a row to the chunk, and works chunks off as they are full.
  template <class Adjacency, class At>
  bool stream(const Adjacency& adjacency, std::size_t finds, const Row& row, std::int64_t count,
              At at) {
    const auto first = static_cast<std::uint64_t>(spec_->first[finds]);
    const auto bound = static_cast<std::uint64_t>(spec_->num_nodes[finds]);
    const Giver giver = givers_[row.giver];
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t more = std::min(count - done, kPushChunk - num_edges_);
      bool is_damaged = false;
      for (std::int64_t i = 0; i < more; ++i) {
        const auto neighbor = static_cast<std::uint64_t>(adjacency.neighbor(at(done + i)));
        is_damaged |= neighbor >= bound;
        found_[num_edges_ + i] = static_cast<std::int64_t>(first + neighbor);
        giver_[num_edges_ + i] = giver;
      }
      if (is_damaged) return false;
      num_edges_ += more;
      done += more;
      if (num_edges_ == kPushChunk && !flush(finds)) return false;
    }
    return true;
  }

  // Everything in the chunk reaches its node.
  bool flush(std::size_t finds) {
    const std::int64_t count = std::exchange(num_edges_, 0);
    if (count == 0) return true;
    pushes_ += count;
    make_room(count);
    for (std::int64_t i = 0; i < count; ++i) table_.prefetch(found_[i]);
    const std::int64_t before = size_;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto [local, is_new] = table_.find_or_insert(found_[i], size_);
      ids_[static_cast<std::size_t>(size_)] = found_[i];
      size_ += is_new;
      found_[i] = local;
      prefetch_write(&reached_[static_cast<std::size_t>(local)]);
    }
    // The hop is set right below: each of these nodes is in the chunk.
    if (!enter(before, finds, std::numeric_limits<std::int32_t>::max())) return false;
    for (std::int64_t i = 0; i < count; ++i) {
      Reached& node = reached_[static_cast<std::size_t>(found_[i])];
      node.residual += giver_[i].share;
      node.hop = std::min(node.hop, giver_[i].hop);
      const bool is_due = !node.is_queued & (node.residual >= node.threshold);
      next_[num_next_] = found_[i];
      num_next_ += is_due;
      node.is_queued |= is_due;
    }
    return true;
  }

  // Nodes that nothing leads on from keep what came to them.
  void settle_ends() {
    for (const std::int64_t local : ends_) {
      Reached& node = reached_[static_cast<std::size_t>(local)];
      if (node.residual == 0.0) continue;
      if (node.score == 0.0) scored_.push_back(local);
      node.score += node.residual;
      node.residual = 0.0;
    }
  }

  const PushSpec* spec_ = nullptr;
  const PushChannel* channel_ = nullptr;
  std::vector<RowSampler>* samplers_ = nullptr;
  double keep_ = 0.0;
  double factor_ = 0.0;
  NodeTable<Id> table_;
  std::int64_t size_ = 0;
  std::vector<std::int64_t> ids_;
  std::vector<Reached> reached_;
  std::vector<std::int64_t> current_, next_;  // queued in this round, and for the next
  std::size_t num_next_ = 0;
  std::vector<std::int64_t> scored_;  // nodes with a score, in no order that counts
  std::vector<std::int64_t> ends_;
  std::vector<Giver> givers_;
  std::vector<std::vector<Row>> rows_;
  std::int64_t pushes_ = 0;
  std::int64_t num_edges_ = 0;
  std::int64_t found_[kPushChunk];
  Giver giver_[kPushChunk];
};

}  // namespace penstock
