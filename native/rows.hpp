// The neighbours of the nodes of one edge type, in memory that somebody else owns.
#pragma once

#include <cstdint>

#include "fetched.hpp"
#include "members.hpp"
#include "prefetch.hpp"

namespace penstock {

// Where the row of a node begins and ends. A row that is elsewhere is empty, and missing.
struct RowBounds {
  std::int64_t begin;
  std::int64_t end;
  bool is_missing = false;
};

// Rows of some nodes only: those of members, or those fetched so far, where every row that is read
// and not there is noted.
struct SomeRows {
  static_assert(MemberWord::kNoRow == FetchedRows::kNoRow);

  const MemberWord* members = nullptr;
  FetchedRows* fetched = nullptr;  // instead of members
  std::int64_t num_rows = 0;

  // The row of a node, kNoRow where it has none, or another number where ranks are damaged.
  std::int64_t find(std::int64_t node) const {
    if (fetched != nullptr) return fetched->find(node);
    return members[node / MemberWord::kBits].row(node);
  }

  // Where a row that was found begins and ends.
  RowBounds bounds(const std::int64_t* indptr, std::int64_t row) const {
    if (row == MemberWord::kNoRow) return {0, 0, fetched != nullptr};
    if (row < 0 || row >= num_rows) return {1, 0};  // damaged: no row begins after its end
    return {indptr[row], indptr[row + 1]};
  }

  // Kept out of loops that nearly always read the rows of whole graphs.
  [[gnu::noinline]] RowBounds row(const std::int64_t* indptr, std::int64_t node) const {
    return bounds(indptr, find(node));
  }

  // Hints: that a node is to be found, and that the bounds of a row are wanted.
  void prefetch(std::int64_t node) const {
    if (fetched != nullptr) fetched->prefetch(node);
    else prefetch_once(members + node / MemberWord::kBits);
  }
  void prefetch_offsets(const std::int64_t* indptr, std::int64_t row) const {
    if (row >= 0 && row < num_rows) prefetch_once(indptr + row);
  }
};

// Where the rows of nodes are. Nearly always every node has one, and `some` is null.
struct RowOffsets {
  const std::int64_t* indptr;
  const SomeRows* some = nullptr;

  RowBounds row(std::int64_t node) const {
    if (some == nullptr) [[likely]] return {indptr[node], indptr[node + 1]};
    return some->row(indptr, node);
  }

  // Hints that the row of a node is wanted: later, and soon.
  void prefetch(std::int64_t node) const {
    if (some == nullptr) [[likely]] prefetch_once(indptr + node);
    else some->prefetch(node);
  }
  void prefetch_soon(std::int64_t node) const {
    if (some == nullptr || notes_what_is_read()) [[likely]] return;
    some->prefetch_offsets(indptr, some->find(node));
  }

  // Whether a row that is read is one that will be fetched.
  bool notes_what_is_read() const { return some != nullptr && some->fetched != nullptr; }
};

// `Paired` holds (neighbour, edge id) side by side, so that a sampled edge costs one cache line
// instead of two; `Bare` holds neighbours only, and the edge id is the position.
template <class Index>
struct Bare {
  using Id = Index;
  const std::int64_t* indptr;
  const Index* entries;
  std::int64_t num_nodes;
  std::int64_t num_edges;
  const SomeRows* some = nullptr;  // null: every node has a row

  RowOffsets offsets() const { return {indptr, some}; }
  RowBounds row(std::int64_t node) const { return offsets().row(node); }
  std::int64_t num_rows() const { return some == nullptr ? num_nodes : some->num_rows; }
  const void* entry(std::int64_t at) const { return entries + at; }
  std::int64_t neighbor(std::int64_t at) const { return entries[at]; }
  std::int64_t edge_id(std::int64_t at) const { return at; }
};

template <class Index>
struct Paired {
  using Id = Index;
  const std::int64_t* indptr;
  const Index* entries;
  std::int64_t num_nodes;
  std::int64_t num_edges;
  const SomeRows* some = nullptr;  // null: every node has a row

  RowOffsets offsets() const { return {indptr, some}; }
  RowBounds row(std::int64_t node) const { return offsets().row(node); }
  std::int64_t num_rows() const { return some == nullptr ? num_nodes : some->num_rows; }
  const void* entry(std::int64_t at) const { return entries + 2 * at; }
  std::int64_t neighbor(std::int64_t at) const { return entries[2 * at]; }
  std::int64_t edge_id(std::int64_t at) const { return entries[2 * at + 1]; }
};

}  // namespace penstock
