// The second half of a hop by itself: names nodes by their place in a list that grows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "node_table.hpp"
#include "spans.hpp"

namespace penstock {

class PlaceList {
 public:
  std::int64_t size() const { return size_; }
  const std::int64_t* data() const { return nodes_.data(); }

  // The first place of a node, or -1.
  std::int64_t find(std::int64_t node) const { return table_.find(node); }

  // Empties the list and keeps its memory.
  void clear() {
    table_.clear(size_);
    size_ = 0;
  }

  // Appends seeds: each has a place of its own, also when it stands twice.
  void add_seeds(Strided<std::int64_t> seeds) {
    make_room(seeds.size);
    for (std::int64_t i = 0; i < seeds.size; ++i) {
      table_.find_or_insert(seeds[i], size_);
      nodes_[static_cast<std::size_t>(size_++)] = seeds[i];
    }
  }

  // Writes the place of every id, entering those not seen before in order.
  void relabel(Strided<std::int64_t> ids, std::int64_t* places) {
    constexpr std::int64_t kChunk = 128;
    for (std::int64_t begin = 0; begin < ids.size; begin += kChunk) {
      const std::int64_t end = std::min(begin + kChunk, ids.size);
      make_room(end - begin);
      for (std::int64_t i = begin; i < end; ++i) table_.prefetch(ids[i]);
      for (std::int64_t i = begin; i < end; ++i) {
        const auto [place, is_new] = table_.find_or_insert(ids[i], size_);
        nodes_[static_cast<std::size_t>(size_)] = ids[i];
        size_ += is_new;
        places[i] = place;
      }
    }
  }

 private:
  // One place more than asked for: an id that is not new is written at the end, too.
  void make_room(std::int64_t more) {
    const auto wanted = static_cast<std::size_t>(size_ + more + 1);
    if (nodes_.size() < wanted) nodes_.resize(std::max(wanted, 2 * nodes_.size()));
    table_.reserve(more, nodes_.data(), size_);
  }

  NodeTable<std::int64_t> table_;
  std::vector<std::int64_t> nodes_;
  std::int64_t size_ = 0;
};

}  // namespace penstock
