// The map from global node ids to positions in the batch.
//
// Open addressing with linear probing. A slot is live when its stamp is at least `base_`, so that
// starting the next batch is one addition instead of clearing megabytes. The nodes themselves are
// the caller's list: the table never stores more than it needs to find them, and is rebuilt from
// that list when it grows.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "prefetch.hpp"

namespace penstock {

template <class Id>
class NodeTable {
 public:
  struct Found {
    std::int64_t local;
    bool is_new;
  };

  // Forgets all nodes, of which there were positions up to `num_nodes`.
  void clear(std::int64_t num_nodes) { base_ += static_cast<std::uint32_t>(num_nodes); }

  // Makes room for `more` further nodes; `nodes` are those already in, in order of position, with
  // repetitions (seeds given twice) allowed: a position is found only under its first occurrence.
  void reserve(std::int64_t more, const std::int64_t* nodes, std::int64_t num_nodes) {
    const std::uint64_t wanted = static_cast<std::uint64_t>(num_nodes + more);
    if (wanted * kSlotsPerNode > slots_.size() || wanted + base_ > kMaxStamp) {
      rebuild(wanted, nodes, num_nodes);
    }
  }

  void prefetch(std::int64_t node) const { prefetch_write(&slots_[home(node)]); }

  // Finds `node`, or enters it at `position`. Written so that the likely cases, seen before and
  // not seen before, take the same path: which of the two it is cannot be predicted.
  Found find_or_insert(std::int64_t node, std::int64_t position) {
    const Id id = static_cast<Id>(node);
    std::uint64_t at = home(node);
    while (true) {
      Slot& slot = slots_[at];
      const std::uint32_t stamp = slot.stamp;
      const std::uint32_t vacant = stamp < base_;
      const std::uint32_t same = slot.id == id;
      if ((vacant | same) != 0) [[likely]] {
        const std::uint32_t fresh = base_ + static_cast<std::uint32_t>(position);
        const std::uint32_t mine = stamp ^ ((stamp ^ fresh) & (0u - vacant));
        slot.id = id;
        slot.stamp = mine;
        return {static_cast<std::int64_t>(mine - base_), vacant != 0};
      }
      at = (at + 1) & mask_;
    }
  }

  // The position of `node`, or -1.
  std::int64_t find(std::int64_t node) const {
    if (slots_.empty()) return -1;
    for (std::uint64_t at = home(node);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.stamp < base_) return -1;
      if (slot.id == static_cast<Id>(node)) return static_cast<std::int64_t>(slot.stamp - base_);
    }
  }

 private:
  struct Slot {
    Id id;
    std::uint32_t stamp;
  };
  static constexpr std::uint64_t kSlotsPerNode = 2;
  static constexpr std::uint64_t kMinSlots = 1024;
  static constexpr std::uint64_t kMaxStamp = std::numeric_limits<std::uint32_t>::max();

  std::uint64_t home(std::int64_t node) const {
    return (static_cast<std::uint64_t>(node) * 0x9E3779B97F4A7C15ULL) >> shift_;
  }

  void rebuild(std::uint64_t wanted, const std::int64_t* nodes, std::int64_t num_nodes) {
    std::uint64_t capacity = std::bit_ceil(wanted * kSlotsPerNode);
    if (capacity < kMinSlots) capacity = kMinSlots;
    if (capacity < slots_.size()) capacity = slots_.size();
    slots_.assign(capacity, Slot{0, 0});
    mask_ = capacity - 1;
    shift_ = 64 - std::countr_zero(capacity);
    base_ = 1;
    for (std::int64_t i = 0; i < num_nodes; ++i) find_or_insert(nodes[i], i);
  }

  std::vector<Slot> slots_;
  std::uint64_t mask_ = 0;
  int shift_ = 63;
  std::uint32_t base_ = 1;
};

}  // namespace penstock
