// The rows along which the residuals of one round are passed on.
//
// They are one long stream of edges, which comes in portions: rows are sent for, all at once, and
// then the neighbours in them are gathered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "ppr_spec.hpp"
#include "prefetch.hpp"

namespace penstock {

inline constexpr std::size_t kPushEdges = 4096;  // edges at a time, and those of one more row

// A node whose residual is on its way: its neighbours each get `share`.
struct Giver {
  double share;
  std::int32_t hop;
};

// Edges that were gathered of one row, up to `end`.
struct Piece {
  std::size_t end;
  std::size_t giver;
  std::size_t finds;
};

// What was given away along which edges, in order: for each row where its edges begin, how many,
// and the share. A row of which some edges were chosen is said as many rows of one edge.
struct PushRecord {
  std::vector<std::int64_t> begins, counts;
  std::vector<double> shares;
};

template <class Id>
class PushRows {
 public:
  void begin(const PushSpec& spec, std::vector<RowSampler>& samplers, PushRecord* record) {
    spec_ = &spec;
    samplers_ = &samplers;
    record_ = record;
    rows_.resize(spec.relations.size());
    clear();
  }

  void clear() {
    givers_.clear();
    left_.clear();
    for (auto& rows : rows_) rows.clear();
    relation_ = row_ = 0;
    are_spent_ = true;
  }

  bool are_spent() const { return are_spent_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  const Giver& giver(const Piece& piece) const { return givers_[piece.giver]; }
  const Id* edges() const { return edges_.data(); }
  std::size_t num_edges() const { return num_edges_; }

  // What a node gives away goes along these relations. False where a row is not within the graph.
  bool give(std::int64_t node, const std::vector<std::size_t>& leaving, double given,
            std::int32_t hop) {
    std::int64_t total = 0;
    for (const std::size_t r : leaving) {
      const RowRange row = row_of(spec_->relations[r], node);
      if (!row.is_sound) return false;
      const RowLeft* const left = keep(left_of(*spec_, r, node, row));
      const std::int64_t degree = left == nullptr ? row.degree : left->size();
      if (degree == 0) continue;
      total += std::min(degree, spec_->max_neighbors);
      rows_[r].push_back({node, row.begin, degree, givers_.size(), left});
    }
    if (total == 0) return true;
    givers_.push_back({given / static_cast<double>(total), hop});
    are_spent_ = false;
    return true;
  }

  // Sends for the next portion.
  void send() {
    std::size_t edges = 0, from = row_;
    picks_.clear();
    for (std::size_t r = relation_; r < rows_.size(); ++r, from = 0) {
      for (std::size_t i = from; i < rows_[r].size(); ++i) {
        if (edges >= kPushEdges) return;
        const Row& row = rows_[r][i];
        edges += static_cast<std::size_t>(std::min(row.degree, spec_->max_neighbors));
        if (is_whole(row)) send_for_row(spec_->relations[r], row.begin, row.degree);
        else choose(r, row);
      }
    }
  }

  // Collects the neighbours that were sent for.
  bool gather() {
    num_edges_ = next_pick_ = 0;
    pieces_.clear();
    for (; relation_ < rows_.size(); ++relation_, row_ = 0) {
      const bool is_sound = std::visit([&](const auto& view) { return gather_along(view); },
                                       spec_->relations[relation_].adjacency);
      if (!is_sound) return false;
      if (row_ < rows_[relation_].size()) return true;
    }
    are_spent_ = true;
    return true;
  }

 private:
  struct Row {
    std::int64_t node;
    std::int64_t begin;
    std::int64_t degree;  // of the edges that are left
    std::size_t giver;
    const RowLeft* left;  // where it lost edges
  };

  const RowLeft* keep(std::optional<RowLeft> left) {
    return left ? &left_.emplace_back(std::move(*left)) : nullptr;
  }

  bool is_whole(const Row& row) const { return row.degree <= spec_->max_neighbors; }

  void choose(std::size_t relation, const Row& row) {
    RowSampler& sampler = (*samplers_)[relation];
    const Picks& picks = row.left == nullptr ? sampler.choose(row.node, row.begin, row.degree)
                                             : sampler.choose(row.node, *row.left);
    picks_.insert(picks_.end(), picks.at.begin(), picks.at.begin() + picks.size);
    send_for_entries(spec_->relations[relation], picks.at.data(), picks.size);
  }

  template <class Adjacency>
  bool gather_along(const Adjacency& adjacency) {
    const auto finds = static_cast<std::size_t>(spec_->relations[relation_].finds);
    const std::vector<Row>& rows = rows_[relation_];
    for (; row_ < rows.size() && num_edges_ < kPushEdges; ++row_) {
      const Row& row = rows[row_];
      const bool is_sound = is_whole(row) ? gather_whole(adjacency, finds, row)
                                          : gather_chosen(adjacency, finds, row);
      if (!is_sound) return false;
      pieces_.push_back({num_edges_, row.giver, finds});
    }
    return true;
  }

  template <class Adjacency>
  bool gather_whole(const Adjacency& adjacency, std::size_t finds, const Row& row) {
    if (row.left != nullptr) return gather_left(adjacency, finds, row);
    if (record_ != nullptr) [[unlikely]] note(row.begin, row.degree, row.giver);
    return gather_row(adjacency, finds, row.degree, [&row](std::int64_t k) { return row.begin + k; });
  }

  template <class Adjacency>
  bool gather_left(const Adjacency& adjacency, std::size_t finds, const Row& row) {
    const auto at = [&row](std::int64_t k) { return row.left->position(k); };
    for (std::int64_t k = 0; record_ != nullptr && k < row.degree; ++k) note(at(k), 1, row.giver);
    return gather_row(adjacency, finds, row.degree, at);
  }

  template <class Adjacency>
  bool gather_chosen(const Adjacency& adjacency, std::size_t finds, const Row& row) {
    const std::int64_t* const at = picks_.data() + next_pick_;
    next_pick_ += static_cast<std::size_t>(spec_->max_neighbors);
    if (record_ != nullptr) [[unlikely]] {
      for (std::int64_t k = 0; k < spec_->max_neighbors; ++k) note(at[k], 1, row.giver);
    }
    return gather_row(adjacency, finds, spec_->max_neighbors, [at](std::int64_t k) { return at[k]; });
  }

  void note(std::int64_t begin, std::int64_t count, std::size_t giver) {
    record_->begins.push_back(begin);
    record_->counts.push_back(count);
    record_->shares.push_back(givers_[giver].share);
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

  const PushSpec* spec_ = nullptr;
  std::vector<RowSampler>* samplers_ = nullptr;
  PushRecord* record_ = nullptr;
  std::vector<Giver> givers_;
  std::vector<std::vector<Row>> rows_;  // by relation
  std::deque<RowLeft> left_;            // of those that lost edges; others point into it
  bool are_spent_ = true;
  std::size_t relation_ = 0;  // where gathering goes on
  std::size_t row_ = 0;
  std::vector<std::int64_t> picks_;  // chosen edges of the rows that were sent for
  std::size_t next_pick_ = 0;
  std::vector<Piece> pieces_;
  std::vector<Id> edges_;  // neighbours that were gathered
  std::size_t num_edges_ = 0;
};

}  // namespace penstock
