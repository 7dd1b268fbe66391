// The kernels of subgraphs as Python sees them. How much they find nobody knows before, so they make
// their lists themselves, and Python takes these over.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "build.hpp"
#include "induced.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using List = std::vector<std::int64_t>;
using Made = Handed;
using MadeEdges = std::tuple<Made, Made, std::optional<Made>>;

List copied(const Ids& ids) {
  const Strided<std::int64_t> span = strided(ids);
  List copy(static_cast<std::size_t>(span.size));
  for (std::int64_t i = 0; i < span.size; ++i) copy[static_cast<std::size_t>(i)] = span[i];
  return copy;
}

// The lists of one relation while they grow.
struct Growing {
  List lists[3];
  EdgeList edges;

  explicit Growing(bool with_edge_ids)
      : edges{Column(&lists[0]), Column(&lists[1]), Column(&lists[2]), with_edge_ids} {}
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;

  MadeEdges hand_over() {
    const auto size = static_cast<std::size_t>(edges.size);
    for (List& list : lists) {
      if (list.size() > size) list.resize(size);
    }
    std::optional<Made> ids;
    if (edges.with_edge_ids) ids = handed_over(std::move(lists[2]));
    return {handed_over(std::move(lists[0])), handed_over(std::move(lists[1])), std::move(ids)};
  }
};

class InducedEdges {
 public:
  InducedEdges(std::vector<std::int64_t> num_nodes, std::vector<const Adjacency*> adjacencies,
               std::vector<std::int64_t> expands, std::vector<std::int64_t> finds)
      : num_nodes_(std::move(num_nodes)), places_(num_nodes_.size()) {
    if (expands.size() != adjacencies.size() || finds.size() != adjacencies.size()) {
      throw nb::value_error("one entry per relation is needed in each list");
    }
    for (std::size_t r = 0; r < adjacencies.size(); ++r) {
      kept_.push_back(*adjacencies[r]);
      sides_.emplace_back(checked(expands[r]), checked(finds[r]));
      if (adjacencies[r]->num_nodes() != num_nodes_[sides_[r].first]) {
        throw nb::value_error("a relation has another number of rows than its node type has nodes");
      }
    }
  }

  // Returns a code, and the edges of every relation.
  std::pair<int, std::vector<MadeEdges>> cut(const std::vector<Ids>& nodes,
                                             const std::optional<std::vector<Ids>>& trees,
                                             bool with_edge_ids) {
    const std::size_t types = num_nodes_.size();
    if (nodes.size() != types || (trees && trees->size() != types)) {
      throw nb::value_error("one array per node type is needed in each list");
    }
    Turn turn(busy_);
    const RowsInUse rows(kept_);
    std::vector<List> node_lists(types), tree_lists(types);
    std::vector<Listed> listed(types);
    for (std::size_t type = 0; type < types; ++type) {
      node_lists[type] = copied(nodes[type]);
      if (trees) tree_lists[type] = copied((*trees)[type]);
      if (trees && tree_lists[type].size() != node_lists[type].size()) {
        throw nb::value_error("one tree per node is needed");
      }
      listed[type] = {node_lists[type].data(), trees ? tree_lists[type].data() : nullptr,
                      static_cast<std::int64_t>(node_lists[type].size())};
    }
    std::vector<std::unique_ptr<Growing>> found;
    const Outcome outcome = cut_unlocked(listed, with_edge_ids, found);
    std::vector<MadeEdges> made;
    if (outcome == Outcome::kDone) {
      for (const auto& growing : found) made.push_back(growing->hand_over());
    }
    return {static_cast<int>(outcome), std::move(made)};
  }

 private:
  Outcome cut_unlocked(const std::vector<Listed>& listed, bool with_edge_ids,
                       std::vector<std::unique_ptr<Growing>>& found) {
    nb::gil_scoped_release unlocked;
    std::vector<bool> repeats(listed.size());
    for (std::size_t type = 0; type < listed.size(); ++type) {
      const Strided<std::int64_t> span{listed[type].nodes, listed[type].size, 1};
      if (first_outside(span, num_nodes_[type]) >= 0) return Outcome::kDamaged;
      repeats[type] = places_[type].fill(listed[type]);
    }
    Outcome outcome = Outcome::kDone;
    for (std::size_t r = 0; r < kept_.size() && outcome == Outcome::kDone; ++r) {
      const auto [expands, finds] = sides_[r];
      const ListedPlaces* const first = repeats[expands] ? &places_[expands] : nullptr;
      EdgeList& edges = found.emplace_back(std::make_unique<Growing>(with_edge_ids))->edges;
      outcome = std::visit(
          [&, expands = expands, finds = finds](const auto& view) {
            return Inducing(view, num_nodes_[finds], listed[expands], first, places_[finds], edges)
                .run();
          },
          kept_[r].view());
    }
    return outcome;
  }

  std::size_t checked(std::int64_t type) const {
    if (type < 0 || type >= static_cast<std::int64_t>(num_nodes_.size())) {
      throw nb::value_error("a relation names a node type that is not there");
    }
    return static_cast<std::size_t>(type);
  }

  std::vector<std::int64_t> num_nodes_;
  std::vector<Adjacency> kept_;
  std::vector<std::pair<std::size_t, std::size_t>> sides_;  // expands, finds
  std::vector<ListedPlaces> places_;                        // kept: their memory is worth reusing
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

// --- both ways ----------------------------------------------------------------------------------

// Edges as they come: ids are left out where nobody wants them.
struct Given {
  Strided<std::int64_t> rows;
  Strided<std::int64_t> cols;
  std::optional<Strided<std::int64_t>> ids;

  Given(const Ids& rows, const Ids& cols, const std::optional<Ids>& ids)
      : rows(strided(rows)), cols(strided(cols)) {
    if (ids) this->ids = strided(*ids);
    if (rows.shape(0) != cols.shape(0) || (ids && ids->shape(0) != rows.shape(0))) {
      throw nb::value_error("rows, cols and edge ids must be of one length");
    }
  }

  PlacedEdge operator[](std::int64_t i) const { return {rows[i], cols[i], ids ? (*ids)[i] : 0}; }
};

// What was sampled stands before what is only its reverse, so that its own ids are kept.
std::vector<PlacedEdge> both_ways(const Given& edges, const Given& reverse) {
  std::vector<PlacedEdge> both;
  both.reserve(static_cast<std::size_t>(edges.rows.size + reverse.rows.size));
  for (std::int64_t i = 0; i < edges.rows.size; ++i) both.push_back(edges[i]);
  for (std::int64_t i = 0; i < reverse.rows.size; ++i) {
    const PlacedEdge edge = reverse[i];
    both.push_back({edge.col, edge.row, edge.id});
  }
  return both;
}

MadeEdges py_bidirectional(const Ids& rows, const Ids& cols, const std::optional<Ids>& edge_ids,
                           const Ids& rev_rows, const Ids& rev_cols,
                           const std::optional<Ids>& rev_edge_ids) {
  const Given edges(rows, cols, edge_ids), reverse(rev_rows, rev_cols, rev_edge_ids);
  if (edge_ids.has_value() != rev_edge_ids.has_value()) {
    throw nb::value_error("edge ids are needed both ways, or not at all");
  }
  Growing made(edge_ids.has_value());
  bool negative = false;
  {
    nb::gil_scoped_release unlocked;
    std::vector<PlacedEdge> both = both_ways(edges, reverse);
    for (const PlacedEdge& edge : both) negative |= (edge.row < 0) | (edge.col < 0);
    if (!negative) {
      coalesce(both);
      made.edges.reserve(static_cast<std::int64_t>(both.size()));
      for (const PlacedEdge& edge : both) {
        const std::int64_t at = made.edges.size++;
        made.edges.row.data()[at] = edge.row;
        made.edges.col.data()[at] = edge.col;
        if (edge_ids) made.edges.edge_id.data()[at] = edge.id;
      }
    }
  }
  if (negative) throw nb::value_error("rows and cols must be places, which are not negative");
  return made.hand_over();
}

}  // namespace

void bind_subgraph(nb::module_& m) {
  nb::class_<InducedEdges>(m, "InducedEdges")
      .def(nb::init<std::vector<std::int64_t>, std::vector<const Adjacency*>,
                    std::vector<std::int64_t>, std::vector<std::int64_t>>(),
           "num_nodes"_a, "adjacencies"_a, "expands"_a, "finds"_a)
      .def("cut", &InducedEdges::cut, "nodes"_a, "trees"_a.none(), "with_edge_ids"_a);

  m.def("bidirectional", &py_bidirectional, "rows"_a.noconvert(), "cols"_a.noconvert(),
        "edge_ids"_a.none().noconvert(), "rev_rows"_a.noconvert(), "rev_cols"_a.noconvert(),
        "rev_edge_ids"_a.none().noconvert());
}

}  // namespace penstock
