// Assigning nodes to parts one after the other, each where most of its neighbours are: one pass over
// the rows, which may be in a file, and beside them the part of each node and the sizes of the parts.
//
// Nodes of all types have one index space: those of a type begin at its base. The part of a node that
// has none yet is `num_parts`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "cutting.hpp"
#include "rng.hpp"

namespace penstock {

// More votes than these count as these, so that their product with the room in a part fits 63 bits.
constexpr std::int64_t kMostVotes = std::int64_t{1} << 30;

// The rows of one edge type: neighbours are numbered from `base` on, and there are `size` of them.
template <class Rows>
struct RowsOfType {
  const Rows* rows;
  std::int64_t base;
  std::int64_t size;
};

namespace detail {

// Whether this is the number of a part, rather than of none.
inline bool is_part(std::int64_t part, std::int64_t num_parts) {
  return static_cast<std::uint64_t>(part) < static_cast<std::uint64_t>(num_parts);
}

// The votes of a node's neighbours: so many for each part.
class Votes {
 public:
  explicit Votes(std::int64_t num_parts) : counts_(static_cast<std::size_t>(num_parts)) {}

  void add(std::int64_t part, std::int64_t votes) {
    std::int64_t& count = counts_[static_cast<std::size_t>(part)];
    if (count == 0) voted_.push_back(part);
    count += votes;
  }
  void clear() {
    for (const std::int64_t part : voted_) counts_[static_cast<std::size_t>(part)] = 0;
    voted_.clear();
  }
  const std::vector<std::int64_t>& voted() const { return voted_; }
  std::int64_t of(std::int64_t part) const {
    return std::min(counts_[static_cast<std::size_t>(part)], kMostVotes);
  }

 private:
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> voted_;  // the parts with votes, each once
};

// Adds a vote for the part of each neighbour of a node; returns false where the row is damaged.
template <class View, class Part>
bool add_votes(const View& from, std::int64_t base, std::int64_t size, std::int64_t row,
               std::int64_t node, const Part* parts, std::int64_t num_parts, Votes& votes) {
  const RowBounds bounds = checked_row(from, row);
  if (bounds.begin > bounds.end) return false;
  for (std::int64_t at = bounds.begin; at < bounds.end; ++at) {
    const std::int64_t neighbor = from.neighbor(at);
    if (neighbor < 0 || neighbor >= size) return false;
    const auto part = static_cast<std::int64_t>(parts[base + neighbor]);
    if (is_part(part, num_parts) && base + neighbor != node) votes.add(part, 1);
  }
  return true;
}

// The part with the most votes times room in it; then with the most room, then with the lowest number.
// `num_parts` if no part with votes has room.
inline std::int64_t best_part(const Votes& votes, const std::int64_t* sizes, std::int64_t capacity,
                              std::int64_t num_parts) {
  std::int64_t best = num_parts, most = 0, most_room = 0;
  for (const std::int64_t part : votes.voted()) {
    const std::int64_t room = capacity - sizes[part];
    if (room <= 0) continue;
    const std::int64_t score = votes.of(part) * room;
    const bool is_tie = best != num_parts && score == most;
    if (score > most || (is_tie && (room > most_room || (room == most_room && part < best)))) {
      best = part, most = score, most_room = room;
    }
  }
  return best;
}

}  // namespace detail

// Assigns the nodes `first` to `end` of a type anew, in this order, by the rows of all relations that
// lead to them. `sizes` counts the nodes of this type in each part; no part gets more than `capacity`.
// `more` holds further votes, [end - first, num_parts], or is null. A node without votes stays, or
// goes to the emptiest part. Returns how many nodes have changed their part, or -1 where rows are
// damaged.
template <class Rows, class Part>
std::int64_t place_nodes(const std::vector<RowsOfType<Rows>>& relations, std::int64_t base,
                         std::int64_t first, std::int64_t end, const std::int32_t* more,
                         std::int64_t capacity, std::int64_t num_parts, std::int64_t* sizes,
                         Part* parts) {
  detail::Votes votes(num_parts);
  std::int64_t moved = 0;
  for (std::int64_t row = first; row < end; ++row) {
    votes.clear();
    for (const RowsOfType<Rows>& relation : relations) {
      const bool is_sound = std::visit(
          [&](const auto& view) {
            return detail::add_votes(view, relation.base, relation.size, row, base + row, parts,
                                     num_parts, votes);
          },
          *relation.rows);
      if (!is_sound) return -1;
    }
    if (more != nullptr) {
      const std::int32_t* const here = more + (row - first) * num_parts;
      for (std::int64_t part = 0; part < num_parts; ++part) {
        if (here[part] > 0) votes.add(part, here[part]);
      }
    }
    const auto before = static_cast<std::int64_t>(parts[base + row]);
    const bool was_placed = detail::is_part(before, num_parts);
    if (was_placed) --sizes[before];
    std::int64_t part = detail::best_part(votes, sizes, capacity, num_parts);
    if (part == num_parts && was_placed && sizes[before] < capacity) part = before;
    if (part == num_parts) part = std::min_element(sizes, sizes + num_parts) - sizes;
    ++sizes[part];
    moved += part != before;
    parts[base + row] = static_cast<Part>(part);
  }
  return moved;
}

// Adds, for each entry that leads to a node from `first` to `end`, a vote for the part of the node that
// has the row: what `place_nodes` cannot see from the rows of the node that it assigns. `votes` is
// [end - first, num_parts]. Returns false where rows are damaged.
template <class View, class Part>
bool count_votes(const View& from, std::int64_t row_base, std::int64_t base, std::int64_t size,
                 std::int64_t first, std::int64_t end, const Part* parts, std::int64_t num_parts,
                 std::int32_t* votes) {
  for (std::int64_t row = 0; row < from.num_nodes; ++row) {
    const RowBounds bounds = detail::checked_row(from, row);
    if (bounds.begin > bounds.end) return false;
    const auto part = static_cast<std::int64_t>(parts[row_base + row]);
    if (!detail::is_part(part, num_parts)) continue;
    for (std::int64_t at = bounds.begin; at < bounds.end; ++at) {
      const std::int64_t neighbor = from.neighbor(at);
      if (neighbor < 0 || neighbor >= size) return false;
      if (neighbor < first || neighbor >= end || base + neighbor == row_base + row) continue;
      ++votes[(neighbor - first) * num_parts + part];
    }
  }
  return true;
}

// Adds up digests of the edges (row, neighbour), and of the edges (neighbour, row). If both sums over
// all edges are equal, every edge is there in both directions, as often. Returns false where rows are
// damaged.
template <class View>
bool add_both_directions(const View& from, std::int64_t row_base, std::int64_t base,
                         std::int64_t size, std::uint64_t* sums) {
  for (std::int64_t row = 0; row < from.num_nodes; ++row) {
    const RowBounds bounds = detail::checked_row(from, row);
    if (bounds.begin > bounds.end) return false;
    const auto one = static_cast<std::uint64_t>(row_base + row);
    for (std::int64_t at = bounds.begin; at < bounds.end; ++at) {
      const std::int64_t neighbor = from.neighbor(at);
      if (neighbor < 0 || neighbor >= size) return false;
      const auto other = static_cast<std::uint64_t>(base + neighbor);
      sums[0] += fold(one, other);
      sums[1] += fold(other, one);
    }
  }
  return true;
}

}  // namespace penstock
