// Labels of anchors, as Python sees them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <variant>

#include "build.hpp"
#include "labels.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

// The number of labels, or -1 for a damaged topology.
std::int64_t py_count_first(const Adjacency& adjacency, const Ids& nodes, std::int64_t most,
                            IdOutput counts) {
  if (counts.shape(0) != nodes.shape(0)) throw nb::value_error("one count per node is needed");
  check_aligned(counts);
  check_apart({extent(counts)}, {extent(nodes)});
  const Strided<std::int64_t> span = strided(nodes);
  std::int64_t* const count = counts.data();
  const RowsInUse rows(adjacency);
  nb::gil_scoped_release unlocked;
  if (first_outside(span, adjacency.num_nodes()) >= 0) return -1;
  std::int64_t total = 0;
  const bool sound = std::visit(
      [&](const auto& view) { return count_first(view, span, most, count, total); },
      adjacency.view());
  return sound ? total : -1;
}

// False for a damaged topology.
bool py_read_first(const Adjacency& adjacency, const Ids& nodes, std::int64_t most,
                   std::int64_t num_found, IdOutput counts, IdOutput found) {
  // Counted again: what is read must not depend on what somebody wrote into an array meanwhile.
  const std::int64_t total = py_count_first(adjacency, nodes, most, counts);
  if (total < 0) return false;
  if (static_cast<std::int64_t>(found.shape(0)) != total) {
    throw nb::value_error("one place per label is needed");
  }
  check_aligned(found);
  check_apart({extent(counts), extent(found)}, {extent(nodes)});
  const Strided<std::int64_t> span = strided(nodes);
  const std::int64_t* const count = counts.data();
  std::int64_t* const to = found.data();
  const RowsInUse rows(adjacency);
  nb::gil_scoped_release unlocked;
  return std::visit(
      [&](const auto& view) { return read_first(view, span, num_found, count, to); },
      adjacency.view());
}

}  // namespace

void bind_labels(nb::module_& m) {
  m.def("count_first", &py_count_first, "adjacency"_a, "nodes"_a.noconvert(), "most"_a,
        "counts"_a.noconvert());
  m.def("read_first", &py_read_first, "adjacency"_a, "nodes"_a.noconvert(), "most"_a,
        "num_found"_a, "counts"_a.noconvert(), "found"_a.noconvert());
}

}  // namespace penstock
