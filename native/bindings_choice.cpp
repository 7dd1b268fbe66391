// The face of weighted and temporal choices: what they need once per graph, and one hop by itself.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "build.hpp"
#include "prepare.hpp"
#include "python.hpp"
#include "temporal.hpp"
#include "weighted.hpp"

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

// --- one hop by itself ------------------------------------------------------------------------

// The nodes of a hop, with the words of their trees and their times where there are any.
struct HopNodes {
  Strided<std::int64_t> ids;
  std::optional<Strided<std::int64_t>> trees;
  std::optional<Strided<std::int64_t>> times;
};

// The next block of nodes; false where the topology is damaged.
template <class View>
bool read_block(const View& view, const HopNodes& nodes, std::int64_t& next, NodeBlock& block) {
  for (block.size = 0; next < nodes.ids.size && block.size < kBlockNodes; ++next) {
    const std::int64_t node = nodes.ids[next], i = block.size++;
    const std::int64_t begin = view.indptr[node], end = view.indptr[node + 1];
    if (begin < 0 || begin > end || end > view.num_edges) return false;
    block.node[i] = node;
    block.place[i] = next;
    block.begin[i] = begin;
    block.degree[i] = end - begin;
    block.tree[i] = nodes.trees ? static_cast<std::uint64_t>((*nodes.trees)[next]) + 1 : 0;
    block.time[i] = nodes.times ? (*nodes.times)[next] : 0;
  }
  return true;
}

// How many edges each node gives, and their positions. kTooSmall once they do not fit; `total` then
// says how many there are.
template <class View, class SomeChooser>
Outcome choose_hop(const View& view, const HopNodes& nodes, SomeChooser chooser,
                   std::int64_t* counts, Column positions, std::int64_t& total) {
  NodeBlock block{};
  Picks picks;
  bool fits = true;
  total = 0;
  std::fill(counts, counts + nodes.ids.size, 0);
  for (std::int64_t next = 0; next < nodes.ids.size;) {
    if (!read_block(view, nodes, next, block)) return Outcome::kDamaged;
    picks.size = 0;
    chooser.choose(block, picks);
    for (std::int64_t i = 0; i < picks.size; ++i) ++counts[picks.owner[i]];
    fits = fits && positions.reserve(total + picks.size);
    if (fits) std::copy_n(picks.at.begin(), picks.size, positions.data() + total);
    total += picks.size;
  }
  return fits ? Outcome::kDone : Outcome::kTooSmall;
}

// What both kinds of hop check of their arrays; then `make` gives the chooser to run.
template <class MakeChooser>
std::pair<int, std::int64_t> run_hop(const Adjacency& adjacency, const Ids& by_position,
                                     const Ids& nodes, const std::optional<Ids>& trees,
                                     const std::optional<Ids>& times, const IdOutput& counts,
                                     const IdOutput& positions, MakeChooser make) {
  const std::size_t size = nodes.shape(0);
  if (static_cast<std::int64_t>(by_position.shape(0)) != adjacency.num_edges()) {
    throw nb::value_error("one sum or time per edge is needed");
  }
  if (by_position.shape(0) > 1 && by_position.stride(0) != 1) {
    throw nb::value_error("sums and times of edges must be contiguous");
  }
  if (counts.shape(0) != size || (trees && trees->shape(0) != size) ||
      (times && times->shape(0) != size)) {
    throw nb::value_error("one count, tree and time per node is needed");
  }
  check_aligned(counts);
  check_aligned(by_position);
  std::vector<Extent> read = adjacency.extents();
  for (const Ids& ids : {by_position, nodes, trees.value_or(nodes), times.value_or(nodes)}) {
    read.push_back(extent(ids));
  }
  check_apart({extent(counts), extent(positions)}, read);
  HopNodes hop{strided(nodes), {}, {}};
  if (trees) hop.trees = strided(*trees);
  if (times) hop.times = strided(*times);
  const Column into = column(positions);
  std::int64_t* const count = counts.data();
  nb::gil_scoped_release unlocked;
  if (first_outside(hop.ids, adjacency.num_nodes()) >= 0) {
    return {static_cast<int>(Outcome::kDamaged), 0};
  }
  return std::visit(
      [&](const auto& view) -> std::pair<int, std::int64_t> {
        std::int64_t total = 0;
        const Outcome outcome = choose_hop(view, hop, make(), count, into, total);
        return {static_cast<int>(outcome), total};
      },
      adjacency.view());
}

std::pair<int, std::int64_t> py_choose_weighted(const Adjacency& adjacency, const Ids& sums,
                                                const Ids& nodes, const std::optional<Ids>& trees,
                                                std::int64_t fanout, bool replace,
                                                std::uint64_t key, IdOutput counts,
                                                IdOutput positions) {
  return run_hop(adjacency, sums, nodes, trees, std::nullopt, counts, positions, [&] {
    return WeightedChooser(sums.data(), fanout, replace, key);
  });
}

std::pair<int, std::int64_t> py_choose_by_time(const Adjacency& adjacency, const Ids& times,
                                               const Ids& nodes, const std::optional<Ids>& trees,
                                               const Ids& node_times, std::int64_t fanout,
                                               bool replace, bool last, std::uint64_t key,
                                               IdOutput counts, IdOutput positions) {
  return run_hop(adjacency, times, nodes, trees, node_times, counts, positions, [&] {
    return TemporalChooser(times.data(), fanout, replace, last, key);
  });
}

}  // namespace

void bind_choice(nb::module_& m) {
  m.def("first_no_weight", &py_first_no_weight, "weights"_a.noconvert());
  m.def("weight_sums", &py_weight_sums, "adjacency"_a, "weights"_a.noconvert(),
        "out"_a.noconvert());
  m.def("order_by_time", &py_order_by_time, "adjacency"_a, "times"_a.noconvert(), "of_nodes"_a,
        "out_entries"_a.noconvert(), "out_times"_a.noconvert());
  m.def("choose_weighted", &py_choose_weighted, "adjacency"_a, "sums"_a.noconvert(),
        "nodes"_a.noconvert(), "trees"_a.noconvert().none(), "fanout"_a, "replace"_a, "hop_key"_a,
        "counts"_a.noconvert(), "positions"_a.noconvert());
  m.def("choose_by_time", &py_choose_by_time, "adjacency"_a, "times"_a.noconvert(),
        "nodes"_a.noconvert(), "trees"_a.noconvert().none(), "node_times"_a.noconvert(), "fanout"_a,
        "replace"_a, "last"_a, "hop_key"_a, "counts"_a.noconvert(), "positions"_a.noconvert());
}

}  // namespace penstock
