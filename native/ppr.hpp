// Personalised PageRank of one node by forward push (Andersen, Chung and Lang).
//
// The seed begins with a residual of alpha. In each round every node whose residual has reached its
// threshold, alpha * eps * degree, adds the residual to its score and passes (1 - alpha) of it on,
// in equal parts, to its neighbours. All nodes of a round give up their residuals before any is
// passed on: so their rows are one long stream of edges, which are gathered first and then added.
// Of nearly all nodes a byte tells that their threshold is out of reach; few degrees are read.
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

#include "ppr_spec.hpp"
#include "ppr_table.hpp"
#include "prefetch.hpp"

namespace penstock {

// A node that a push has come to; its score is elsewhere, since few have one.
struct Reached {
  double residual;
  std::int32_t hop;
  std::uint16_t type;
  std::uint16_t marks;
};
inline constexpr std::uint16_t kNoticed = 1;  // in this round, its residual has been seen to be
                                              // enough for some degree
inline constexpr std::uint16_t kOpen = 2;     // its row has been looked at
inline constexpr std::uint16_t kScored = 4;
inline constexpr std::uint16_t kChanged = 8;  // it has more than what it was found with

// Nodes of one type, found one after the other along one row: they were found with the same
// residual, and most keep it.
struct Found {
  double residual;
  std::uint32_t begin;
  std::uint32_t end;
  std::size_t type;
};

inline constexpr std::size_t kPushEdges = 4096;  // edges at a time, and those of one more row

template <class Id>
class Push {
 public:
  // `opened(id)` is called once for every node whose row is looked at.
  template <class Opened>
  Outcome run(const PushSpec& spec, const PushChannel& channel, std::vector<RowSampler>& samplers,
              std::int64_t seed_type, std::int64_t seed, Opened opened) {
    begin(spec, channel, samplers);
    if (!enter_seed(static_cast<std::size_t>(seed_type), seed)) return Outcome::kDamaged;
    for (std::int64_t openings = 0; !queue_.empty();) {
      const bool may_open = spec.max_openings < 0 || openings < spec.max_openings;
      bool has_opened = false;
      if (!take(may_open, has_opened, opened)) return Outcome::kDamaged;
      openings += has_opened;
      while (relation_ < rows_.size()) {
        send_for_rows();
        if (!gather()) return Outcome::kDamaged;
        add_all();
      }
      queue_noticed();
      if (!keep_queued()) return Outcome::kDamaged;
    }
    keep_what_came();
    return Outcome::kDone;
  }

  // How many residuals have been passed along an edge, in all runs so far.
  std::int64_t pushes() const { return pushes_; }

  // Nodes with a score, in no order that counts.
  const std::vector<std::uint32_t>& scored() const { return scored_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(size_); }
  std::int64_t id(std::uint32_t local) const { return ids_[local]; }
  const Reached& reached(std::uint32_t local) const { return reached_[local]; }
  const std::vector<Found>& found() const { return found_; }
  const std::vector<std::uint32_t>& changed() const { return changed_; }
  // Only of those that have one.
  double score(std::uint32_t local) const { return scores_[local]; }

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
  // Edges that were gathered of one row, up to `end`.
  struct Piece {
    std::size_t end;
    std::size_t giver;
    std::size_t finds;
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
    queue_.clear();
    scored_.clear();
    ends_.clear();
    found_.clear();
    changed_.clear();
    rows_.resize(spec.relations.size());
    for (int size = 0; size < DegreeSizes::kCount; ++size) {
      least_[size] = factor_ * DegreeSizes::least(size);
    }
  }

  // The seed pushes whatever its degree.
  bool enter_seed(std::size_t type, std::int64_t seed) {
    make_room(1);
    const auto id = static_cast<Id>(spec_->first[type] + seed);
    ids_[0] = id;
    table_.view().find_or_insert(id, 0);
    reached_[0] = {spec_->alpha, 0, static_cast<std::uint16_t>(type), 0};
    sizes_[0] = spec_->sizes.data()[id];
    size_ = 1;
    if (sizes_[0] == DegreeSizes::kNone) ends_.push_back(0);
    queue_.push_back(0);
    return sizes_[0] != DegreeSizes::kUnsound;
  }

  // One more than asked for: what is not noticed is written at the end, too.
  void make_room(std::int64_t more) {
    const auto wanted = static_cast<std::size_t>(size_ + more + 1);
    if (ids_.size() < wanted) {
      const std::size_t room = std::max(wanted, 2 * ids_.size());
      reached_.resize(room);
      scores_.resize(room);
      sizes_.resize(room);
      noticed_.resize(room);
      ids_.resize(room);  // last: its size stands for that of all, also when memory runs out
    }
    table_.reserve(size_ + more, ids_.data(), size_);
  }

  // At the end of a round: of the nodes noticed, those that may be at their threshold.
  void queue_noticed() {
    queue_.clear();
    for (std::size_t i = 0; i < num_noticed_; ++i) {
      const std::uint32_t local = noticed_[i];
      Reached& node = reached_[local];
      node.marks &= static_cast<std::uint16_t>(~kNoticed);
      if (node.residual >= least_[sizes_[local]]) [[unlikely]] queue_.push_back(local);
    }
    num_noticed_ = 0;
  }

  // Of these, those that are: the next to push.
  bool keep_queued() {
    for (const std::uint32_t local : queue_) {
      send_for_offsets(*spec_, reached_[local].type, id(local));
    }
    std::size_t kept = 0;
    for (const std::uint32_t local : queue_) {
      const Reached& node = reached_[local];
      const std::int64_t degree = degree_of(*spec_, node.type, id(local));
      if (degree < 0) return false;
      if (node.residual >= factor_ * static_cast<double>(degree)) queue_[kept++] = local;
    }
    queue_.resize(kept);
    return true;
  }

  // All that is queued gives up its residual; what it passes on waits in `rows_`.
  template <class Opened>
  bool take(bool may_open, bool& has_opened, Opened& opened) {
    givers_.clear();
    for (auto& rows : rows_) rows.clear();
    relation_ = row_ = 0;
    for (const std::uint32_t local : queue_) {
      Reached& node = reached_[local];
      const double residual = node.residual;
      score(local, residual);
      const std::vector<std::size_t>& leaving = channel_->leaving[node.type];
      const bool is_open = (node.marks & kOpen) != 0;
      if (leaving.empty() || (!is_open && !may_open)) continue;
      if (!is_open) {
        node.marks |= kOpen;
        has_opened = true;
        opened(id(local));
      }
      if (!give(local, node, residual, leaving)) return false;
    }
    return true;
  }

  void score(std::uint32_t local, double residual) {
    Reached& node = reached_[local];
    if ((node.marks & kScored) == 0) {
      scored_.push_back(local);
      scores_[local] = 0.0;
      node.marks |= kScored;
    }
    scores_[local] += residual;
    node.residual = 0.0;
  }

  bool give(std::uint32_t local, const Reached& node, double residual,
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

  // The next ones, as many as are gathered at a time. Of rows that are sampled the reads are many
  // and do not wait for each other: there is nothing to send for.
  void send_for_rows() const {
    std::size_t edges = 0, from = row_;
    for (std::size_t r = relation_; r < rows_.size(); ++r, from = 0) {
      for (std::size_t i = from; i < rows_[r].size(); ++i) {
        if (edges >= kPushEdges) return;
        const Row& row = rows_[r][i];
        edges += static_cast<std::size_t>(std::min(row.degree, spec_->max_neighbors));
        if (row.degree > spec_->max_neighbors) continue;
        send_for_row(spec_->relations[r], row.begin, row.degree);
      }
    }
  }

  // Collects the neighbours that the next rows have, and sends for what is known of them.
  bool gather() {
    num_edges_ = 0;
    pieces_.clear();
    for (; relation_ < rows_.size(); ++relation_, row_ = 0) {
      const bool is_sound = std::visit([&](const auto& view) { return gather_along(view); },
                                       spec_->relations[relation_].adjacency);
      if (!is_sound) return false;
      if (row_ < rows_[relation_].size()) break;
    }
    const std::uint8_t* const sizes = spec_->sizes.data();
    for (std::size_t i = 0; i < num_edges_; ++i) prefetch_once(sizes + edges_[i]);
    return true;
  }

  template <class Adjacency>
  bool gather_along(const Adjacency& adjacency) {
    const auto finds = static_cast<std::size_t>(spec_->relations[relation_].finds);
    const std::vector<Row>& rows = rows_[relation_];
    for (; row_ < rows.size() && num_edges_ < kPushEdges; ++row_) {
      const Row& row = rows[row_];
      bool is_sound;
      if (row.degree <= spec_->max_neighbors) {
        is_sound = gather_row(adjacency, finds, row.degree,
                              [&row](std::int64_t k) { return row.begin + k; });
      } else {
        const Picks& picks = (*samplers_)[relation_].choose(row.node, row.begin, row.degree);
        const std::int64_t* const at = picks.at.data();
        is_sound = gather_row(adjacency, finds, picks.size, [at](std::int64_t k) { return at[k]; });
      }
      if (!is_sound) return false;
      pieces_.push_back({num_edges_, row.giver, finds});
    }
    return true;
  }

  template <class Adjacency, class At>
  bool gather_row(const Adjacency& adjacency, std::size_t finds, std::int64_t count, At at) {
    const auto first = static_cast<std::uint64_t>(spec_->first[finds]);
    const auto bound = static_cast<std::uint64_t>(spec_->num_nodes[finds]);
    const std::size_t wanted = num_edges_ + static_cast<std::size_t>(count);
    if (edges_.size() < wanted) edges_.resize(std::max(wanted, 2 * edges_.size()));
    Id* const found = edges_.data() + std::exchange(num_edges_, wanted);
    bool is_damaged = false;
    for (std::int64_t k = 0; k < count; ++k) {
      const auto neighbor = static_cast<std::uint64_t>(adjacency.neighbor(at(k)));
      is_damaged |= neighbor >= bound;
      found[k] = static_cast<Id>(first + neighbor);
    }
    return !is_damaged;
  }

  // Everything that was gathered gets its part.
  void add_all() {
    make_room(static_cast<std::int64_t>(num_edges_));
    pushes_ += static_cast<std::int64_t>(num_edges_);
    std::size_t from = 0;
    for (const Piece& piece : pieces_) {
      if (table_.is_large()) add<true>(piece, from);
      else add<false>(piece, from);
      from = piece.end;
    }
  }

  // What the loop counts is kept in registers: in memory it could, for all the compiler knows, be
  // among what is written.
  template <bool kIsLarge>
  void add(const Piece& piece, std::size_t from) {
    const Giver giver = givers_[piece.giver];
    const auto table = table_.view();
    const double share = giver.share, least = factor_;
    const std::uint16_t marks = share >= least ? kNoticed : 0;
    const Reached fresh{share, giver.hop, static_cast<std::uint16_t>(piece.finds), marks};
    Reached* const reached = reached_.data();
    std::uint8_t* const sizes = sizes_.data();
    const std::uint8_t* const known = spec_->sizes.data();
    const Id* const edges = edges_.data();
    Id* const ids = ids_.data();
    std::uint32_t* const noticed = noticed_.data();
    std::size_t num_noticed = num_noticed_;
    auto size = static_cast<std::uint32_t>(size_);
    for (std::size_t k = from; k < piece.end; ++k) {
      if constexpr (kIsLarge) {
        constexpr std::size_t kAhead = 16;
        if (k + kAhead < num_edges_) table.prefetch(edges[k + kAhead]);
      }
      const Id id = edges[k];
      const std::uint32_t local = table.find_or_insert(id, size);
      if (local == size) {
        const std::uint8_t degrees = known[id];
        ids[size] = id;
        reached[size] = fresh;
        sizes[size] = degrees;
        noticed[num_noticed] = size;
        num_noticed += marks;
        if (degrees == DegreeSizes::kNone) [[unlikely]] ends_.push_back(size);
        ++size;
        continue;
      }
      Reached& node = reached[local];
      const double residual = node.residual + share;
      if (residual != node.residual && (node.marks & kChanged) == 0) {
        changed_.push_back(local);
        node.marks |= kChanged;
      }
      node.residual = residual;
      node.hop = std::min(node.hop, giver.hop);
      const bool is_noticed = (residual >= least) & ((node.marks & kNoticed) == 0);
      noticed[num_noticed] = local;
      num_noticed += is_noticed;
      node.marks |= static_cast<std::uint16_t>(is_noticed);
    }
    if (static_cast<std::int64_t>(size) > size_) {
      found_.push_back({share, static_cast<std::uint32_t>(size_), size, piece.finds});
    }
    num_noticed_ = num_noticed;
    size_ = size;
  }

  // Nodes that nothing leads on from keep what came to them.
  void keep_what_came() {
    for (const std::uint32_t local : ends_) {
      if (reached_[local].residual != 0.0) score(local, reached_[local].residual);
    }
  }

  const PushSpec* spec_ = nullptr;
  const PushChannel* channel_ = nullptr;
  std::vector<RowSampler>* samplers_ = nullptr;
  double keep_ = 0.0;
  double factor_ = 0.0;
  double least_[DegreeSizes::kCount];
  PushTable<Id> table_;
  std::int64_t size_ = 0;
  std::vector<Id> ids_;
  std::vector<Reached> reached_;
  std::vector<double> scores_;
  std::vector<std::uint8_t> sizes_;
  std::vector<std::uint32_t> queue_;    // nodes to push in this round
  std::vector<std::uint32_t> noticed_;  // nodes that may have to in the next
  std::size_t num_noticed_ = 0;
  std::vector<std::uint32_t> scored_;
  std::vector<std::uint32_t> ends_;  // nodes that lead nowhere
  std::vector<Giver> givers_;
  std::vector<std::vector<Row>> rows_;
  std::vector<Found> found_;
  std::vector<std::uint32_t> changed_;
  std::vector<Id> edges_;  // neighbours that were gathered
  std::size_t num_edges_ = 0;
  std::vector<Piece> pieces_;
  std::int64_t pushes_ = 0;
  std::size_t relation_ = 0;  // where gathering goes on
  std::size_t row_ = 0;
};

}  // namespace penstock
