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

class TemporalChooser {
 public:
  // `last` leaves of the beginning its most recent `fanout` edges.
  TemporalChooser(const std::int64_t* times, std::int64_t fanout, bool replace, bool last,
                  std::uint64_t hop_key)
      : searches_(times), fanout_(fanout), last_(last), chooser_(fanout, replace, hop_key) {}

  // Appends the chosen positions of every node of the block, in order. The rows of the block are
  // cut to what may be taken.
  void choose(NodeBlock& block, Picks& picks) {
    searches_.clear();
    for (std::int64_t i = 0; i < block.size; ++i) {
      *searches_.add(block.begin[i], block.degree[i] + 1, 1) = block.time[i];
    }
    searches_.run();
    for (std::int64_t i = 0; i < block.size; ++i) {
      const std::int64_t end = searches_.found()[i];
      const std::int64_t admissible = end - block.begin[i];
      block.degree[i] = last_ && fanout_ >= 0 ? std::min(admissible, fanout_) : admissible;
      block.begin[i] = end - block.degree[i];
    }
    if (block.size > 0) chooser_.choose(block, picks);
  }

 private:
  Searches searches_;
  std::int64_t fanout_;
  bool last_;
  Chooser chooser_;
};

}  // namespace penstock
