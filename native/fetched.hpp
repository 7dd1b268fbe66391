// Rows of some nodes of a graph that is elsewhere. A kernel that reads the row of another node finds
// it empty, and that is noted: the row is fetched, and the kernel runs again.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "prefetch.hpp"
#include "rng.hpp"
#include "spans.hpp"

namespace penstock {

class FetchedRows {
 public:
  static constexpr std::int64_t kNoRow = -1;

  explicit FetchedRows(std::int64_t num_nodes) : num_nodes_(num_nodes) { clear(); }

  std::int64_t num_nodes() const { return num_nodes_; }
  std::int64_t num_rows() const { return static_cast<std::int64_t>(indptr_.size()) - 1; }
  std::int64_t num_edges() const { return indptr_.back(); }

  // Memory that is in its place until the next change.
  const std::int64_t* indptr() const { return indptr_.data(); }
  const std::int64_t* entries() const { return entries_.data(); }  // (neighbour, edge id)
  const std::int64_t* sorted() {                                   // neighbours, rising in each row
    sort();
    return sorted_.data();
  }

  // The row of a node, or kNoRow, which is noted.
  [[gnu::noinline]] std::int64_t find(std::int64_t node) {
    for (std::uint64_t at = home(node);; at = (at + 1) & mask_) {
      Slot& slot = slots_[at];
      if (slot.row == kVacant) break;
      if (slot.node != node) continue;
      if (slot.row >= 0) [[likely]] return slot.row;
      if (slot.row != noted()) note(node, slot);
      return kNoRow;
    }
    note(node, enter(node));
    return kNoRow;
  }

  void prefetch(std::int64_t node) const { prefetch_once(&slots_[home(node)]); }

  // Makes room for so many further edges.
  void reserve(std::int64_t edges) {
    entries_.reserve(entries_.size() + 2 * static_cast<std::size_t>(edges));
  }

  // Adds rows, one after the other. Nodes were checked to be in range, and counts to be those of the
  // edges. Returns the first position whose node has a row already, with nothing added, or -1.
  template <class Node, class Count, class Neighbor, class Edge>
  std::int64_t add(Strided<Node> nodes, Strided<Count> counts, Strided<Neighbor> neighbors,
                   Strided<Edge> edge_ids) {
    const std::int64_t first = num_rows();
    indptr_.reserve(indptr_.size() + static_cast<std::size_t>(nodes.size));
    entries_.reserve(entries_.size() + 2 * static_cast<std::size_t>(neighbors.size));
    // What the slots had, to be put back: some nodes may be noted as missing.
    std::vector<std::int64_t> before;
    before.reserve(static_cast<std::size_t>(nodes.size));
    for (std::int64_t i = 0; i < nodes.size; ++i) {
      Slot& slot = find_or_enter(nodes[i]);
      if (slot.row >= 0) {
        for (std::int64_t j = 0; j < i; ++j) {
          find_or_enter(nodes[j]).row = before[static_cast<std::size_t>(j)];
        }
        return i;
      }
      before.push_back(slot.row);
      slot.row = first + i;
    }
    for (std::int64_t i = 0; i < nodes.size; ++i) indptr_.push_back(indptr_.back() + counts[i]);
    for (std::int64_t at = 0; at < neighbors.size; ++at) {
      entries_.push_back(neighbors[at]);
      entries_.push_back(edge_ids[at]);
    }
    return -1;
  }

  // The nodes whose rows were read and are not here, each once, as they were read; forgets them.
  std::vector<std::int64_t> take_missing() {
    std::vector<std::int64_t> taken;
    for (const std::int64_t node : missing_) {
      if (find_or_enter(node).row < 0) taken.push_back(node);
    }
    missing_.clear();
    ++round_;
    return taken;
  }

  // Forgets everything, and gives its memory back.
  void clear() {
    for (auto* const list : {&indptr_, &entries_, &sorted_, &missing_}) {
      std::vector<std::int64_t>().swap(*list);
    }
    indptr_.push_back(0);
    num_sorted_ = 0;
    num_entered_ = 0;
    grow(kMinSlots);
  }

  std::int64_t num_bytes() const {
    const std::size_t numbers = indptr_.capacity() + entries_.capacity() + sorted_.capacity() +
                                missing_.capacity();
    return static_cast<std::int64_t>(numbers * sizeof(std::int64_t) +
                                     slots_.capacity() * sizeof(Slot));
  }

 private:
  // A node, and its row; or that it has none, noted in some round or never.
  struct Slot {
    std::int64_t node;
    std::int64_t row;
  };
  static constexpr std::int64_t kVacant = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kUnnoted = -1;
  static constexpr std::size_t kMinSlots = 64;

  std::int64_t noted() const { return -2 - round_; }
  std::uint64_t home(std::int64_t node) const {
    return (static_cast<std::uint64_t>(node) * kGamma) >> shift_;
  }

  void note(std::int64_t node, Slot& slot) {
    missing_.push_back(node);
    slot.row = noted();
  }

  Slot& find_or_enter(std::int64_t node) {
    for (std::uint64_t at = home(node);; at = (at + 1) & mask_) {
      if (slots_[at].row == kVacant) break;
      if (slots_[at].node == node) return slots_[at];
    }
    return enter(node);
  }

  // Enters a node that is not in yet.
  Slot& enter(std::int64_t node) {
    if (2 * (num_entered_ + 1) > slots_.size()) grow(2 * slots_.size());
    ++num_entered_;
    Slot& slot = slots_[vacancy(node)];
    slot = {node, kUnnoted};
    return slot;
  }

  std::uint64_t vacancy(std::int64_t node) const {
    std::uint64_t at = home(node);
    while (slots_[at].row != kVacant) at = (at + 1) & mask_;
    return at;
  }

  void grow(std::size_t size) {
    std::vector<Slot> before(size, Slot{0, kVacant});
    before.swap(slots_);
    mask_ = size - 1;
    shift_ = 64 - std::countr_zero(size);
    if (num_entered_ == 0) return;
    for (const Slot& slot : before) {
      if (slot.row != kVacant) slots_[vacancy(slot.node)] = slot;
    }
  }

  // Sorts the neighbours of the rows that came since.
  void sort() {
    sorted_.resize(static_cast<std::size_t>(num_edges()));
    for (std::int64_t row = num_sorted_; row < num_rows(); ++row) {
      const std::int64_t begin = indptr_[static_cast<std::size_t>(row)];
      const std::int64_t end = indptr_[static_cast<std::size_t>(row) + 1];
      for (std::int64_t at = begin; at < end; ++at) {
        sorted_[static_cast<std::size_t>(at)] = entries_[2 * static_cast<std::size_t>(at)];
      }
      std::sort(sorted_.begin() + begin, sorted_.begin() + end);
    }
    num_sorted_ = num_rows();
  }

  std::int64_t num_nodes_;
  std::vector<std::int64_t> indptr_;
  std::vector<std::int64_t> entries_;  // (neighbour, edge id)
  std::vector<std::int64_t> sorted_;   // neighbours, rising within each row
  std::int64_t num_sorted_ = 0;        // rows of which that is so
  std::vector<std::int64_t> missing_;
  std::int64_t round_ = 0;  // how often what was missing has been taken
  std::vector<Slot> slots_;
  std::size_t num_entered_ = 0;
  std::uint64_t mask_ = 0;
  int shift_ = 63;
};

}  // namespace penstock
