// Personalised PageRank of one node by forward push (Andersen, Chung and Lang).
//
// The seed begins with a residual of alpha. In each round every node whose residual has reached its
// threshold, alpha * eps * degree, adds the residual to its score and passes (1 - alpha) of it on,
// in equal parts, to its neighbours. All nodes of a round give up their residuals before any is
// passed on: so their rows are one long stream of edges, and no step waits for memory. Degrees are
// read at the end of a round, and only of nodes whose residual would do for a degree of 1.
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

#include "node_table.hpp"
#include "ppr_spec.hpp"
#include "prefetch.hpp"

namespace penstock {

// A node that a push has come to.
struct Reached {
  double residual;
  double score;
  double threshold;  // infinite where nothing leads on: its residual is its score, in the end
  std::int32_t hop;
  std::uint16_t type;
  bool is_noticed;  // in this round, its residual has been seen to be enough for some degree
  std::uint8_t known;
};
inline constexpr std::uint8_t kHasThreshold = 1;  // its degree has been read
inline constexpr std::uint8_t kIsOpen = 2;        // its row has been looked at

inline constexpr std::int64_t kPushChunk = 128;  // edges at a time; their slots fit the first cache
inline constexpr std::size_t kPushAhead = 8;     // how many nodes ahead rows are sent for

template <class Id>
class Push {
 public:
  // `opened(id)` is called once for every node whose row is looked at.
  template <class Opened>
  Outcome run(const PushSpec& spec, const PushChannel& channel, std::vector<RowSampler>& samplers,
              std::int64_t seed_type, std::int64_t seed, Opened opened) {
    begin(spec, channel, samplers);
    enter_seed(static_cast<std::size_t>(seed_type), seed);
    std::int64_t openings = 0;
    while (!queue_.empty()) {
      const bool may_open = spec.max_openings < 0 || openings < spec.max_openings;
      bool has_opened = false;
      if (!take(may_open, has_opened, opened)) return Outcome::kDamaged;
      openings += has_opened;
      for (std::size_t r = 0; r < rows_.size(); ++r) {
        if (!rows_[r].empty() && !spread(r)) return Outcome::kDamaged;
      }
      if (!queue_noticed()) return Outcome::kDamaged;
    }
    return settle_ends() ? Outcome::kDone : Outcome::kDamaged;
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
    num_noticed_ = 0;
    num_edges_ = 0;
    queue_.clear();
    scored_.clear();
    ends_.clear();
    rows_.resize(spec.relations.size());
  }

  // The seed pushes whatever its degree.
  void enter_seed(std::size_t type, std::int64_t seed) {
    make_room(1);
    ids_[0] = spec_->first[type] + seed;
    table_.find_or_insert(ids_[0], 0);
    size_ = 1;
    enter(0, type);
    reached_[0].residual = spec_->alpha;
    reached_[0].hop = 0;
    queue_.push_back(0);
  }

  // One more than asked for: what is not new, or not noticed, is written at the end, too.
  void make_room(std::int64_t more) {
    const auto wanted = static_cast<std::size_t>(size_ + more + 1);
    if (ids_.size() < wanted) {
      const std::size_t room = std::max(wanted, 2 * ids_.size());
      reached_.resize(room);
      noticed_.resize(room);
      ids_.resize(room);  // last: its size stands for that of all three, also when memory runs out
    }
    table_.reserve(more, ids_.data(), size_);
  }

  // Nodes just found, from place `from` on. Their hop is set by those who found them.
  void enter(std::int64_t from, std::size_t type) {
    constexpr std::int32_t kFar = std::numeric_limits<std::int32_t>::max();
    const Reached fresh{0.0, 0.0, 0.0, kFar, static_cast<std::uint16_t>(type), false, 0};
    std::fill(reached_.begin() + from, reached_.begin() + size_, fresh);
  }

  // What it takes to push a node: infinitely much where nothing leads on.
  bool read_threshold(std::int64_t local) {
    Reached& node = reached_[static_cast<std::size_t>(local)];
    const std::int64_t number = id(local) - spec_->first[node.type];
    std::int64_t degree = 0;
    for (const std::size_t r : spec_->leaving[node.type]) {
      const RowRange row = row_of(spec_->relations[r], number);
      if (!row.is_sound) return false;
      degree += row.degree;
    }
    if (degree == 0) ends_.push_back(local);
    node.threshold = degree == 0 ? std::numeric_limits<double>::infinity()
                                 : factor_ * static_cast<double>(degree);
    node.known |= kHasThreshold;
    return true;
  }

  void send_for_degree(std::int64_t local) const {
    const std::size_t type = reached(local).type;
    for (const std::size_t r : spec_->leaving[type]) {
      prefetch_once(spec_->relations[r].indptr + (id(local) - spec_->first[type]));
    }
  }

  // At the end of a round: of the nodes noticed, those at their threshold are the next to push.
  bool queue_noticed() {
    queue_.clear();
    for (std::size_t i = 0; i < num_noticed_; ++i) {
      if (i + kPushAhead < num_noticed_) send_for_degree(noticed_[i + kPushAhead]);
      const std::int64_t local = noticed_[i];
      Reached& node = reached_[static_cast<std::size_t>(local)];
      node.is_noticed = false;
      if ((node.known & kHasThreshold) == 0 && !read_threshold(local)) return false;
      if (node.residual >= node.threshold) queue_.push_back(local);
    }
    num_noticed_ = 0;
    return true;
  }

  // All that is queued gives up its residual; what it passes on waits in `rows_`.
  template <class Opened>
  bool take(bool may_open, bool& has_opened, Opened& opened) {
    givers_.clear();
    for (auto& rows : rows_) rows.clear();
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      if (i + kPushAhead < queue_.size()) send_for_degree(queue_[i + kPushAhead]);
      const std::int64_t local = queue_[i];
      Reached& node = reached_[static_cast<std::size_t>(local)];
      const double residual = node.residual;
      if (node.score == 0.0) scored_.push_back(local);
      node.score += residual;
      node.residual = 0.0;
      const std::vector<std::size_t>& leaving = channel_->leaving[node.type];
      const bool is_open = (node.known & kIsOpen) != 0;
      if (leaving.empty() || (!is_open && !may_open)) continue;
      if (!is_open) {
        node.known |= kIsOpen;
        has_opened = true;
        opened(id(local));
      }
      if (!give(local, node, residual, leaving)) return false;
    }
    return true;
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
    flush(finds);
    return true;
  }

  // Adds the edges of a row to the chunk, and works chunks off as they are full.
  template <class Adjacency, class At>
  bool stream(const Adjacency& adjacency, std::size_t finds, const Row& row, std::int64_t count,
              At at) {
    const auto first = static_cast<std::uint64_t>(spec_->first[finds]);
    const auto bound = static_cast<std::uint64_t>(spec_->num_nodes[finds]);
    const Giver giver = givers_[row.giver];
    for (std::int64_t done = 0; done < count;) {
      if (num_edges_ == 0) make_room(kPushChunk);
      const std::int64_t begin = num_edges_, more = std::min(count - done, kPushChunk - begin);
      bool is_damaged = false;
      for (std::int64_t i = 0; i < more; ++i) {
        const auto neighbor = static_cast<std::uint64_t>(adjacency.neighbor(at(done + i)));
        is_damaged |= neighbor >= bound;
        const auto id = static_cast<std::int64_t>(first + neighbor);
        table_.prefetch(id);
        found_[begin + i] = id;
        giver_[begin + i] = giver;
      }
      if (is_damaged) return false;
      num_edges_ += more;
      done += more;
      if (num_edges_ == kPushChunk) flush(finds);
    }
    return true;
  }

  // Everything in the chunk reaches its node. Counters are kept in registers: in memory they could,
  // for all the compiler knows, be among what is written.
  void flush(std::size_t finds) {
    const std::int64_t count = std::exchange(num_edges_, 0), before = size_;
    pushes_ += count;
    name(count);
    enter(before, finds);
    Reached* const reached = reached_.data();
    std::int64_t* const noticed = noticed_.data();
    std::size_t num_noticed = num_noticed_;
    const double least = factor_;
    for (std::int64_t i = 0; i < count; ++i) {
      Reached& node = reached[found_[i]];
      const double residual = node.residual + giver_[i].share;
      node.residual = residual;
      node.hop = std::min(node.hop, giver_[i].hop);
      noticed[num_noticed] = found_[i];
      num_noticed += static_cast<std::size_t>(!node.is_noticed & (residual >= least));
      node.is_noticed |= residual >= least;
    }
    num_noticed_ = num_noticed;
  }

  // Replaces the ids in the chunk by the places of their nodes.
  void name(std::int64_t count) {
    std::int64_t size = size_;
    std::int64_t* const ids = ids_.data();
    const Reached* const reached = reached_.data();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t id = found_[i];
      const auto [local, is_new] = table_.find_or_insert(id, size);
      ids[size] = id;
      size += is_new;
      found_[i] = local;
      prefetch_write(&reached[local]);
    }
    size_ = size;
  }

  // Nodes that nothing leads on from keep what came to them. Those whose degree was never read have
  // less than any that has a score, so they matter only where there are few of these.
  bool settle_ends() {
    keep_what_came(0);
    num_scored_.assign(spec_->num_nodes.size(), 0);
    for (const std::int64_t local : scored_) ++num_scored_[reached(local).type];
    if (std::all_of(num_scored_.begin(), num_scored_.end(),
                    [this](std::int64_t count) { return count >= spec_->max_nodes; })) {
      return true;
    }
    const std::size_t known = ends_.size();
    if (!read_missing_thresholds()) return false;
    keep_what_came(known);
    return true;
  }

  void keep_what_came(std::size_t from) {
    for (std::size_t i = from; i < ends_.size(); ++i) {
      Reached& node = reached_[static_cast<std::size_t>(ends_[i])];
      if (node.residual == 0.0) continue;
      if (node.score == 0.0) scored_.push_back(ends_[i]);
      node.score += node.residual;
      node.residual = 0.0;
    }
  }

  bool read_missing_thresholds() {
    const auto is_missing = [this](std::int64_t local) {
      const Reached& node = reached(local);
      return (node.known & kHasThreshold) == 0 && num_scored_[node.type] < spec_->max_nodes;
    };
    constexpr std::int64_t kAhead = 16;
    for (std::int64_t local = 0; local < size_; ++local) {
      if (local + kAhead < size_ && is_missing(local + kAhead)) send_for_degree(local + kAhead);
      if (is_missing(local) && !read_threshold(local)) return false;
    }
    return true;
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
  std::vector<std::int64_t> queue_;    // nodes to push in this round
  std::vector<std::int64_t> noticed_;  // nodes that may have to in the next
  std::size_t num_noticed_ = 0;
  std::vector<std::int64_t> scored_;  // nodes with a score, in no order that counts
  std::vector<std::int64_t> ends_;    // nodes known to lead nowhere
  std::vector<std::int64_t> num_scored_;
  std::vector<Giver> givers_;
  std::vector<std::vector<Row>> rows_;
  std::int64_t pushes_ = 0;
  std::int64_t num_edges_ = 0;
  std::int64_t found_[kPushChunk];
  Giver giver_[kPushChunk];
};

}  // namespace penstock
