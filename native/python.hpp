// What several parts of the module share of its face: adjacencies that Python made, turns, outputs.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "fetched.hpp"
#include "khop.hpp"
#include "rows.hpp"

namespace penstock {

inline bool is_paired(std::size_t ndim, std::int64_t width) {
  if (ndim == 1) return false;
  if (ndim == 2 && width == 2) return true;
  throw nb::value_error("adjacency must have shape [E] or [E, 2]");
}

// Fetched rows, as Python and the adjacencies over them share them.
struct SharedRows {
  explicit SharedRows(std::int64_t num_nodes) : rows(num_nodes), some{nullptr, &rows, 0} {}

  FetchedRows rows;
  SomeRows some;
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
};

using MemberWords = nb::ndarray<nb::numpy, const std::uint64_t, nb::shape<-1, 2>, nb::c_contig>;

// Rows of neighbours that keep the arrays they point into alive.
class Adjacency {
 public:
  // With `members`, of `size` nodes in all, only they have rows.
  Adjacency(nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig> indptr,
            nb::ndarray<nb::numpy, nb::ro, nb::c_contig> entries,
            std::optional<MemberWords> members, std::int64_t size)
      : indptr_(std::move(indptr)), entries_(std::move(entries)), members_(std::move(members)) {
    if (indptr_.shape(0) < 1) throw nb::value_error("indptr must have at least one entry");
    check_aligned(indptr_);
    check_aligned(entries_);
    const bool paired = is_paired(entries_.ndim(), entries_.ndim() == 2 ? entries_.shape(1) : 0);
    const auto num_rows = static_cast<std::int64_t>(indptr_.shape(0)) - 1;
    num_nodes_ = members_ ? size : num_rows;
    num_edges_ = static_cast<std::int64_t>(entries_.shape(0));
    if (members_) some_ = some_of(*members_, size, num_rows);
    with_index_type(entries_.dtype(), [&]<class Index>(Index*) {
      if (paired) view_ = make<Paired<Index>>();
      else view_ = make<Bare<Index>>();
    });
  }

  // The rows that were fetched so far, or their neighbours alone, rising within each row.
  Adjacency(std::shared_ptr<SharedRows> fetched, bool sorted)
      : fetched_(std::move(fetched)), is_sorted_(sorted) {
    num_nodes_ = fetched_->rows.num_nodes();
  }

  std::int64_t num_nodes() const { return num_nodes_; }
  std::int64_t num_edges() const { return fetched_ ? fetched_->rows.num_edges() : num_edges_; }
  bool has_some_rows() const { return fetched_ != nullptr || some_ != nullptr; }
  SharedRows* fetched() const { return fetched_.get(); }

  // Fetched rows move when others are added: of them a view is good for one run of a kernel, which
  // has them to itself (`RowsInUse`).
  const AnyAdjacency& view() const {
    if (fetched_) {
      FetchedRows& rows = fetched_->rows;
      fetched_->some.num_rows = rows.num_rows();
      if (is_sorted_) view_ = fetched_view<Bare<std::int64_t>>(rows.sorted());
      else view_ = fetched_view<Paired<std::int64_t>>(rows.entries());
    }
    return view_;
  }

  std::vector<Extent> extents() const {
    if (fetched_) return {};  // nobody else can write there
    std::vector<Extent> all{extent(indptr_), extent(entries_)};
    if (members_) all.push_back(extent(*members_));
    return all;
  }

 private:
  static std::shared_ptr<const SomeRows> some_of(const MemberWords& members, std::int64_t size,
                                                 std::int64_t num_rows) {
    static_assert(sizeof(MemberWord) == 2 * sizeof(std::uint64_t));
    if (size < 0 || members.shape(0) != static_cast<std::size_t>((size + 63) / 64)) {
      throw nb::value_error("members need a word for every 64 nodes");
    }
    check_aligned(members);
    const auto* const words = reinterpret_cast<const MemberWord*>(members.data());
    return std::make_shared<const SomeRows>(SomeRows{words, nullptr, num_rows});
  }

  template <class View>
  AnyAdjacency make() const {
    using Index = typename View::Id;
    return View{indptr_.data(), static_cast<const Index*>(entries_.data()), num_nodes_, num_edges_,
                some_.get()};
  }

  template <class View>
  AnyAdjacency fetched_view(const std::int64_t* entries) const {
    return View{fetched_->rows.indptr(), entries, num_nodes_, fetched_->rows.num_edges(),
                &fetched_->some};
  }

  nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig> indptr_;
  nb::ndarray<nb::numpy, nb::ro, nb::c_contig> entries_;
  std::optional<MemberWords> members_;
  std::shared_ptr<const SomeRows> some_;
  std::shared_ptr<SharedRows> fetched_;
  bool is_sorted_ = false;
  std::int64_t num_nodes_ = 0;
  std::int64_t num_edges_ = 0;
  mutable AnyAdjacency view_;
};

// One thread at a time: a second one is told so instead of corrupting the tables.
class Turn {
 public:
  explicit Turn(std::atomic_flag& busy) : busy_(busy) {
    if (busy_.test_and_set()) {
      throw std::runtime_error("this object is in use by another thread; give each its own");
    }
  }
  ~Turn() { busy_.clear(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic_flag& busy_;
};

// Fetched rows that a kernel reads, and notes what it misses of, until it is done.
class RowsInUse {
 public:
  RowsInUse() = default;
  explicit RowsInUse(const Adjacency& adjacency) { add(adjacency); }
  explicit RowsInUse(const std::vector<Adjacency>& adjacencies) {
    for (const Adjacency& adjacency : adjacencies) add(adjacency);
  }
  RowsInUse(const RowsInUse&) = delete;
  RowsInUse& operator=(const RowsInUse&) = delete;

  void add(const Adjacency& adjacency) {
    SharedRows* const rows = adjacency.fetched();
    if (rows == nullptr || std::find(used_.begin(), used_.end(), rows) != used_.end()) return;
    used_.push_back(rows);
    turns_.push_back(std::make_unique<Turn>(rows->busy));
  }

 private:
  std::vector<SharedRows*> used_;
  std::vector<std::unique_ptr<Turn>> turns_;
};

// Some kernels go through all rows there are.
inline void check_at_hand(const Adjacency& adjacency) {
  if (adjacency.fetched() != nullptr) {
    throw nb::value_error("this needs all rows; those that are fetched are not all there are");
  }
}

// Hands a list over to Python, which frees it.
using Handed = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>, nb::c_contig>;

inline Handed handed_over(std::vector<std::int64_t>&& list) {
  list.reserve(1);  // an address even where there is nothing
  auto* const kept = new std::vector<std::int64_t>(std::move(list));
  nb::capsule owner(kept, [](void* it) noexcept {
    delete static_cast<std::vector<std::int64_t>*>(it);
  });
  return Handed(kept->data(), {kept->size()}, owner);
}

inline Column column(const IdOutput& out) {
  check_aligned(out);
  return Column(out.data(), static_cast<std::int64_t>(out.shape(0)));
}

}  // namespace penstock
