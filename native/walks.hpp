// Random walks: uniform, or with node2vec's bias towards going back, staying near or going far.
//
// Walks are taken by blocks, all a step at a time: while the row of one node is on its way, others
// are asked for. What a walk draws depends on its own key and step alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "build.hpp"
#include "khop.hpp"
#include "prefetch.hpp"
#include "rng.hpp"
#include "spans.hpp"

namespace penstock::walks {

inline constexpr std::uint64_t kWord = 0x77616C6B00000001ULL;
inline constexpr std::int64_t kBlock = 64;
inline constexpr std::int64_t kNoNode = -1;
inline constexpr std::int64_t kNowhere = -1;  // a row that decides is elsewhere: here the walk ends

// How likely the next node is, given the one before: it is that one, has an edge to it, or has not.
// In parts of 2^30, of which the likeliest has all; none is 0.
struct Bias {
  static constexpr int kBits = 30;
  std::uint64_t back;
  std::uint64_t common;
  std::uint64_t far;

  bool is_even() const { return back == common && common == far; }
};

struct Step {
  AnyAdjacency adjacency;
  std::int64_t num_found;  // nodes of the type it leads to
};

struct Spec {
  std::vector<Step> path;  // followed step by step, over and over
  std::int64_t length;
  std::int64_t rounds;  // walks from every start
  bool stays;           // where there is no edge to follow; else the walk ends
  Bias bias;
  const AnyAdjacency* sorted;  // rows to look up edges in, neighbours ascending; null if unbiased
  bool sorted_reversed;        // its rows hold where edges come from, not where they lead
};

template <class Adjacency>
bool is_row(const Adjacency& adjacency, std::int64_t begin, std::int64_t end) {
  return 0 <= begin && begin <= end && end <= adjacency.num_edges;
}

inline bool is_below(std::int64_t id, std::int64_t bound) {
  return static_cast<std::uint64_t>(id) < static_cast<std::uint64_t>(bound);
}

enum class Lookup { kAbsent, kPresent, kMissing, kDamaged };

// Whether `value` stands in a sorted row.
inline Lookup look_up(const AnyAdjacency& sorted, std::int64_t row, std::int64_t value) {
  return std::visit(
      [&](const auto& rows) {
        auto [begin, end, is_missing] = rows.row(row);
        if (is_missing) return Lookup::kMissing;
        if (!is_row(rows, begin, end)) return Lookup::kDamaged;
        std::int64_t left = end - begin;
        while (left > 1) {
          const std::int64_t half = left >> 1;
          begin += rows.neighbor(begin + half - 1) < value ? half : 0;
          left -= half;
        }
        return left == 1 && rows.neighbor(begin) == value ? Lookup::kPresent : Lookup::kAbsent;
      },
      sorted);
}

// The walks of one batch. `nodes` are [walks, length + 1], `edges` [walks, length]; the walks of the
// first round from all starts come first, then those of the second.
class Walks {
 public:
  Walks(const Spec& spec, std::uint64_t batch_key)
      : spec_(spec), key_(fold(batch_key, kWord)) {}

  // Starts were checked to be nodes of the type that the first step expands.
  Outcome run(Strided<std::int64_t> starts, std::int64_t* nodes, std::int64_t* edges) {
    const std::int64_t rounds = starts.size == 0 ? 0 : spec_.rounds;
    for (std::int64_t round = 0; round < rounds; ++round) {
      for (std::int64_t first = 0; first < starts.size; first += kBlock) {
        const std::int64_t number = round * starts.size + first;
        nodes_ = nodes + number * (spec_.length + 1);
        edges_ = edges + number * spec_.length;
        enter(starts, first, round);
        const Outcome outcome = walk();
        if (outcome != Outcome::kDone) return outcome;
      }
    }
    return Outcome::kDone;
  }

 private:
  void enter(Strided<std::int64_t> starts, std::int64_t first, std::int64_t round) {
    size_ = std::min(kBlock, starts.size - first);
    for (std::int64_t i = 0; i < size_; ++i) {
      at_[i] = starts[first + i];
      before_[i] = kNoNode;
      walk_key_[i] = fold(fold(key_, static_cast<std::uint64_t>(first + i)),
                          static_cast<std::uint64_t>(round));
      nodes_[i * (spec_.length + 1)] = at_[i];
    }
  }

  Outcome walk() {
    for (std::int64_t step = 0; step < spec_.length; ++step) {
      const auto turn = static_cast<std::size_t>(step) % spec_.path.size();
      const Step& along = spec_.path[turn];
      const bool sound = std::visit(
          [&](const auto& adjacency) {
            return draw_all(adjacency, step) && go(adjacency, along.num_found, step);
          },
          along.adjacency);
      if (!sound) return Outcome::kDamaged;
    }
    return Outcome::kDone;
  }

  // Reads all rows' bounds, draws an edge of each, and sends for it.
  template <class Adjacency>
  bool draw_all(const Adjacency& adjacency, std::int64_t step) {
    const RowOffsets offsets = adjacency.offsets();
    for (std::int64_t i = 0; i < size_; ++i) {
      if (at_[i] != kNoNode) offsets.prefetch(at_[i]);
    }
    for (std::int64_t i = 0; i < size_; ++i) {
      degree_[i] = 0;
      if (at_[i] == kNoNode) continue;
      const auto [begin, end, is_missing] = offsets.row(at_[i]);
      if (!is_row(adjacency, begin, end)) return false;
      begin_[i] = begin;
      degree_[i] = end - begin;
      if (degree_[i] == 0) continue;
      step_key_[i] = fold(walk_key_[i], static_cast<std::uint64_t>(step));
      position_[i] = begin + offset(draw(step_key_[i], 0), degree_[i]);
      prefetch_once(adjacency.entry(position_[i]));
      send_for_lookup(i);
    }
    return true;
  }

  void send_for_lookup(std::int64_t i) const {
    if (spec_.sorted == nullptr || before_[i] == kNoNode || !spec_.sorted_reversed) return;
    std::visit([&](const auto& rows) { rows.offsets().prefetch(before_[i]); }, *spec_.sorted);
  }

  template <class Adjacency>
  bool go(const Adjacency& adjacency, std::int64_t num_found, std::int64_t step) {
    for (std::int64_t i = 0; i < size_; ++i) {
      std::int64_t next = spec_.stays ? at_[i] : kNoNode, edge = -1;
      if (degree_[i] > 0) {
        if (is_biased(i) && !choose_biased(adjacency, num_found, i)) return false;
        if (position_[i] != kNowhere) [[likely]] {
          next = adjacency.neighbor(position_[i]);
          if (!is_below(next, num_found)) return false;
          edge = adjacency.edge_id(position_[i]);
        } else {
          next = kNoNode;
        }
      }
      before_[i] = at_[i];
      at_[i] = next;
      nodes_[i * (spec_.length + 1) + step + 1] = next;
      edges_[i * spec_.length + step] = edge;
    }
    return true;
  }

  // A row of one edge leaves no choice, whatever the bias.
  bool is_biased(std::int64_t i) const {
    return spec_.sorted != nullptr && before_[i] != kNoNode && degree_[i] > 1;
  }

  // Rejection: edges are drawn evenly and accepted by their weight, so that what is accepted first
  // has the right probability. After as many draws as reading the row would take, it is read.
  template <class Adjacency>
  bool choose_biased(const Adjacency& adjacency, std::int64_t num_found, std::int64_t i) {
    constexpr std::int64_t kMoreDraws = 8;
    const auto draws = static_cast<std::uint64_t>(degree_[i] + kMoreDraws);
    for (std::uint64_t j = 0; j < draws; ++j) {
      position_[i] = begin_[i] + offset(draw(step_key_[i], 2 * j), degree_[i]);
      const std::int64_t node = adjacency.neighbor(position_[i]);
      if (!is_below(node, num_found)) return false;
      switch (accept(node, before_[i], draw(step_key_[i], 2 * j + 1) >> (64 - Bias::kBits))) {
        case Verdict::kAccepted: return true;
        case Verdict::kDamaged: return false;
        case Verdict::kUnknown: position_[i] = kNowhere; return true;
        case Verdict::kRejected: break;
      }
    }
    return choose_exactly(adjacency, num_found, i, draw(step_key_[i], 2 * draws));
  }

  enum class Verdict { kAccepted, kRejected, kUnknown, kDamaged };

  // Nothing is looked up where both answers would mean the same.
  Verdict accept(std::int64_t node, std::int64_t before, std::uint64_t drawn) const {
    const auto verdict = [](bool accepted) {
      return accepted ? Verdict::kAccepted : Verdict::kRejected;
    };
    if (node == before) return verdict(drawn < spec_.bias.back);
    const bool if_common = drawn < spec_.bias.common, if_far = drawn < spec_.bias.far;
    if (if_common == if_far) return verdict(if_far);
    switch (has_edge(node, before)) {
      case Lookup::kPresent: return verdict(if_common);
      case Lookup::kAbsent: return verdict(if_far);
      case Lookup::kMissing: return Verdict::kUnknown;
      case Lookup::kDamaged: break;
    }
    return Verdict::kDamaged;
  }

  // Whether an edge leads from `node` to `before`, in the direction of the walk.
  Lookup has_edge(std::int64_t node, std::int64_t before) const {
    return spec_.sorted_reversed ? look_up(*spec_.sorted, before, node)
                                 : look_up(*spec_.sorted, node, before);
  }

  // The weights of the whole row, and one draw from their sum.
  template <class Adjacency>
  bool choose_exactly(const Adjacency& adjacency, std::int64_t num_found, std::int64_t i,
                      std::uint64_t word) {
    sums_.resize(static_cast<std::size_t>(degree_[i]));
    std::uint64_t total = 0;
    bool is_known = true;
    for (std::int64_t offset = 0; offset < degree_[i]; ++offset) {
      const std::int64_t node = adjacency.neighbor(begin_[i] + offset);
      if (!is_below(node, num_found)) return false;
      std::uint64_t weight = spec_.bias.back;
      if (node != before_[i]) {
        const Lookup found = has_edge(node, before_[i]);
        if (found == Lookup::kDamaged) return false;
        is_known &= found != Lookup::kMissing;
        weight = found == Lookup::kPresent ? spec_.bias.common : spec_.bias.far;
      }
      sums_[static_cast<std::size_t>(offset)] = total += weight;
    }
    const auto found = std::upper_bound(sums_.begin(), sums_.end(), bounded(word, total));
    position_[i] = is_known ? begin_[i] + (found - sums_.begin()) : kNowhere;
    return true;
  }

  static std::int64_t offset(std::uint64_t word, std::int64_t degree) {
    return static_cast<std::int64_t>(bounded(word, static_cast<std::uint64_t>(degree)));
  }

  const Spec& spec_;
  std::uint64_t key_;
  std::int64_t* nodes_ = nullptr;  // of the block
  std::int64_t* edges_ = nullptr;
  std::int64_t size_ = 0;
  std::int64_t at_[kBlock];
  std::int64_t before_[kBlock];
  std::int64_t begin_[kBlock];
  std::int64_t degree_[kBlock];
  std::int64_t position_[kBlock];
  std::uint64_t walk_key_[kBlock];
  std::uint64_t step_key_[kBlock];
  std::vector<std::uint64_t> sums_;
};

}  // namespace penstock::walks
