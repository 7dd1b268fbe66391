// The nodes that a push has come to, and the residuals they have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ppr_rows.hpp"
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

template <class Id>
class PushNodes {
 public:
  void begin(const PushSpec& spec, const Thresholds& thresholds) {
    spec_ = &spec;
    thresholds_ = &thresholds;
    table_.clear(size_);
    size_ = 0;
    num_noticed_ = 0;
    scored_.clear();
    ends_.clear();
    found_.clear();
    changed_.clear();
  }

  // The first node. False where its row is not within the graph.
  bool enter_seed(std::size_t type, std::int64_t seed) {
    make_room(1);
    const auto id = static_cast<Id>(spec_->first[type] + seed);
    ids_[0] = id;
    table_.view(ids_.data()).find_or_insert(id, 0);
    reached_[0] = {spec_->alpha, 0, static_cast<std::uint16_t>(type), 0};
    sizes_[0] = known_size(*thresholds_->sizes(type).at(seed), type, seed);
    size_ = 1;
    if (sizes_[0] == DegreeSize::kNone) ends_.push_back(0);
    return sizes_[0] != DegreeSize::kUnsound;
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(size_); }
  std::int64_t id(std::uint32_t local) const { return ids_[local]; }
  std::int64_t number(std::uint32_t local) const {
    return id(local) - spec_->first[reached_[local].type];
  }
  const Reached& reached(std::uint32_t local) const { return reached_[local]; }
  Reached& reached(std::uint32_t local) { return reached_[local]; }
  // Only of those that have one.
  double score(std::uint32_t local) const { return scores_[local]; }

  // Nodes with a score, in no order that counts.
  const std::vector<std::uint32_t>& scored() const { return scored_; }
  const std::vector<Found>& found() const { return found_; }
  const std::vector<std::uint32_t>& changed() const { return changed_; }

  // Sends for what will be asked of the nodes at the ends of edges.
  void send(const PushRows<Id>& rows) const {
    std::size_t k = 0;
    for (const Piece& piece : rows.pieces()) {
      const DegreeSizes sizes = thresholds_->sizes(piece.finds);
      const std::int64_t first = spec_->first[piece.finds];
      for (; k < piece.end; ++k) prefetch_once(sizes.at(rows.edges()[k] - first));
    }
  }

  // Everything that was gathered gets its part.
  void add(const PushRows<Id>& rows) {
    make_room(static_cast<std::int64_t>(rows.num_edges()));
    std::size_t from = 0;
    for (const Piece& piece : rows.pieces()) {
      if (table_.is_large()) add_piece<true>(rows, piece, from);
      else add_piece<false>(rows, piece, from);
      from = piece.end;
    }
  }

  // At the end of a round: of the nodes noticed, those that may be at their threshold.
  void take_noticed(std::vector<std::uint32_t>& queue) {
    for (std::size_t i = 0; i < num_noticed_; ++i) {
      const std::uint32_t local = noticed_[i];
      Reached& node = reached_[local];
      node.marks &= static_cast<std::uint16_t>(~kNoticed);
      if (node.residual >= thresholds_->least(sizes_[local])) [[unlikely]] queue.push_back(local);
    }
    num_noticed_ = 0;
  }

  // The residual of a node becomes part of its score, and is returned.
  double settle(std::uint32_t local) {
    Reached& node = reached_[local];
    const double residual = node.residual;
    if ((node.marks & kScored) == 0) {
      scored_.push_back(local);
      scores_[local] = 0.0;
      node.marks |= kScored;
    }
    scores_[local] += residual;
    node.residual = 0.0;
    return residual;
  }

  // Nodes that nothing leads on from keep what came to them.
  void keep_what_came() {
    for (const std::uint32_t local : ends_) {
      if (reached_[local].residual != 0.0) settle(local);
    }
  }

 private:
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

  // Looks at the rows of a node whose size nobody knew before.
  std::uint8_t known_size(std::uint8_t size, std::size_t type, std::int64_t node) const {
    if (size != DegreeSize::kUnknown) return size;
    return DegreeSize::of(degree_of(*spec_, type, node));
  }

  // What the loop counts is kept in registers: in memory it could, for all the compiler knows, be
  // among what is written.
  template <bool kIsLarge>
  void add_piece(const PushRows<Id>& rows, const Piece& piece, std::size_t from) {
    const Giver giver = rows.giver(piece);
    const auto table = table_.view(ids_.data());
    const double share = giver.share, least = thresholds_->lowest();
    const std::uint16_t marks = share >= least ? kNoticed : 0;
    const Reached fresh{share, giver.hop, static_cast<std::uint16_t>(piece.finds), marks};
    Reached* const reached = reached_.data();
    std::uint8_t* const sizes = sizes_.data();
    const DegreeSizes known = thresholds_->sizes(piece.finds);
    const std::int64_t first = spec_->first[piece.finds];
    const Id* const edges = rows.edges();
    const std::size_t num_edges = rows.num_edges();
    Id* const ids = ids_.data();
    std::uint32_t* const noticed = noticed_.data();
    std::size_t num_noticed = num_noticed_;
    auto size = static_cast<std::uint32_t>(size_);
    for (std::size_t k = from; k < piece.end; ++k) {
      if constexpr (kIsLarge) {
        constexpr std::size_t kAhead = 16;
        if (k + kAhead < num_edges) table.prefetch(edges[k + kAhead]);
      }
      const Id id = edges[k];
      const std::uint32_t local = table.find_or_insert(id, size);
      if (local == size) {
        const std::uint8_t degrees = *known.at(id - first);
        ids[size] = id;
        reached[size] = fresh;
        sizes[size] = degrees;
        noticed[num_noticed] = size;
        num_noticed += marks;
        if (DegreeSize::is_special(degrees)) [[unlikely]] {
          sizes[size] = known_size(degrees, piece.finds, id - first);
          if (sizes[size] == DegreeSize::kNone) ends_.push_back(size);
        }
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

  const PushSpec* spec_ = nullptr;
  const Thresholds* thresholds_ = nullptr;
  PushTable<Id> table_;
  std::int64_t size_ = 0;
  std::vector<Id> ids_;
  std::vector<Reached> reached_;
  std::vector<double> scores_;
  std::vector<std::uint8_t> sizes_;
  std::vector<std::uint32_t> noticed_;  // nodes that may have to push in the next round
  std::size_t num_noticed_ = 0;
  std::vector<std::uint32_t> scored_;
  std::vector<std::uint32_t> ends_;  // nodes that lead nowhere
  std::vector<Found> found_;
  std::vector<std::uint32_t> changed_;
};

}  // namespace penstock
