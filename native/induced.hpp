// Edges among nodes that are listed already: all there are between them, or those given, both ways.
//
// Every edge of every listed node is looked at once, and its other end looked up among those listed.
// Looking up is what takes the time, so entries are gathered by the chunk, whatever rows they are
// from, and their slots sent for before the first of them is needed.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "neighbor.hpp"
#include "prefetch.hpp"
#include "rng.hpp"
#include "spans.hpp"

namespace penstock {

// Nodes of one type in the order of their places; with `trees`, a node is another one in each tree.
struct Listed {
  const std::int64_t* nodes = nullptr;
  const std::int64_t* trees = nullptr;
  std::int64_t size = 0;
};

// Where each node of a list stands first. The table holds places only, each with some bits of its
// node's hash, so that hardly ever a node is compared in vain.
class ListedPlaces {
 public:
  // True when a node is listed twice.
  bool fill(const Listed& list) {
    if (list.size >= kMostPlaces) throw std::length_error("too many nodes are listed");
    list_ = list;
    const auto wanted = static_cast<std::uint64_t>(list.size) * kSlotsPerNode;
    const std::uint64_t capacity = std::bit_ceil(std::max(wanted, kMinSlots));
    slots_.assign(static_cast<std::size_t>(capacity), 0);
    mask_ = capacity - 1;
    shift_ = 64 - std::countr_zero(capacity);
    bool repeats = false;
    for (std::int64_t place = 0; place < list.size; ++place) repeats |= !enter(place);
    return repeats;
  }

  // What tells the trees apart; 0 where there are none.
  std::uint64_t salt(std::int64_t place) const {
    return list_.trees == nullptr ? 0 : mix(static_cast<std::uint64_t>(list_.trees[place]) + 1);
  }

  static std::uint64_t hash(std::int64_t node, std::uint64_t salt) {
    return (static_cast<std::uint64_t>(node) ^ salt) * kGamma;
  }

  void prefetch(std::uint64_t hash) const { prefetch_write(&slots_[at(hash)]); }

  // The place of `node`, in `tree` where there are trees, or -1.
  std::int64_t find(std::int64_t node, std::int64_t tree, std::uint64_t hash) const {
    for (std::uint64_t at = this->at(hash);; at = (at + 1) & mask_) {
      const std::uint64_t slot = slots_[at];
      if (slot == 0) return -1;
      if (slot >> kPlaceBits != (hash & kTagMask)) continue;
      const auto place = static_cast<std::int64_t>(slot & kPlaceMask) - 1;
      const bool same_tree = list_.trees == nullptr || list_.trees[place] == tree;
      if (list_.nodes[place] == node && same_tree) return place;
    }
  }

 private:
  static constexpr int kPlaceBits = 40;
  static constexpr std::uint64_t kPlaceMask = (1ULL << kPlaceBits) - 1;
  static constexpr std::uint64_t kTagMask = (1ULL << (64 - kPlaceBits)) - 1;
  static constexpr std::int64_t kMostPlaces = static_cast<std::int64_t>(kPlaceMask);
  static constexpr std::uint64_t kSlotsPerNode = 2;
  static constexpr std::uint64_t kMinSlots = 64;

  std::uint64_t at(std::uint64_t hash) const { return hash >> shift_; }

  bool enter(std::int64_t place) {
    const std::int64_t node = list_.nodes[place];
    const std::int64_t tree = list_.trees == nullptr ? 0 : list_.trees[place];
    const std::uint64_t hash = this->hash(node, salt(place));
    if (find(node, tree, hash) >= 0) return false;
    std::uint64_t at = this->at(hash);
    while (slots_[at] != 0) at = (at + 1) & mask_;
    slots_[at] = (hash & kTagMask) << kPlaceBits | (static_cast<std::uint64_t>(place) + 1);
    return true;
  }

  Listed list_;
  std::vector<std::uint64_t> slots_;  // (hash, place + 1), or 0
  std::uint64_t mask_ = 0;
  int shift_ = 63;
};

// One edge type: the edges from listed nodes (`heads`) to listed nodes (those of `places`).
template <class Adjacency>
class Inducing {
 public:
  // `first` is the table of the heads where some stand twice, else null: only the first counts.
  Inducing(const Adjacency& adjacency, std::int64_t num_found, const Listed& heads,
           const ListedPlaces* first, const ListedPlaces& places, EdgeList& edges)
      : adjacency_(adjacency),
        num_found_(num_found),
        heads_(heads),
        first_(first),
        places_(places),
        edges_(edges) {}

  Outcome run() {
    for (std::int64_t place = 0; place < heads_.size; ++place) {
      send_ahead(place);
      const std::int64_t node = heads_.nodes[place];
      if (first_ != nullptr && !is_first(node, place)) continue;
      const auto [begin, end, is_missing] = adjacency_.row(node);
      if (!is_row(begin, end) || !gather(place, begin, end)) return Outcome::kDamaged;
    }
    look_up();
    return Outcome::kDone;
  }

 private:
  static constexpr std::int64_t kChunk = 128;
  static constexpr std::int64_t kRowsAhead = 8;  // how far ahead the first entry is fetched

  bool is_row(std::int64_t begin, std::int64_t end) const {
    return 0 <= begin && begin <= end && end <= adjacency_.num_edges;
  }

  bool is_first(std::int64_t node, std::int64_t place) const {
    const std::int64_t tree = heads_.trees == nullptr ? 0 : heads_.trees[place];
    return first_->find(node, tree, ListedPlaces::hash(node, first_->salt(place))) == place;
  }

  void send_ahead(std::int64_t place) const {
    if (place + kNodesAhead < heads_.size) {
      adjacency_.offsets().prefetch(heads_.nodes[place + kNodesAhead]);
      adjacency_.offsets().prefetch_soon(heads_.nodes[place + kNodesSoon]);
    }
    if (place + kRowsAhead < heads_.size) {
      const std::int64_t begin = adjacency_.row(heads_.nodes[place + kRowsAhead]).begin;
      if (0 <= begin && begin < adjacency_.num_edges) prefetch_once(adjacency_.entry(begin));
    }
  }

  bool gather(std::int64_t place, std::int64_t begin, std::int64_t end) {
    const std::int64_t tree = heads_.trees == nullptr ? 0 : heads_.trees[place];
    const std::uint64_t salt =
        heads_.trees == nullptr ? 0 : mix(static_cast<std::uint64_t>(tree) + 1);
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t stop = std::min(end, at + kChunk - size_);
      bool damaged = false;
      for (; at < stop; ++at, ++size_) {
        const std::int64_t neighbor = adjacency_.neighbor(at);
        damaged |= static_cast<std::uint64_t>(neighbor) >= static_cast<std::uint64_t>(num_found_);
        neighbor_[size_] = neighbor;
        edge_id_[size_] = adjacency_.edge_id(at);
        owner_[size_] = place;
        tree_[size_] = tree;
        hash_[size_] = ListedPlaces::hash(neighbor, salt);
        places_.prefetch(hash_[size_]);
      }
      if (damaged) return false;
      if (size_ == kChunk) look_up();
    }
    return true;
  }

  // Each is written at the end of the lists, whether it is listed or not; only the length tells.
  void look_up() {
    edges_.reserve(size_);
    std::int64_t* const row = edges_.row.data();
    std::int64_t* const col = edges_.col.data();
    std::int64_t* const id = edges_.edge_id.data();
    std::int64_t count = edges_.size;
    for (std::int64_t i = 0; i < size_; ++i) {
      const std::int64_t place = places_.find(neighbor_[i], tree_[i], hash_[i]);
      row[count] = place;
      col[count] = owner_[i];
      if (edges_.with_edge_ids) id[count] = edge_id_[i];
      count += place >= 0;
    }
    edges_.size = count;
    size_ = 0;
  }

  const Adjacency& adjacency_;
  const std::int64_t num_found_;
  const Listed heads_;
  const ListedPlaces* const first_;
  const ListedPlaces& places_;
  EdgeList& edges_;
  std::int64_t size_ = 0;
  std::int64_t neighbor_[kChunk];
  std::int64_t edge_id_[kChunk];
  std::int64_t owner_[kChunk];
  std::int64_t tree_[kChunk];
  std::uint64_t hash_[kChunk];
};

// An edge between two places of a batch.
struct PlacedEdge {
  std::int64_t row;
  std::int64_t col;
  std::int64_t id;
};

namespace detail {

// Stable, and linear: `key` is a place, and there are at most `bound` of them.
template <class Key>
void sort_by_place(const std::vector<PlacedEdge>& from, std::vector<PlacedEdge>& to,
                   std::int64_t bound, Key key) {
  std::vector<std::int64_t> next(static_cast<std::size_t>(bound) + 1, 0);
  for (const PlacedEdge& edge : from) ++next[static_cast<std::size_t>(key(edge)) + 1];
  for (std::size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  for (const PlacedEdge& edge : from) {
    to[static_cast<std::size_t>(next[static_cast<std::size_t>(key(edge))]++)] = edge;
  }
}

}  // namespace detail

// Sorts edges by (col, row), and keeps the first of those between the same two places.
inline void coalesce(std::vector<PlacedEdge>& edges) {
  std::int64_t rows = 0, cols = 0;
  for (const PlacedEdge& edge : edges) {
    rows = std::max(rows, edge.row);
    cols = std::max(cols, edge.col);
  }
  // Places are dense in a batch; counting those of other lists could take any amount of memory.
  const auto dense = static_cast<std::int64_t>(edges.size()) * 8 + 65536;
  if (rows < dense && cols < dense) {
    std::vector<PlacedEdge> aside(edges.size());
    detail::sort_by_place(edges, aside, rows + 1, [](const PlacedEdge& edge) { return edge.row; });
    detail::sort_by_place(aside, edges, cols + 1, [](const PlacedEdge& edge) { return edge.col; });
  } else {
    std::stable_sort(edges.begin(), edges.end(), [](const PlacedEdge& a, const PlacedEdge& b) {
      return std::pair(a.col, a.row) < std::pair(b.col, b.row);
    });
  }
  const auto same = [](const PlacedEdge& a, const PlacedEdge& b) {
    return a.row == b.row && a.col == b.col;
  };
  edges.erase(std::unique(edges.begin(), edges.end(), same), edges.end());
}

}  // namespace penstock
