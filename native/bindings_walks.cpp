// Random walks as Python sees them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "python.hpp"
#include "walks.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using Bases = std::vector<const Adjacency*>;

// Each step begins among the nodes that the one before leads to; so does the first after the last,
// where the walk is longer than the path. A walk that stays must be somewhere in the next step, too.
void check_path(const Bases& path, const std::vector<std::int64_t>& finds, std::int64_t length,
                bool stays) {
  if (path.empty() || path.size() != finds.size()) {
    throw nb::value_error("a path has at least one step, and each finds so many nodes");
  }
  for (std::size_t step = 0; step < path.size(); ++step) {
    if (stays && path[step]->num_nodes() != path[0]->num_nodes()) {
      throw nb::value_error("walks can only stay where all steps are among the same nodes");
    }
    const bool is_last = step + 1 == path.size();
    if (is_last && length <= static_cast<std::int64_t>(path.size())) break;
    if (finds[step] != path[is_last ? 0 : step + 1]->num_nodes()) {
      throw nb::value_error("a step leads to other nodes than the next begins among");
    }
  }
}

void check_bias(const std::vector<std::uint64_t>& bias, const Bases& path, const Bases& sorted) {
  constexpr std::uint64_t kMost = 1ULL << walks::Bias::kBits;
  if (bias.size() != 3) throw nb::value_error("a bias has three weights");
  for (const std::uint64_t weight : bias) {
    if (weight < 1 || weight > kMost) throw nb::value_error("a weight is 1 to 2**30");
  }
  if (sorted.size() > 1 || (!sorted.empty() && path.size() != 1)) {
    throw nb::value_error("edges are looked up among those of one type");
  }
  if (!sorted.empty() && sorted[0]->num_nodes() != path[0]->num_nodes()) {
    throw nb::value_error("the rows to look up edges in are those of other nodes");
  }
}

// Products of sizes that memory has room for do not overflow.
void check_room(std::size_t starts, std::size_t length, std::size_t rounds, std::size_t nodes,
                std::size_t edges) {
  const Wide walks = static_cast<Wide>(starts) * rounds;
  if (walks > nodes || walks * (length + 1) != nodes || walks * length != edges) {
    throw nb::value_error("nodes must hold length + 1 places per walk, edges length");
  }
}

// `sorted` has one adjacency for biased walks, none for others.
int py_walk(const Bases& path, const std::vector<std::int64_t>& finds, const Ids& starts,
            std::int64_t length, std::int64_t rounds, bool stays, std::uint64_t key,
            const std::vector<std::uint64_t>& bias, const Bases& sorted, bool sorted_reversed,
            IdOutput nodes, IdOutput edges) {
  if (length < 0 || rounds < 0) throw nb::value_error("lengths and rounds are not negative");
  check_path(path, finds, length, stays);
  check_bias(bias, path, sorted);
  check_room(starts.shape(0), static_cast<std::size_t>(length), static_cast<std::size_t>(rounds),
             nodes.shape(0), edges.shape(0));
  check_aligned(nodes);
  check_aligned(edges);
  check_apart({extent(nodes), extent(edges)}, {extent(starts)});
  walks::Spec spec{{},     length, rounds, stays, {bias[0], bias[1], bias[2]},
                   nullptr, sorted_reversed};
  RowsInUse rows;
  for (const Adjacency* adjacency : path) rows.add(*adjacency);
  for (const Adjacency* adjacency : sorted) rows.add(*adjacency);
  for (std::size_t step = 0; step < path.size(); ++step) {
    spec.path.push_back({path[step]->view(), finds[step]});
  }
  if (!sorted.empty()) spec.sorted = &sorted[0]->view();
  const Strided<std::int64_t> span = strided(starts);
  std::int64_t* const to = nodes.data();
  std::int64_t* const ids = edges.data();
  const std::int64_t num_nodes = path[0]->num_nodes();
  nb::gil_scoped_release unlocked;
  if (first_outside(span, num_nodes) >= 0) return static_cast<int>(Outcome::kDamaged);
  return static_cast<int>(walks::Walks(spec, key).run(span, to, ids));
}

}  // namespace

void bind_walks(nb::module_& m) {
  m.def("walk", &py_walk, "path"_a, "finds"_a, "starts"_a.noconvert(), "length"_a, "rounds"_a,
        "stays"_a, "key"_a, "bias"_a, "sorted"_a, "sorted_reversed"_a, "nodes"_a.noconvert(),
        "edges"_a.noconvert());
}

}  // namespace penstock
