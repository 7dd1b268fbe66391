// The map from global node ids to positions in the batch.
//
// Open addressing with linear probing. A slot is live when its stamp is at least `base_`, so that
// starting the next batch is one addition instead of clearing megabytes. The nodes themselves are
// the caller's list: the table never stores more than it needs to find them, and is rebuilt from
// that list when it grows.
//
// Where sampling is disjoint, a node is known by its tree and its id, packed into one key.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "opaque.hpp"
#include "prefetch.hpp"

namespace penstock {

// Where a key belongs: anywhere in the table, by one multiplication.
class Scattered {
 public:
  static constexpr bool kTrees = false;

  void fit(int slot_bits) { shift_ = 64 - slot_bits; }
  std::uint64_t home(std::int64_t key) const {
    return (static_cast<std::uint64_t>(key) * 0x9E3779B97F4A7C15ULL) >> shift_;
  }
  // Where to look after `at`, having looked in `step` places.
  std::uint64_t after(std::uint64_t at, std::uint64_t, std::int64_t) const { return at + 1; }

 private:
  int shift_ = 63;
};

// Where the keys of trees belong: those of one tree near each other. A hop goes through its trees
// one after the other, so that what it touches of a table of many megabytes fits a cache.
//
// Trees need not be of one size: the few nearby places are tried first, and then those that the
// whole table is open to, or a large tree among small ones would fill its corner and crawl.
class ByTree {
 public:
  static constexpr bool kTrees = true;

  // False where two nodes of two trees could have the same key.
  bool arrange(std::int64_t num_nodes, std::int64_t num_trees) {
    node_bits_ = bits_below(num_nodes);
    tree_bits_ = bits_below(num_trees);
    fit(slot_bits_);
    return node_bits_ + tree_bits_ <= 63;
  }

  // How many bits keys have.
  int key_bits() const { return node_bits_ + tree_bits_; }

  void fit(int slot_bits) {
    slot_bits_ = slot_bits;
    stride_bits_ = std::max(slot_bits - tree_bits_, 0);
    near_shift_ = 64 - std::clamp(stride_bits_ + kOverlapBits, 1, std::max(slot_bits, 1));
  }

  std::int64_t key(std::int64_t tree, std::int64_t node) const {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(tree) << node_bits_ |
                                     static_cast<std::uint64_t>(node));
  }
  // May lie past the end of the table, which is a circle.
  std::uint64_t home(std::int64_t key) const {
    const auto word = static_cast<std::uint64_t>(key);
    return ((word >> node_bits_) << stride_bits_) + (word * 0x9E3779B97F4A7C15ULL >> near_shift_);
  }
  std::uint64_t after(std::uint64_t at, std::uint64_t step, std::int64_t key) const {
    if (step != kNear) [[likely]] return at + 1;
    const std::uint64_t word = static_cast<std::uint64_t>(key) * 0x9E3779B97F4A7C15ULL;
    return (word ^ word >> 32) * 0xBF58476D1CE4E5B9ULL >> (64 - slot_bits_);
  }

 private:
  static constexpr std::uint64_t kNear = 16;  // places tried nearby
  static constexpr int kOverlapBits = 4;      // neighbouring trees share room: sizes even out

  static int bits_below(std::int64_t count) {
    return count > 1 ? std::bit_width(static_cast<std::uint64_t>(count - 1)) : 0;
  }

  int node_bits_ = 0;
  int tree_bits_ = 0;
  int slot_bits_ = 0;
  int stride_bits_ = 0;
  int near_shift_ = 63;
};

template <class Id, class Layout = Scattered>
class NodeTable {
 public:
  static constexpr bool kTrees = Layout::kTrees;

  struct Found {
    std::int64_t local;
    bool is_new;
  };

  // Forgets all nodes, of which there were positions up to `num_nodes`.
  void clear(std::int64_t num_nodes) { base_ += static_cast<std::uint32_t>(num_nodes); }

  // For an empty table only: what is in it would not be found again.
  Layout& layout() { return layout_; }
  const Layout& layout() const { return layout_; }

  // Makes room for `more` further nodes; `nodes` are those already in, in order of position, with
  // repetitions (seeds given twice) allowed: a position is found only under its first occurrence.
  template <class Nodes>
  void reserve(std::int64_t more, const Nodes& nodes, std::int64_t num_nodes) {
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
    for (std::uint64_t step = 1;; ++step) {
      Slot& slot = slots_[at];
      const std::uint32_t stamp = slot.stamp;
      const std::uint32_t vacant = stamp < base_;
      const std::uint32_t same = slot.id == id;
      // Not to be looked into: compilers would branch on each of the two.
      if (opaque(vacant | same) != 0) [[likely]] {
        const std::uint32_t fresh = base_ + static_cast<std::uint32_t>(position);
        const std::uint32_t mine = stamp ^ ((stamp ^ fresh) & (0u - vacant));
        slot.id = id;
        slot.stamp = mine;
        return {static_cast<std::int64_t>(mine - base_), vacant != 0};
      }
      at = layout_.after(at, step, node) & mask_;
    }
  }

  // The position of `node`, or -1.
  std::int64_t find(std::int64_t node) const {
    if (slots_.empty()) return -1;
    std::uint64_t at = home(node);
    for (std::uint64_t step = 1;; ++step) {
      const Slot& slot = slots_[at];
      if (slot.stamp < base_) return -1;
      if (slot.id == static_cast<Id>(node)) return static_cast<std::int64_t>(slot.stamp - base_);
      at = layout_.after(at, step, node) & mask_;
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
    if constexpr (kTrees) return layout_.home(node) & mask_;
    else return layout_.home(node);
  }

  template <class Nodes>
  void rebuild(std::uint64_t wanted, const Nodes& nodes, std::int64_t num_nodes) {
    std::uint64_t capacity = std::bit_ceil(wanted * kSlotsPerNode);
    if (capacity < kMinSlots) capacity = kMinSlots;
    if (capacity < slots_.size()) capacity = slots_.size();
    slots_.assign(capacity, Slot{0, 0});
    mask_ = capacity - 1;
    layout_.fit(std::countr_zero(capacity));
    base_ = 1;
    for (std::int64_t i = 0; i < num_nodes; ++i) find_or_insert(nodes[i], i);
  }

  std::vector<Slot> slots_;
  std::uint64_t mask_ = 0;
  Layout layout_;
  std::uint32_t base_ = 1;
};

using TreeTable = NodeTable<std::int64_t, ByTree>;
using NarrowTreeTable = NodeTable<std::uint32_t, ByTree>;  // for keys of 32 bits: half the memory

}  // namespace penstock
