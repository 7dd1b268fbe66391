// Which of a node's edges are taken where time counts: none later than the seed's.
//
// Rows are in the order of time, so what may be taken is the beginning of a row, and a search says
// how long it is. Of that beginning, edges are drawn as of a node that has no others.
#pragma once

#include <algorithm>
#include <cstdint>

#include "choose.hpp"
#include "searches.hpp"

namespace penstock {

// How many of the edges that a tree came by were not too late: what to expect of its next node.
struct Punctual {
  std::int64_t edges = 0;
  std::int64_t of = 0;

  double share() const {
    return (static_cast<double>(edges) + 1) / (static_cast<double>(of) + 2);
  }
};

class TemporalChooser {
 public:
  // `last` leaves of the beginning its most recent `fanout` edges. `trees`, if there are any, are
  // kept from hop to hop; they make searches shorter and nothing else.
  TemporalChooser(const std::int64_t* times, std::int64_t fanout, bool replace, bool last,
                  std::uint64_t hop_key, Punctual* trees = nullptr)
      : searches_(times),
        fanout_(fanout),
        last_(last),
        trees_(trees),
        chooser_(fanout, replace, hop_key) {}

  // Appends the chosen positions of every node of the block, in order. The rows of the block are
  // cut to what may be taken.
  void choose(NodeBlock& block, Picks& picks) {
    if (block.size == 0) return;
    search(block);
    for (std::int64_t i = 0; i < block.size; ++i) {
      const std::int64_t admissible = end_[i] - block.begin[i];
      if (trees_ != nullptr) count(trees_[block.tree[i] - 1], admissible, block.degree[i]);
      block.degree[i] = last_ && fanout_ >= 0 ? std::min(admissible, fanout_) : admissible;
      block.begin[i] = end_[i] - block.degree[i];
    }
    chooser_.choose(block, picks);
  }

 private:
  void search(const NodeBlock& block) {
    std::int64_t window[kBlockNodes];
    for (std::int64_t i = 0; i < block.size; ++i) {
      const std::int64_t begin = block.begin[i], degree = block.degree[i];
      const double share = trees_ == nullptr ? 0.5 : trees_[block.tree[i] - 1].share();
      const auto guess = begin + static_cast<std::int64_t>(static_cast<double>(degree) * share);
      window[i] = searches_.window(begin, begin + degree, guess);
    }
    for (std::int64_t i = 0; i < block.size; ++i) searches_.send_for(window[i]);
    for (std::int64_t i = 0; i < block.size; ++i) {
      searches_.look(block.begin[i], block.begin[i] + block.degree[i], window[i], block.time[i], 0,
                     end_ + i);
    }
    searches_.finish();
  }

  static void count(Punctual& tree, std::int64_t edges, std::int64_t of) {
    tree.edges += edges;
    tree.of += of;
  }

  Searches searches_;
  std::int64_t fanout_;
  bool last_;
  Punctual* trees_;
  std::int64_t end_[kBlockNodes];  // of what may be taken of each row
  Chooser chooser_;
};

}  // namespace penstock
