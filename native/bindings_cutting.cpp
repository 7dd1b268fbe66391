// The face of what cuts a graph into parts.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "build.hpp"
#include "cutting.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using WordOutput = nb::ndarray<nb::numpy, std::uint64_t, nb::shape<-1, 2>, nb::c_contig>;
using Offsets = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig>;
using PartNumbers = nb::ndarray<nb::numpy, nb::ro, nb::ndim<1>, nb::c_contig>;

void check_all_rows(const Adjacency& adjacency) {
  if (adjacency.has_some_rows()) throw nb::value_error("the rows of all nodes are needed");
}

Strided<std::int64_t> checked_nodes(const Ids& nodes, const Adjacency& adjacency) {
  const Strided<std::int64_t> span = strided(nodes);
  if (first_outside(span, adjacency.num_nodes()) >= 0) {
    throw nb::value_error("a node is out of range");
  }
  return span;
}

bool py_copy_rows(const Adjacency& adjacency, const Ids& nodes, const Offsets& indptr,
                  std::int64_t begin, Output out) {
  check_all_rows(adjacency);
  const Strided<std::int64_t> span = checked_nodes(nodes, adjacency);
  if (indptr.shape(0) != nodes.shape(0) + 1) {
    throw nb::value_error("an offset more than nodes is needed");
  }
  const bool pairs = is_paired(out.ndim(), out.ndim() == 2 ? out.shape(1) : 0);
  check_aligned(indptr);
  check_aligned(out);
  std::vector<Extent> read = adjacency.extents();
  read.push_back(extent(nodes));
  read.push_back(extent(indptr));
  check_apart({extent(out)}, read);
  const auto size = static_cast<std::int64_t>(out.shape(0));
  const std::int64_t total = indptr.data()[nodes.shape(0)];
  if (begin < 0 || begin > total || size > total - begin) {
    throw nb::value_error("there are fewer entries");
  }
  void* const into = out.data();
  return with_index_type(out.dtype(), [&]<class Index>(Index*) {
    nb::gil_scoped_release unlocked;
    return std::visit(
        [&](const auto& view) {
          auto* const to = static_cast<Index*>(into);
          return pairs ? copy_rows<true>(view, span, indptr.data(), begin, size, to)
                       : copy_rows<false>(view, span, indptr.data(), begin, size, to);
        },
        adjacency.view());
  });
}

bool py_mark_edges(const Adjacency& adjacency, const Ids& nodes, std::int64_t size,
                   WordOutput words) {
  check_all_rows(adjacency);
  const Strided<std::int64_t> span = checked_nodes(nodes, adjacency);
  if (size < 0 || words.shape(0) != static_cast<std::size_t>((size + 63) / 64)) {
    throw nb::value_error("a word for every 64 edges is needed");
  }
  check_aligned(words);
  std::vector<Extent> read = adjacency.extents();
  read.push_back(extent(nodes));
  check_apart({extent(words)}, read);
  auto* const to = reinterpret_cast<MemberWord*>(words.data());
  nb::gil_scoped_release unlocked;
  return std::visit([&](const auto& view) { return mark_edges(view, span, to, size); },
                    adjacency.view());
}

template <class Part>
bool counted(const Adjacency& adjacency, const PartNumbers& owners, const PartNumbers& others,
             IdOutput& cut) {
  const auto* const own = static_cast<const Part*>(owners.data());
  const auto* const other = static_cast<const Part*>(others.data());
  const auto num_others = static_cast<std::int64_t>(others.shape(0));
  const auto num_parts = static_cast<std::int64_t>(cut.shape(0));
  std::int64_t* const out = cut.data();
  nb::gil_scoped_release unlocked;
  return std::visit(
      [&](const auto& view) { return count_cut(view, own, other, num_others, num_parts, out); },
      adjacency.view());
}

bool py_count_cut(const Adjacency& adjacency, const PartNumbers& owners, const PartNumbers& others,
                  IdOutput cut) {
  check_all_rows(adjacency);
  if (static_cast<std::int64_t>(owners.shape(0)) != adjacency.num_nodes()) {
    throw nb::value_error("a part for each node is needed");
  }
  const nb::dlpack::dtype dtype = owners.dtype();
  if (others.dtype() != dtype) throw nb::type_error("parts must have one type");
  check_aligned(owners);
  check_aligned(others);
  check_aligned(cut);
  std::vector<Extent> read = adjacency.extents();
  read.push_back(extent(owners));
  read.push_back(extent(others));
  check_apart({extent(cut)}, read);
  if (dtype == nb::dtype<std::uint8_t>()) return counted<std::uint8_t>(adjacency, owners, others, cut);
  if (dtype == nb::dtype<std::int16_t>()) return counted<std::int16_t>(adjacency, owners, others, cut);
  if (dtype == nb::dtype<std::int32_t>()) return counted<std::int32_t>(adjacency, owners, others, cut);
  throw nb::type_error("parts must be uint8, int16 or int32");
}

}  // namespace

void bind_cutting(nb::module_& m) {
  m.def("copy_rows", &py_copy_rows, "adjacency"_a, "nodes"_a.noconvert(), "indptr"_a.noconvert(),
        "begin"_a, "out"_a.noconvert());
  m.def("mark_edges", &py_mark_edges, "adjacency"_a, "nodes"_a.noconvert(), "size"_a,
        "out"_a.noconvert());
  m.def("count_cut", &py_count_cut, "adjacency"_a, "owners"_a.noconvert(), "others"_a.noconvert(),
        "out"_a.noconvert());
}

}  // namespace penstock
