// The face of the negatives: candidates and edges that keep their arrays, and the drawing.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>
#include <utility>
#include <variant>

#include "arrays.hpp"
#include "build.hpp"
#include "negatives.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using Column64 = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig>;

class PyCandidates {
 public:
  PyCandidates(std::int64_t num_nodes, std::optional<Column64> sums, std::optional<Column64> times)
      : sums_(std::move(sums)), times_(std::move(times)) {
    if (num_nodes < 0) throw nb::value_error("num_nodes must not be negative");
    view_.num_nodes = num_nodes;
    view_.sums = data(sums_);
    view_.times = data(times_);
    nb::gil_scoped_release unlocked;
    view_.find_earliest();
  }

  const Candidates& view() const { return view_; }
  std::int64_t num_nodes() const { return view_.num_nodes; }
  std::int64_t earliest() const { return view_.earliest; }
  bool is_empty() const { return view_.num_nodes == 0 || view_.total() - 1 >= (1ULL << 63); }

  void add_extents(std::vector<Extent>& extents) const {
    if (sums_) extents.push_back(extent(*sums_));
    if (times_) extents.push_back(extent(*times_));
  }

 private:
  const std::int64_t* data(const std::optional<Column64>& column) const {
    if (!column) return nullptr;
    if (static_cast<std::int64_t>(column->shape(0)) != view_.num_nodes) {
      throw nb::value_error("one number per node is needed");
    }
    check_aligned(*column);
    return column->data();
  }

  std::optional<Column64> sums_, times_;
  Candidates view_;
};

bool py_sort_rows(const Adjacency& from, Output out) {
  if (out.ndim() != 1 || static_cast<std::int64_t>(out.shape(0)) != from.num_edges()) {
    throw nb::value_error("out must have one entry per edge");
  }
  check_at_hand(from);
  check_aligned(out);
  check_apart({extent(out)}, from.extents());
  void* const sorted = out.data();
  return with_index_type(out.dtype(), [&]<class Index>(Index*) {
    nb::gil_scoped_release unlocked;
    return std::visit(
        [&](const auto& view) { return sort_rows(view, static_cast<Index*>(sorted)); },
        from.view());
  });
}

// Every id that a kernel finds memory by is in range, and there is something to draw from.
void check_negatives(const NegativeSpec& spec, const Adjacency* edges, bool is_pair,
                     std::int64_t count) {
  const std::int64_t size = spec.sources.size;
  if (spec.destinations.size != size || (spec.times.data != nullptr && spec.times.size != size)) {
    throw nb::value_error("sources, destinations and times must be of one length");
  }
  if (count > 0 && size == 0) throw nb::value_error("negatives stand against edges: none is given");
  const bool timed = spec.destination.times != nullptr || (is_pair && spec.source.times != nullptr);
  if (timed && spec.times.data == nullptr) {
    throw nb::value_error("nodes with times need edges with times");
  }
  if (edges != nullptr && edges->num_nodes() != spec.destination.num_nodes) {
    throw nb::value_error("the edges must have one row per destination");
  }
}

// Returns a code, how many are edges after all, and how many are later than they should be.
std::tuple<int, std::int64_t, std::int64_t> py_draw_negatives(
    std::uint64_t batch_key, const Ids& sources, const Ids& destinations,
    const PyCandidates& source, const PyCandidates& destination, const std::optional<Ids>& times,
    const Adjacency* edges, std::optional<IdOutput> out_sources, IdOutput out_destinations) {
  const bool is_pair = out_sources.has_value();
  const auto count = static_cast<std::int64_t>(out_destinations.shape(0));
  if (is_pair && static_cast<std::int64_t>(out_sources->shape(0)) != count) {
    throw nb::value_error("as many sources as destinations are needed");
  }
  const Strided<std::int64_t> nothing{nullptr, 0, 1};
  const NegativeSpec spec{batch_key,        source.view(),         destination.view(),
                          strided(sources), strided(destinations), times ? strided(*times) : nothing};
  check_negatives(spec, edges, is_pair, count);
  if (count > 0 && (destination.is_empty() || (is_pair && source.is_empty()))) {
    throw nb::value_error("there is no node to draw");
  }
  std::vector<Extent> written{extent(out_destinations)}, read{extent(sources), extent(destinations)};
  check_aligned(out_destinations);
  if (is_pair) {
    check_aligned(*out_sources);
    written.push_back(extent(*out_sources));
  }
  if (times) read.push_back(extent(*times));
  source.add_extents(read);
  destination.add_extents(read);
  if (edges != nullptr) {
    for (const Extent& each : edges->extents()) read.push_back(each);
  }
  check_apart(std::move(written), read);
  std::int64_t* const from = is_pair ? out_sources->data() : nullptr;
  std::int64_t* const to = out_destinations.data();
  const auto draw = [&]<class Index>(SortedRows<Index> rows) {
    NegativeDrawer<Index> drawer(spec, rows);
    const Outcome outcome = drawer.draw(count, from, to);
    return std::tuple{static_cast<int>(outcome), drawer.counts().are_edges,
                      drawer.counts().are_late};
  };
  if (edges == nullptr) {
    nb::gil_scoped_release unlocked;
    return draw(SortedRows<std::int64_t>{});
  }
  const RowsInUse in_use(*edges);
  const AnyAdjacency& view = edges->view();
  const auto* const narrow = std::get_if<Bare<std::int32_t>>(&view);
  const auto* const wide = std::get_if<Bare<std::int64_t>>(&view);
  if (narrow == nullptr && wide == nullptr) {
    throw nb::value_error("edges are looked up in rows of bare neighbours");
  }
  nb::gil_scoped_release unlocked;
  return narrow != nullptr ? draw(SortedRows<std::int32_t>{*narrow, true})
                           : draw(SortedRows<std::int64_t>{*wide, true});
}

}  // namespace

void bind_negatives(nb::module_& m) {
  m.attr("NEGATIVE_DRAWS") = kNegativeDraws;
  m.attr("NEGATIVE_SCAN") = kNegativeScan;

  m.def("sort_rows", &py_sort_rows, "adjacency"_a, "out"_a.noconvert());

  nb::class_<PyCandidates>(m, "Candidates")
      .def(nb::init<std::int64_t, std::optional<Column64>, std::optional<Column64>>(),
           "num_nodes"_a, "sums"_a.noconvert().none(), "times"_a.noconvert().none())
      .def_prop_ro("num_nodes", &PyCandidates::num_nodes)
      .def_prop_ro("earliest", &PyCandidates::earliest);

  m.def("draw_negatives", &py_draw_negatives, "batch_key"_a, "sources"_a.noconvert(),
        "destinations"_a.noconvert(), "source"_a, "destination"_a, "times"_a.noconvert().none(),
        "edges"_a.none(), "out_sources"_a.noconvert().none(), "out_destinations"_a.noconvert());
}

}  // namespace penstock
