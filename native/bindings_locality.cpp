// The face of what assigns nodes to parts by their neighbours.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "python.hpp"
#include "streaming.hpp"
#include "undirected.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using Parts = nb::ndarray<nb::numpy, nb::ndim<1>, nb::c_contig>;
using GivenParts = nb::ndarray<nb::numpy, nb::ro, nb::ndim<1>, nb::c_contig>;
using VoteOutput = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<2>, nb::c_contig>;
using GivenVotes = nb::ndarray<nb::numpy, const std::int32_t, nb::ndim<2>, nb::c_contig>;
using SumOutput = nb::ndarray<nb::numpy, std::uint64_t, nb::shape<2>, nb::c_contig>;
using Numbers = std::vector<std::int64_t>;

// Where the nodes are that rows belong to, and that they lead to.
struct Places {
  std::int64_t row_base;
  std::int64_t base;
  std::int64_t size;
};

void check_rows(const Adjacency& adjacency) {
  if (adjacency.has_some_rows()) throw nb::value_error("the rows of all nodes are needed");
}

// Throws unless nodes from `base` on, `size` of them, are among `num_nodes`.
void check_place(std::int64_t base, std::int64_t size, std::int64_t num_nodes) {
  if (base < 0 || size < 0 || base > num_nodes || size > num_nodes - base) {
    throw nb::value_error("nodes are outside of the index space");
  }
}

void check_places(const Adjacency& adjacency, const Places& places, std::int64_t num_nodes) {
  check_rows(adjacency);
  check_place(places.row_base, adjacency.num_nodes(), num_nodes);
  check_place(places.base, places.size, num_nodes);
}

template <class Body>
auto with_part_type(nb::dlpack::dtype dtype, Body body) {
  if (dtype == nb::dtype<std::uint8_t>()) return body(static_cast<std::uint8_t*>(nullptr));
  if (dtype == nb::dtype<std::int16_t>()) return body(static_cast<std::int16_t*>(nullptr));
  if (dtype == nb::dtype<std::int32_t>()) return body(static_cast<std::int32_t*>(nullptr));
  throw nb::type_error("parts must be uint8, int16 or int32");
}

std::int64_t py_place_nodes(const std::vector<const Adjacency*>& adjacencies, const Numbers& bases,
                            const Numbers& counts, std::int64_t base, std::int64_t first,
                            std::int64_t end, std::optional<GivenVotes> votes,
                            std::int64_t capacity, IdOutput sizes, Parts parts) {
  const auto num_nodes = static_cast<std::int64_t>(parts.shape(0));
  const auto num_parts = static_cast<std::int64_t>(sizes.shape(0));
  if (bases.size() != adjacencies.size() || counts.size() != adjacencies.size()) {
    throw nb::value_error("a base and a count for each adjacency are needed");
  }
  if (num_parts < 1) throw nb::value_error("at least one part is needed");
  if (first < 0 || end < first) throw nb::value_error("first and end are out of order");
  check_place(base, end, num_nodes);
  std::vector<Extent> read;
  std::vector<RowsOfType<AnyAdjacency>> relations;
  for (std::size_t i = 0; i < adjacencies.size(); ++i) {
    const Adjacency& rows = *adjacencies[i];
    check_places(rows, {base, bases[i], counts[i]}, num_nodes);
    if (end > rows.num_nodes()) throw nb::value_error("there are fewer rows");
    for (const Extent& each : rows.extents()) read.push_back(each);
    relations.push_back({&rows.view(), bases[i], counts[i]});
  }
  const std::int32_t* more = nullptr;
  if (votes) {
    if (static_cast<std::int64_t>(votes->shape(0)) != end - first ||
        static_cast<std::int64_t>(votes->shape(1)) != num_parts) {
      throw nb::value_error("votes of each node for each part are needed");
    }
    check_aligned(*votes);
    read.push_back(extent(*votes));
    more = votes->data();
  }
  check_aligned(sizes);
  check_aligned(parts);
  check_apart({extent(sizes), extent(parts)}, read);
  return with_part_type(parts.dtype(), [&]<class Part>(Part*) {
    auto* const to = static_cast<Part*>(parts.data());
    nb::gil_scoped_release unlocked;
    return place_nodes(relations, base, first, end, more, capacity, num_parts, sizes.data(), to);
  });
}

bool py_count_votes(const Adjacency& adjacency, std::int64_t row_base, std::int64_t base,
                    std::int64_t size, std::int64_t first, std::int64_t end,
                    const GivenParts& parts, VoteOutput votes) {
  check_places(adjacency, {row_base, base, size}, static_cast<std::int64_t>(parts.shape(0)));
  if (first < 0 || end < first || end > size) throw nb::value_error("first and end are out of order");
  if (static_cast<std::int64_t>(votes.shape(0)) != end - first || votes.shape(1) < 1) {
    throw nb::value_error("votes of each node for each part are needed");
  }
  check_aligned(parts);
  check_aligned(votes);
  std::vector<Extent> read = adjacency.extents();
  read.push_back(extent(parts));
  check_apart({extent(votes)}, read);
  const auto num_parts = static_cast<std::int64_t>(votes.shape(1));
  return with_part_type(parts.dtype(), [&]<class Part>(Part*) {
    const auto* const from = static_cast<const Part*>(parts.data());
    nb::gil_scoped_release unlocked;
    return std::visit(
        [&](const auto& view) {
          return count_votes(view, row_base, base, size, first, end, from, num_parts, votes.data());
        },
        adjacency.view());
  });
}

bool py_add_both_directions(const Adjacency& adjacency, std::int64_t row_base, std::int64_t base,
                            std::int64_t size, SumOutput sums) {
  check_places(adjacency, {row_base, base, size}, INT64_MAX);
  check_aligned(sums);
  check_apart({extent(sums)}, adjacency.extents());
  std::uint64_t* const out = sums.data();
  nb::gil_scoped_release unlocked;
  return std::visit(
      [&](const auto& view) { return add_both_directions(view, row_base, base, size, out); },
      adjacency.view());
}

bool py_count_ends(const Adjacency& adjacency, std::int64_t row_base, std::int64_t base,
                   std::int64_t size, bool reversed, IdOutput counts) {
  check_places(adjacency, {row_base, base, size}, static_cast<std::int64_t>(counts.shape(0)));
  check_aligned(counts);
  check_apart({extent(counts)}, adjacency.extents());
  std::int64_t* const out = counts.data();
  nb::gil_scoped_release unlocked;
  return std::visit(
      [&](const auto& view) { return count_ends(view, row_base, base, size, reversed, out); },
      adjacency.view());
}

bool py_place_ends(const Adjacency& adjacency, std::int64_t row_base, std::int64_t base,
                   std::int64_t size, bool reversed, IdOutput cursors, Output ends) {
  check_places(adjacency, {row_base, base, size}, static_cast<std::int64_t>(cursors.shape(0)));
  if (ends.ndim() != 1) throw nb::value_error("ends must have one dimension");
  check_aligned(cursors);
  check_aligned(ends);
  check_apart({extent(cursors), extent(ends)}, adjacency.extents());
  const auto room = static_cast<std::int64_t>(ends.shape(0));
  std::int64_t* const at = cursors.data();
  void* const into = ends.data();
  return with_index_type(ends.dtype(), [&]<class Index>(Index*) {
    nb::gil_scoped_release unlocked;
    return std::visit(
        [&](const auto& view) {
          return place_ends(view, row_base, base, size, reversed, at, room,
                            static_cast<Index*>(into));
        },
        adjacency.view());
  });
}

std::int64_t py_merge_ends(IdOutput indptr, Output ends, Output weights) {
  if (indptr.shape(0) < 1 || ends.ndim() != 1 || weights.ndim() != 1) {
    throw nb::value_error("indptr must have at least one entry, and ends one dimension");
  }
  if (ends.dtype() != weights.dtype() || ends.shape(0) != weights.shape(0)) {
    throw nb::value_error("a weight of the same type for each end is needed");
  }
  check_aligned(indptr);
  check_aligned(ends);
  check_aligned(weights);
  check_apart({extent(indptr), extent(ends), extent(weights)}, {});
  const auto num_nodes = static_cast<std::int64_t>(indptr.shape(0)) - 1;
  const auto room = static_cast<std::int64_t>(ends.shape(0));
  std::int64_t* const starts = indptr.data();
  void* const into = ends.data();
  void* const weigh = weights.data();
  return with_index_type(ends.dtype(), [&]<class Index>(Index*) {
    nb::gil_scoped_release unlocked;
    return merge_ends(starts, num_nodes, room, static_cast<Index*>(into),
                      static_cast<Index*>(weigh));
  });
}

}  // namespace

void bind_locality(nb::module_& m) {
  m.def("place_nodes", &py_place_nodes, "adjacencies"_a, "bases"_a, "counts"_a, "base"_a, "first"_a,
        "end"_a, "votes"_a.noconvert().none(), "capacity"_a, "sizes"_a.noconvert(),
        "parts"_a.noconvert());
  m.def("count_votes", &py_count_votes, "adjacency"_a, "row_base"_a, "base"_a, "size"_a, "first"_a,
        "end"_a, "parts"_a.noconvert(), "votes"_a.noconvert());
  m.def("add_both_directions", &py_add_both_directions, "adjacency"_a, "row_base"_a, "base"_a,
        "size"_a, "sums"_a.noconvert());
  m.def("count_ends", &py_count_ends, "adjacency"_a, "row_base"_a, "base"_a, "size"_a, "reversed"_a,
        "counts"_a.noconvert());
  m.def("place_ends", &py_place_ends, "adjacency"_a, "row_base"_a, "base"_a, "size"_a, "reversed"_a,
        "cursors"_a.noconvert(), "ends"_a.noconvert());
  m.def("merge_ends", &py_merge_ends, "indptr"_a.noconvert(), "ends"_a.noconvert(),
        "weights"_a.noconvert());
}

}  // namespace penstock
