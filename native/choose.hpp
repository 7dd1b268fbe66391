// Which of a node's edges are taken. Everything that decides a draw is here.
//
// Nodes come in blocks, and so do their draws (draws.hpp). Fan-outs too large for that, and nodes with
// over four billion edges, go one by one; the numbers drawn are the same.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "draws.hpp"
#include "exclusion.hpp"
#include "rng.hpp"

namespace penstock {

// Positions chosen so far, each with the place of the node that owns it. Grows by whole nodes.
struct Picks {
  std::vector<std::int64_t> at;
  std::vector<std::int64_t> owner;
  std::int64_t size = 0;

  void make_room(std::int64_t more) {
    const auto wanted = static_cast<std::size_t>(size) + static_cast<std::size_t>(more);
    if (wanted <= at.size()) [[likely]] return;
    if (wanted > at.max_size()) throw std::bad_alloc();
    at.resize(std::max(wanted, 2 * at.size()));
    owner.resize(at.size());
  }
};

// How many edges a node of this degree gives. A negative fan-out means all of them.
inline std::int64_t take_count(std::int64_t degree, std::int64_t fanout, bool replace) {
  if (degree == 0 || fanout == 0) return 0;
  if (fanout < 0) return degree;
  return replace ? fanout : std::min(degree, fanout);
}

// A set of offsets for Floyd's method where comparing with all those chosen would be quadratic.
class OffsetSet {
 public:
  void clear(std::int64_t expected) {
    const auto slots = std::bit_ceil(static_cast<std::size_t>(2 * expected));
    slots_.assign(slots, kVacant);
    shift_ = 64 - std::countr_zero(slots);
  }

  // True when the offset was not in yet.
  bool insert(std::int64_t offset) {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = (static_cast<std::uint64_t>(offset) * kGamma) >> shift_;;
         at = (at + 1) & mask) {
      if (slots_[at] == offset) return false;
      if (slots_[at] == kVacant) {
        slots_[at] = offset;
        return true;
      }
    }
  }

 private:
  static constexpr std::int64_t kVacant = -1;
  std::vector<std::int64_t> slots_;
  int shift_ = 63;
};

// All edges of a node are equally likely. With `kTrees`, each tree draws for itself.
template <bool kTrees>
class UniformChooser {
 public:
  UniformChooser(std::int64_t fanout, bool replace, std::uint64_t hop_key)
      : fanout_(fanout), replace_(replace), hop_key_(hop_key) {}

  // Appends the chosen positions of every node of the block, in order.
  void choose(NodeBlock& block, Picks& picks) {
    const bool by_block = draw_by_block(block);
    for (std::int64_t i = 0; i < block.size; ++i) {
      const std::int64_t take = take_count(block.degree[i], fanout_, replace_);
      if (take == 0) continue;
      picks.make_room(take);
      std::int64_t* const at = picks.at.data() + picks.size;
      std::int64_t* const owner = picks.owner.data() + picks.size;
      picks.size += take;
      const std::int64_t begin = block.begin[i], place = block.place[i];
      if (by_block && !takes_all(block.degree[i])) {
        const std::uint32_t* offset = &block.offset[0][i];
        for (std::int64_t j = 0; j < take; ++j, offset += kBlockNodes) {
          at[j] = begin + *offset;
          owner[j] = place;
        }
        continue;
      }
      std::fill_n(owner, take, place);
      if (takes_all(block.degree[i])) {
        for (std::int64_t j = 0; j < take; ++j) at[j] = begin + j;
      } else {
        draw_one(key_of(block, i), begin, block.degree[i], take, at);
      }
    }
  }

  // The same for a row without some of its edges, of which those from `first` on, `count` of them,
  // may be taken.
  void choose_left(const NodeBlock& block, const RowLeft& row, std::int64_t first,
                   std::int64_t count, Picks& picks) {
    const std::int64_t take = take_count(count, fanout_, replace_);
    if (take == 0) return;
    picks.make_room(take);
    std::int64_t* const at = picks.at.data() + picks.size;
    std::fill_n(picks.owner.data() + picks.size, take, block.place[row.i]);
    picks.size += take;
    if (takes_all(count)) {
      for (std::int64_t j = 0; j < take; ++j) at[j] = j;
    } else {
      draw_one(key_of(block, row.i), 0, count, take, at);
    }
    for (std::int64_t j = 0; j < take; ++j) at[j] = row.position(first + at[j]);
  }
  void choose_left(const NodeBlock& block, const RowLeft& row, Picks& picks) {
    choose_left(block, row, 0, row.size(), picks);
  }

 private:
  // Without replacement a node with too few edges gives them all, in storage order.
  bool takes_all(std::int64_t degree) const {
    return fanout_ < 0 || (!replace_ && degree <= fanout_);
  }

  bool draw_by_block(NodeBlock& block) const {
    if (fanout_ < 1 || fanout_ > kBlockTake) return false;
    const std::int64_t largest = *std::max_element(block.degree, block.degree + block.size);
    if (largest > std::numeric_limits<std::uint32_t>::max()) return false;
    if (takes_all(largest)) return false;  // nothing to draw
    if (replace_) {
      detail::draw_block<true, kTrees>(block, fanout_, hop_key_);
    } else {
      detail::draw_block<false, kTrees>(block, fanout_, hop_key_);
    }
    return true;
  }

  std::uint64_t key_of(const NodeBlock& block, std::int64_t i) const {
    return node_key(hop_key_, static_cast<std::uint64_t>(block.node[i]), kTrees ? block.tree[i] : 0);
  }

  void draw_one(std::uint64_t key, std::int64_t begin, std::int64_t degree, std::int64_t take,
                std::int64_t* at) {
    if (replace_) {
      for (std::int64_t j = 0; j < take; ++j) at[j] = begin + offset(key, j, degree);
      return;
    }
    chosen_.clear(take);
    for (std::int64_t j = 0; j < take; ++j) {
      const std::int64_t last = degree - take + j;
      std::int64_t drawn = offset(key, j, last + 1);
      if (!chosen_.insert(drawn)) chosen_.insert(drawn = last);
      at[j] = begin + drawn;
    }
  }

  static std::int64_t offset(std::uint64_t key, std::int64_t j, std::int64_t bound) {
    const std::uint64_t word = draw(key, static_cast<std::uint64_t>(j));
    return static_cast<std::int64_t>(bounded(word, static_cast<std::uint64_t>(bound)));
  }

  std::int64_t fanout_;
  bool replace_;
  std::uint64_t hop_key_;
  OffsetSet chosen_;
};

using Chooser = UniformChooser<true>;  // right for any block: without trees their words are 0

}  // namespace penstock
