// Which of a node's edges are taken where time counts: none later than the seed's.
//
// Rows are in the order of time, so what may be taken is the beginning of a row, and a search says
// how long it is. Of that beginning, edges are drawn as of a node that has no others.
#pragma once

#include <algorithm>
#include <cstdint>

#include "choose.hpp"
#include "searches.hpp"
#include "simd.hpp"

namespace penstock {

// What a tree came by, and what to expect of its next node: how many of the edges were not too late,
// and how far apart the times of two edges were about there, times the edges of their row.
struct Punctual {
  std::int64_t edges = 0;
  std::int64_t of = 0;
  double spread = 0;
  double windows = 0;

  double share() const {
    return (static_cast<double>(edges) + 1) / (static_cast<double>(of) + 2);
  }
  // Places per unit of time in a row of so many edges; 0 where nobody knows.
  double slope(std::int64_t degree) const {
    return spread > 0 ? static_cast<double>(degree) * windows / spread : 0;
  }
};

// What trees came by; several may share an entry, which makes guesses worse and nothing else.
struct TreesSeen {
  Punctual* trees;
  std::uint64_t mask;  // of trees' numbers

  Punctual& of(std::uint64_t tree) const { return trees[tree & mask]; }
};

class TemporalChooser {
 public:
  static constexpr std::int64_t kBlocksAhead = 4;

  // `last` leaves of the beginning its most recent `fanout` edges. `trees` are kept from hop to hop;
  // they make searches shorter and nothing else.
  TemporalChooser(const std::int64_t* times, std::int64_t fanout, bool replace, bool last,
                  std::uint64_t hop_key, TreesSeen trees)
      : times_(times),
        searches_(times),
        fanout_(fanout),
        last_(last),
        trees_(trees),
        chooser_(fanout, replace, hop_key) {}

  // The first half of a choice, of several blocks: cuts their rows to what may be taken.
  void look_ahead(NodeBlock* blocks, std::int64_t count) {
    for (std::int64_t b = 0; b < count; ++b) guess(blocks[b], window_ + b * kBlockNodes);
    for (std::int64_t b = 0; b < count; ++b) {
      for (std::int64_t i = 0; i < blocks[b].size; ++i) {
        searches_.send_for(window_[b * kBlockNodes + i]);
      }
    }
    look_all(blocks, count);
    searches_.finish();
    for (std::int64_t b = 0; b < count; ++b) cut(blocks[b], end_ + b * kBlockNodes);
  }

  // The second half, of one of them: appends the chosen positions of every node, in order.
  void draw(NodeBlock& block, Picks& picks) {
    if (block.size > 0) chooser_.choose(block, picks);
  }

  // Both halves, of a row without some of its edges.
  void choose_left(const NodeBlock& block, const RowLeft& row, Picks& picks) {
    const std::int64_t* const times = times_ + row.begin;
    const auto end = std::upper_bound(times, times + row.degree, block.time[row.i]);
    const std::int64_t admissible = row.among_first(end - times);
    const std::int64_t count = last_ && fanout_ >= 0 ? std::min(admissible, fanout_) : admissible;
    chooser_.choose_left(block, row, admissible - count, count, picks);
  }

 private:
  void guess(const NodeBlock& block, std::int64_t* window) const {
    for (std::int64_t i = 0; i < block.size; ++i) {
      const std::int64_t begin = block.begin[i], degree = block.degree[i];
      const double share = trees_.of(block.tree[i] - 1).share();
      const auto guess = begin + static_cast<std::int64_t>(static_cast<double>(degree) * share);
      window[i] = searches_.window(begin, begin + degree, guess);
    }
  }

  void look_all(const NodeBlock* blocks, std::int64_t count) {
    with_simd([&]<Simd kSimd>() PENSTOCK_INLINED {
      for (std::int64_t b = 0; b < count; ++b) {
        look<kSimd>(blocks[b], window_ + b * kBlockNodes, end_ + b * kBlockNodes);
      }
    });
  }

  template <Simd kSimd>
  PENSTOCK_INLINE void look(const NodeBlock& block, const std::int64_t* window,
                            std::int64_t* end) {
    for (std::int64_t i = 0; i < block.size; ++i) {
      const std::int64_t begin = block.begin[i], degree = block.degree[i];
      const double slope =
          degree < Searches::kWindow
              ? 0
              : spread(trees_.of(block.tree[i] - 1), degree, times_ + window[i]);
      searches_.look<kSimd>(begin, begin + degree, window[i], block.time[i], slope, end + i);
    }
  }

  // Learns from the times of a window, and says what slope they make likely.
  PENSTOCK_INLINE static double spread(Punctual& tree, std::int64_t degree, const std::int64_t* times) {
    const double rise = static_cast<double>(times[Searches::kWindow - 1]) -
                        static_cast<double>(times[0]);
    tree.spread += rise * static_cast<double>(degree);
    tree.windows += Searches::kWindow - 1;
    return tree.slope(degree);
  }

  void cut(NodeBlock& block, const std::int64_t* end) {
    for (std::int64_t i = 0; i < block.size; ++i) {
      const std::int64_t admissible = end[i] - block.begin[i];
      count(trees_.of(block.tree[i] - 1), admissible, block.degree[i]);
      block.degree[i] = last_ && fanout_ >= 0 ? std::min(admissible, fanout_) : admissible;
      block.begin[i] = end[i] - block.degree[i];
    }
  }

  static void count(Punctual& tree, std::int64_t edges, std::int64_t of) {
    tree.edges += edges;
    tree.of += of;
  }

  const std::int64_t* times_;
  Searches searches_;
  std::int64_t fanout_;
  bool last_;
  TreesSeen trees_;
  std::int64_t window_[kBlocksAhead * kBlockNodes]{};
  std::int64_t end_[kBlocksAhead * kBlockNodes]{};  // of what may be taken of each row
  Chooser chooser_;
};

}  // namespace penstock
