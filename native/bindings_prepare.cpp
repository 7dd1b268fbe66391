// The face of what weighted and temporal sampling need once per graph.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <variant>
#include <vector>

#include "arrays.hpp"
#include "prepare.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

// Calls `body` with the weights as a span of their own type.
template <class Body>
auto with_weights(const Input& weights, Body body) {
  if (weights.ndim() != 1) throw nb::value_error("weights must have one dimension");
  const nb::dlpack::dtype dtype = weights.dtype();
  if (dtype == nb::dtype<float>()) return body(strided<float>(weights));
  if (dtype == nb::dtype<double>()) return body(strided<double>(weights));
  if (dtype == nb::dtype<std::int8_t>()) return body(strided<std::int8_t>(weights));
  if (dtype == nb::dtype<std::uint8_t>()) return body(strided<std::uint8_t>(weights));
  if (dtype == nb::dtype<std::int16_t>()) return body(strided<std::int16_t>(weights));
  if (dtype == nb::dtype<std::uint16_t>()) return body(strided<std::uint16_t>(weights));
  if (dtype == nb::dtype<std::int32_t>()) return body(strided<std::int32_t>(weights));
  if (dtype == nb::dtype<std::uint32_t>()) return body(strided<std::uint32_t>(weights));
  if (dtype == nb::dtype<std::int64_t>()) return body(strided<std::int64_t>(weights));
  if (dtype == nb::dtype<std::uint64_t>()) return body(strided<std::uint64_t>(weights));
  throw nb::type_error("weights must be integers, float32 or float64");
}

std::int64_t py_first_no_weight(const Input& weights) {
  return with_weights(weights, [](auto span) {
    nb::gil_scoped_release unlocked;
    return first_no_weight(span);
  });
}

int py_weight_sums(const Adjacency& adjacency, const Input& weights, IdOutput out) {
  if (static_cast<std::int64_t>(out.shape(0)) != adjacency.num_edges()) {
    throw nb::value_error("one sum per edge is needed");
  }
  check_at_hand(adjacency);
  check_aligned(out);
  std::vector<Extent> read = adjacency.extents();
  read.push_back(extent(weights));
  check_apart({extent(out)}, read);
  std::int64_t* const sums = out.data();
  return with_weights(weights, [&](auto span) {
    nb::gil_scoped_release unlocked;
    return std::visit(
        [&](const auto& view) { return static_cast<int>(weight_sums(view, span, sums)); },
        adjacency.view());
  });
}

int py_order_by_time(const Adjacency& adjacency, const Input& times, bool of_nodes, Output entries,
                     IdOutput out_times) {
  if (entries.ndim() != 2 || entries.shape(1) != 2 ||
      static_cast<std::int64_t>(entries.shape(0)) != adjacency.num_edges() ||
      static_cast<std::int64_t>(out_times.shape(0)) != adjacency.num_edges()) {
    throw nb::value_error("rows in the order of time need entries [E, 2] and times [E]");
  }
  check_at_hand(adjacency);
  check_aligned(entries);
  check_aligned(out_times);
  std::vector<Extent> read = adjacency.extents();
  read.push_back(extent(times));
  check_apart({extent(entries), extent(out_times)}, read);
  std::int64_t* const sorted = out_times.data();
  void* const into = entries.data();
  return with_ids(times, [&](auto span) {
    return with_index_type(entries.dtype(), [&]<class Index>(Index*) {
      nb::gil_scoped_release unlocked;
      return std::visit(
          [&](const auto& view) {
            return static_cast<int>(
                order_by_time(view, span, of_nodes, static_cast<Index*>(into), sorted));
          },
          adjacency.view());
    });
  });
}

}  // namespace

void bind_prepare(nb::module_& m) {
  m.def("first_no_weight", &py_first_no_weight, "weights"_a.noconvert());
  m.def("weight_sums", &py_weight_sums, "adjacency"_a, "weights"_a.noconvert(),
        "out"_a.noconvert());
  m.def("order_by_time", &py_order_by_time, "adjacency"_a, "times"_a.noconvert(), "of_nodes"_a,
        "out_entries"_a.noconvert(), "out_times"_a.noconvert());
}

}  // namespace penstock
