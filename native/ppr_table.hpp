// Where a push finds the nodes it has come to.
//
// As node_table.hpp, but for many short lives: most pushes reach hundreds of nodes and one in a
// thousand a hundred times as many. So each begins in a few kilobytes at the front, which the first
// cache holds, and takes more of the memory as it needs it. A slot is a stamp, live when it is at
// least `base_`: neither beginning nor growing clears anything. Which node it stands for is looked
// up in the list of ids, seldom: most nodes are new, and slots half as large stay in the caches.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "prefetch.hpp"

namespace penstock {

template <class Id>
class PushTable {
 public:
  // Forgets all nodes, of which there were `num_nodes`.
  void clear(std::int64_t num_nodes) {
    base_ += static_cast<std::uint32_t>(num_nodes);
    capacity_ = 0;
  }

  // Makes room for `wanted` nodes; `ids` are those already in, in order of position.
  void reserve(std::int64_t wanted, const Id* ids, std::int64_t num_nodes) {
    if (static_cast<std::uint64_t>(wanted) * kSlotsPerNode > capacity_) [[unlikely]] {
      grow(static_cast<std::uint64_t>(wanted), ids, num_nodes);
    }
  }

  // The table as it is until it grows, by value: a loop keeps it in registers, where nothing that
  // is written could, for all the compiler knows, change it.
  struct View {
    std::uint32_t* slots;
    const Id* ids;  // by position
    std::uint64_t mask;
    int shift;
    std::uint32_t base;

    std::uint64_t home(Id id) const {
      return (static_cast<std::uint64_t>(id) * 0x9E3779B97F4A7C15ULL) >> shift;
    }
    void prefetch(Id id) const { prefetch_write(&slots[home(id)]); }

    // The position of a node; where it is not there yet, it is entered at `position`. Most are new
    // and find their place vacant.
    std::uint32_t find_or_insert(Id id, std::uint32_t position) const {
      std::uint64_t at = home(id);
      while (slots[at] >= base) [[unlikely]] {
        const std::uint32_t there = slots[at] - base;
        if (ids[there] == id) return there;
        at = (at + 1) & mask;
      }
      slots[at] = base + position;
      return position;
    }
  };
  View view(const Id* ids) { return {slots_.data(), ids, capacity_ - 1, shift_, base_}; }
  bool is_large() const { return capacity_ > kSmall; }

 private:
  static constexpr std::uint64_t kSlotsPerNode = 4;  // at least; a collision costs more than a line
  static constexpr std::uint64_t kLeast = 1024;
  static constexpr std::uint64_t kSmall = 1 << 15;  // slots that the second cache holds

  void grow(std::uint64_t wanted, const Id* ids, std::int64_t num_nodes) {
    if (wanted >= kMaxStamp) throw std::length_error("a push reaches too many nodes");
    capacity_ = std::max(kLeast, std::bit_ceil(wanted * kSlotsPerNode));
    shift_ = 64 - std::countr_zero(capacity_);
    base_ += static_cast<std::uint32_t>(num_nodes);
    // Positions are below the capacity: so stamps do not wrap around before it is looked at again.
    if (slots_.size() < capacity_ || base_ + 2 * capacity_ > kMaxStamp) {
      slots_.assign(std::max<std::uint64_t>(capacity_, slots_.size()), 0);
      base_ = 1;
    }
    const View entering = view(ids);
    for (std::int64_t i = 0; i < num_nodes; ++i) {
      entering.find_or_insert(ids[i], static_cast<std::uint32_t>(i));
    }
  }

  static constexpr std::uint64_t kMaxStamp = std::numeric_limits<std::uint32_t>::max();

  std::vector<std::uint32_t> slots_;
  std::uint64_t capacity_ = 0;
  int shift_ = 63;
  std::uint32_t base_ = 1;
};

}  // namespace penstock
