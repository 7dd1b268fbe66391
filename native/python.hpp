// What several parts of the module share of its face: adjacencies that Python made, turns, outputs.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <atomic>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "khop.hpp"

namespace penstock {

inline bool is_paired(std::size_t ndim, std::int64_t width) {
  if (ndim == 1) return false;
  if (ndim == 2 && width == 2) return true;
  throw nb::value_error("adjacency must have shape [E] or [E, 2]");
}

// Rows of neighbours that keep the arrays they point into alive.
class Adjacency {
 public:
  Adjacency(nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig> indptr,
            nb::ndarray<nb::numpy, nb::ro, nb::c_contig> entries)
      : indptr_(std::move(indptr)), entries_(std::move(entries)) {
    if (indptr_.shape(0) < 1) throw nb::value_error("indptr must have at least one entry");
    check_aligned(indptr_);
    check_aligned(entries_);
    const bool paired = is_paired(entries_.ndim(), entries_.ndim() == 2 ? entries_.shape(1) : 0);
    with_index_type(entries_.dtype(), [&]<class Index>(Index*) {
      if (paired) view_ = make<Paired<Index>>();
      else view_ = make<Bare<Index>>();
    });
  }

  std::int64_t num_nodes() const { return static_cast<std::int64_t>(indptr_.shape(0)) - 1; }
  std::int64_t num_edges() const { return static_cast<std::int64_t>(entries_.shape(0)); }
  const AnyAdjacency& view() const { return view_; }
  std::vector<Extent> extents() const { return {extent(indptr_), extent(entries_)}; }

 private:
  template <class View>
  AnyAdjacency make() const {
    using Index = typename View::Id;
    return View{indptr_.data(), static_cast<const Index*>(entries_.data()), num_nodes(),
                num_edges()};
  }

  nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig> indptr_;
  nb::ndarray<nb::numpy, nb::ro, nb::c_contig> entries_;
  AnyAdjacency view_;
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

inline Column column(const IdOutput& out) {
  check_aligned(out);
  return Column(out.data(), static_cast<std::int64_t>(out.shape(0)));
}

}  // namespace penstock
