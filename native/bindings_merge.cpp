// Putting rows of several lists together, as Python sees it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "arrays.hpp"
#include "merge.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using Counts = nb::ndarray<nb::numpy, const std::int32_t, nb::ndim<1>, nb::c_contig>;
using CountOutput = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<1>, nb::c_contig>;
using Positions = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig>;
using Entries = nb::ndarray<nb::numpy, nb::ro, nb::ndim<1>, nb::c_contig>;
using EntryOutput = nb::ndarray<nb::numpy, nb::ndim<1>, nb::c_contig>;

// Called twice: without room for entries it only counts.
std::int64_t py_merge_rows(const std::vector<Positions>& positions,
                           const std::vector<Counts>& counts,
                           const std::vector<Entries>& neighbors,
                           const std::vector<Entries>& edge_ids, CountOutput out_counts,
                           EntryOutput out_neighbors, EntryOutput out_edge_ids) {
  const std::size_t size = positions.size();
  if (counts.size() != size || neighbors.size() != size || edge_ids.size() != size ||
      size >= kMostLists) {
    throw nb::value_error("lists must be of one length, and fewer than 65535");
  }
  return with_index_type(out_neighbors.dtype(), [&]<class Index>(Index*) {
    const nb::dlpack::dtype dtype = nb::dtype<Index>();
    if (out_edge_ids.dtype() != dtype) throw nb::type_error("entries must be of one type");
    std::vector<RowList<Index>> lists;
    std::vector<Extent> read;
    for (std::size_t k = 0; k < size; ++k) {
      if (neighbors[k].dtype() != dtype || edge_ids[k].dtype() != dtype) {
        throw nb::type_error("entries must be of one type");
      }
      if (positions[k].shape(0) != counts[k].shape(0) ||
          neighbors[k].shape(0) != edge_ids[k].shape(0)) {
        throw nb::value_error("arrays of a list must be of one length");
      }
      check_aligned(positions[k]);
      check_aligned(counts[k]);
      check_aligned(neighbors[k]);
      check_aligned(edge_ids[k]);
      for (const Extent e : {extent(positions[k]), extent(counts[k]), extent(neighbors[k]),
                             extent(edge_ids[k])}) {
        read.push_back(e);
      }
      lists.push_back({positions[k].data(), counts[k].data(),
                       static_cast<const Index*>(neighbors[k].data()),
                       static_cast<const Index*>(edge_ids[k].data()),
                       static_cast<std::int64_t>(counts[k].shape(0)),
                       static_cast<std::int64_t>(neighbors[k].shape(0))});
    }
    check_aligned(out_counts);
    check_aligned(out_neighbors);
    check_aligned(out_edge_ids);
    check_apart({extent(out_counts), extent(out_neighbors), extent(out_edge_ids)}, read);
    std::int32_t* const count = out_counts.data();
    auto* const to = static_cast<Index*>(out_neighbors.data());
    auto* const ids = static_cast<Index*>(out_edge_ids.data());
    const auto num_nodes = static_cast<std::int64_t>(out_counts.shape(0));
    const auto room = static_cast<std::int64_t>(out_neighbors.shape(0));
    const bool same = out_edge_ids.shape(0) == out_neighbors.shape(0);
    nb::gil_scoped_release unlocked;
    const std::int64_t total = merge_counts(lists, count, num_nodes);
    if (total >= 0 && total == room && same) merge_entries(lists, num_nodes, to, ids);
    return total;
  });
}

}  // namespace

void bind_merge(nb::module_& m) {
  m.def("merge_rows", &py_merge_rows, "positions"_a.noconvert(), "counts"_a.noconvert(),
        "neighbors"_a.noconvert(), "edge_ids"_a.noconvert(), "out_counts"_a.noconvert(),
        "out_neighbors"_a.noconvert(), "out_edge_ids"_a.noconvert());
}

}  // namespace penstock
