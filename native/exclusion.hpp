// Edges that a batch must not show, because it is to predict them: given by their ends, and taken out
// of the rows that have them. What is left of such a row is drawn from as if it were the row.
//
// Rows that lose edges are few, or belong to the first hop, which is the smallest: they are chosen for
// one by one, and all others as if there were no exclusion.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "rng.hpp"

namespace penstock {

// An edge of a relation, by the node that is expanded and the neighbour that is not to be found;
// `tree` is where, or 0 where there are no trees.
struct ExcludedPair {
  std::int64_t node;
  std::int64_t neighbor;
  std::int64_t tree;
};

// The pairs of one relation in one batch. A row is read once, when its node is first expanded,
// however many trees the node is in.
class Exclusion {
 public:
  void assign(std::vector<ExcludedPair> pairs, bool by_tree) {
    pairs_ = std::move(pairs);
    by_tree_ = by_tree;
    std::sort(pairs_.begin(), pairs_.end(), [](const ExcludedPair& a, const ExcludedPair& b) {
      return std::tie(a.node, a.tree, a.neighbor) < std::tie(b.node, b.tree, b.neighbor);
    });
    groups_.clear();
    for (std::size_t at = 0; at < pairs_.size(); ++at) {
      if (at == 0 || pairs_[at].node != pairs_[at - 1].node) groups_.push_back({at, at, {}, false});
      groups_.back().end = at + 1;
    }
    index();
  }

  void clear() { assign({}, false); }
  bool empty() const { return pairs_.empty(); }

  // Appends the positions in [begin, end) that are taken out of the row of a node in a tree, rising.
  template <class Adjacency>
  void take_out(const Adjacency& adjacency, std::int64_t node, std::int64_t tree,
                std::int64_t begin, std::int64_t end, std::vector<std::int64_t>& places) {
    if (pairs_.empty()) return;
    Group* const group = find(node);
    if (group == nullptr) return;
    if (!group->is_read) read(adjacency, begin, end, *group);
    if (by_tree_) {
      take_out_of_tree(*group, tree, places);
    } else {
      for (const auto& [neighbor, at] : group->places) places.push_back(at);
    }
  }

 private:
  // The pairs of one node, and where its row has their neighbours.
  struct Group {
    std::size_t begin;
    std::size_t end;
    // Neighbour and position: by position, or sorted if there are trees.
    std::vector<std::pair<std::int64_t, std::int64_t>> places;
    bool is_read;
  };

  static constexpr std::int64_t kFew = 8;  // compared one by one
  static constexpr int kWordBits = 6;      // of a place among the bits of a word

  void index() {
    slots_.assign(std::bit_ceil(2 * groups_.size() + 1), 0);
    shift_ = 64 - std::countr_zero(slots_.size());
    marks_.assign(std::bit_ceil(groups_.size() / 2 + 1), 0);
    mark_shift_ = 64 - kWordBits - std::countr_zero(marks_.size());
    for (std::size_t number = 0; number < groups_.size(); ++number) {
      const std::int64_t node = pairs_[groups_[number].begin].node;
      marks_[mark(node) >> kWordBits] |= std::uint64_t{1} << (mark(node) & 63);
      std::size_t at = slot(node);
      while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = number + 1;
    }
  }

  std::size_t slot(std::int64_t node) const {
    const std::uint64_t hash = static_cast<std::uint64_t>(node) * kGamma;
    return shift_ == 64 ? 0 : static_cast<std::size_t>(hash >> shift_);
  }

  std::size_t mark(std::int64_t node) const {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(node) * kGamma) >> mark_shift_);
  }

  // Most nodes that are expanded have no pairs, which the marks tell from memory that stays close.
  Group* find(std::int64_t node) {
    if ((marks_[mark(node) >> kWordBits] >> (mark(node) & 63) & 1) == 0) return nullptr;
    for (std::size_t at = slot(node); slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
      Group& group = groups_[slots_[at] - 1];
      if (pairs_[group.begin].node == node) return &group;
    }
    return nullptr;
  }

  // Looks up what a tree excludes, and nothing of other trees: a node may be in all of them, and
  // each may exclude an edge of its row.
  void take_out_of_tree(const Group& group, std::int64_t tree, std::vector<std::int64_t>& places) {
    const auto end = pairs_.begin() + static_cast<std::ptrdiff_t>(group.end);
    auto pair = std::lower_bound(pairs_.begin() + static_cast<std::ptrdiff_t>(group.begin), end, tree,
                                 [](const ExcludedPair& a, std::int64_t b) { return a.tree < b; });
    const std::size_t before = places.size();
    for (const ExcludedPair* last = nullptr; pair != end && pair->tree == tree; last = &*pair++) {
      if (last != nullptr && last->neighbor == pair->neighbor) continue;
      constexpr std::int64_t kFirst = std::numeric_limits<std::int64_t>::min();
      auto at = std::lower_bound(group.places.begin(), group.places.end(),
                                 std::pair(pair->neighbor, kFirst));
      for (; at != group.places.end() && at->first == pair->neighbor; ++at) {
        places.push_back(at->second);
      }
    }
    std::sort(places.begin() + static_cast<std::ptrdiff_t>(before), places.end());
  }

  template <class Adjacency>
  void read(const Adjacency& adjacency, std::int64_t begin, std::int64_t end, Group& group) {
    neighbors_.clear();
    for (std::size_t at = group.begin; at < group.end; ++at) {
      neighbors_.push_back(pairs_[at].neighbor);
    }
    if (by_tree_) std::sort(neighbors_.begin(), neighbors_.end());
    neighbors_.erase(std::unique(neighbors_.begin(), neighbors_.end()), neighbors_.end());
    const bool few = static_cast<std::int64_t>(neighbors_.size()) <= kFew;
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t neighbor = adjacency.neighbor(at);
      bool is_excluded = false;
      if (few) {
        for (const std::int64_t other : neighbors_) is_excluded |= other == neighbor;
      } else {
        is_excluded = std::binary_search(neighbors_.begin(), neighbors_.end(), neighbor);
      }
      if (is_excluded) group.places.emplace_back(neighbor, at);
    }
    if (by_tree_) std::sort(group.places.begin(), group.places.end());
    group.is_read = true;
  }

  std::vector<ExcludedPair> pairs_;  // sorted by node, tree and neighbour
  bool by_tree_ = false;
  std::vector<Group> groups_;
  std::vector<std::size_t> slots_;       // by hash of the node: one more than its group, or 0
  std::vector<std::int64_t> neighbors_;  // of the row that is being read
  int shift_ = 64;
  std::vector<std::uint64_t> marks_;  // a bit for each hash, set where a node may have pairs
  int mark_shift_ = 58;
};

// A row that lost some of its edges: those at `cut`, positions that rise.
struct RowLeft {
  std::int64_t i;  // in its block
  std::int64_t begin;
  std::int64_t degree;
  std::vector<std::int64_t> cut;

  std::int64_t size() const { return degree - static_cast<std::int64_t>(cut.size()); }

  // How many edges are left among the first `count` of the row.
  std::int64_t among_first(std::int64_t count) const {
    const auto before = std::lower_bound(cut.begin(), cut.end(), begin + count) - cut.begin();
    return count - static_cast<std::int64_t>(before);
  }

  // The position of the k-th edge that is left: `k` and as many as are cut before it.
  std::int64_t position(std::int64_t k) const {
    std::int64_t low = 0, high = static_cast<std::int64_t>(cut.size());
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (cut[static_cast<std::size_t>(middle)] - begin - middle <= k) low = middle + 1;
      else high = middle;
    }
    return begin + k + low;
  }
};

}  // namespace penstock
