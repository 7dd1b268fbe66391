// Forward push as Python sees it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "floor.hpp"
#include "ppr_batch.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using Numbers = std::vector<std::int64_t>;
using IdTable = nb::ndarray<nb::numpy, std::int64_t, nb::shape<2, -1>, nb::c_contig>;
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using DoubleOutput = nb::ndarray<nb::numpy, double, nb::ndim<1>, nb::c_contig>;
using SizeBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using SizeOutput = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig>;
using FloatTable = nb::ndarray<nb::numpy, float, nb::ndim<2>, nb::c_contig>;

void check(bool holds, const char* otherwise) {
  if (!holds) throw nb::value_error(otherwise);
}

Numbers firsts(const Numbers& num_nodes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  check(!num_nodes.empty() && num_nodes.size() <= std::numeric_limits<std::uint16_t>::max(),
        "between one and 65535 node types are needed");
  Numbers first;
  std::int64_t total = 0;
  for (const std::int64_t count : num_nodes) {
    check(count >= 0 && count <= kMost - total, "too many nodes");
    first.push_back(total);
    total += count;
  }
  return first;
}

// `limits` are max_nodes, max_neighbors, max_openings.
PushSpec make_spec(Numbers num_nodes, const std::vector<const Adjacency*>& adjacencies,
                   const std::vector<SizeBytes>& sizes, const Numbers& expands, const Numbers& finds,
                   const std::vector<std::uint64_t>& name_hashes,
                   const std::vector<Numbers>& channels, const Numbers& shares, double alpha,
                   double eps, const Numbers& limits, bool is_typed, bool has_topup,
                   bool with_edges) {
  const std::size_t types = num_nodes.size(), count = adjacencies.size();
  check(sizes.size() == count && expands.size() == count && finds.size() == count &&
            name_hashes.size() == count,
        "one entry per relation is needed in each list");
  check(!channels.empty() && channels.size() == shares.size() &&
            (is_typed || channels.size() == 1),
        "one share per channel is needed, and one channel where they are not typed");
  // Smaller ones would take no end of pushes: residuals that hardly shrink, or that rounding keeps.
  check(alpha >= 1e-6 && alpha <= 1.0 && eps >= 1e-15 && eps <= 1e15,
        "alpha or eps is out of range");
  check(limits.size() == 3 && limits[0] >= 0 && limits[1] >= 1 && limits[2] >= -1,
        "a limit is out of range");
  Numbers first = firsts(num_nodes);
  PushSpec spec{std::move(num_nodes), std::move(first), {}, {}, {}, alpha, eps, limits[0],
                limits[1], limits[2], is_typed, has_topup, with_edges};
  spec.leaving.resize(types);
  for (std::size_t r = 0; r < count; ++r) {
    const auto known = [types](std::int64_t type) {
      return type >= 0 && static_cast<std::size_t>(type) < types;
    };
    check(known(expands[r]) && known(finds[r]), "a relation names a node type that is not there");
    const auto from = static_cast<std::size_t>(expands[r]);
    check(adjacencies[r]->num_nodes() == spec.num_nodes[from],
          "a relation has another number of rows than its node type has nodes");
    check(static_cast<std::int64_t>(sizes[r].shape(0)) == spec.num_nodes[from],
          "a relation has another number of sizes than rows");
    const RowsInUse rows(*adjacencies[r]);
    const AnyAdjacency& view = adjacencies[r]->view();
    spec.relations.push_back({view, offsets_of(view), sizes[r].data(), adjacencies[r]->num_edges(),
                              expands[r], finds[r], name_hashes[r]});
    spec.leaving[from].push_back(r);
  }
  for (std::size_t c = 0; c < channels.size(); ++c) {
    PushChannel channel{std::vector<std::vector<std::size_t>>(types), shares[c]};
    check(shares[c] >= 0, "a share is negative");
    for (const std::int64_t r : channels[c]) {
      check(r >= 0 && static_cast<std::size_t>(r) < count,
            "a channel names a relation that is not there");
      const auto number = static_cast<std::size_t>(r);
      channel.leaving[static_cast<std::size_t>(expands[number])].push_back(number);
    }
    spec.channels.push_back(std::move(channel));
  }
  return spec;
}

// A relation by number, nodes whose residuals are passed on, and neighbours that get none of them.
using Excluded = std::tuple<std::int64_t, Ids, Ids>;

class PPRSampler {
 public:
  PPRSampler(Numbers num_nodes, const std::vector<const Adjacency*>& adjacencies,
             std::vector<SizeBytes> sizes, const Numbers& expands, const Numbers& finds,
             const std::vector<std::uint64_t>& name_hashes, const std::vector<Numbers>& channels,
             const Numbers& shares, double alpha, double eps, const Numbers& limits, bool is_typed,
             bool has_topup, bool with_edges)
      : batch_(make_spec(std::move(num_nodes), adjacencies, sizes, expands, finds, name_hashes,
                         channels, shares, alpha, eps, limits, is_typed, has_topup, with_edges)),
        sizes_(std::move(sizes)) {
    for (const Adjacency* adjacency : adjacencies) kept_.push_back(*adjacency);
  }

  // Samples a batch, and keeps it until the next one. Returns a code, and how many nodes and links
  // there are of each type, and edges of each relation.
  std::tuple<int, Numbers, Numbers, Numbers> sample(std::uint64_t batch_key, std::int64_t seed_type,
                                                    const Ids& seeds,
                                                    const std::vector<Excluded>& excluded) {
    check(seed_type >= 0 && seed_type < static_cast<std::int64_t>(num_types()),
          "there is no such node type");
    Turn turn(busy_);
    is_made_ = false;
    const Strided<std::int64_t> span = strided(seeds);
    Numbers copy(static_cast<std::size_t>(span.size));
    for (std::int64_t i = 0; i < span.size; ++i) copy[static_cast<std::size_t>(i)] = span[i];
    std::vector<std::vector<ExcludedPair>> pairs = pairs_of(excluded);
    const RowsInUse rows(kept_);
    look_again();
    Outcome outcome;
    {
      nb::gil_scoped_release unlocked;
      excluded_.resize(pairs.size());
      for (std::size_t r = 0; r < pairs.size(); ++r) excluded_[r].assign(std::move(pairs[r]), false);
      outcome = batch_.run(batch_key, seed_type, copy, pairs.empty() ? nullptr : &excluded_);
    }
    is_made_ = outcome == Outcome::kDone;
    Numbers nodes, links, edges;
    for (std::size_t type = 0; is_made_ && type < num_types(); ++type) {
      nodes.push_back(batch_.nodes(type).size());
      links.push_back(static_cast<std::int64_t>(batch_.links(type).nodes.size()));
    }
    for (std::size_t r = 0; is_made_ && r < kept_.size(); ++r) {
      edges.push_back(static_cast<std::int64_t>(batch_.edges(r).rows.size()));
    }
    return {static_cast<int>(outcome), std::move(nodes), std::move(links), std::move(edges)};
  }

  // What pushes from these seeds give away, in order: where the rows begin, how many edges of each,
  // and the share. There is no batch afterwards.
  std::tuple<int, Numbers, Numbers, std::vector<double>> record(std::uint64_t batch_key,
                                                                std::int64_t seed_type,
                                                                const Numbers& seeds) {
    check(kept_.size() == 1, "pushes along one relation can be written down");
    check(seed_type == 0, "there is no such node type");
    Turn turn(busy_);
    is_made_ = false;
    const RowsInUse rows(kept_);
    look_again();
    PushRecord record;
    const Outcome outcome = batch_.record(batch_key, seed_type, seeds, record);
    return {static_cast<int>(outcome), std::move(record.begins), std::move(record.counts),
            std::move(record.shares)};
  }

  std::int64_t pushes() {
    Turn turn(busy_);
    return batch_.pushes();
  }

  void copy_nodes(std::int64_t type, IdOutput out) {
    Turn turn(busy_);
    const PlaceList& list = batch_.nodes(checked(type, num_types()));
    check(static_cast<std::int64_t>(out.shape(0)) == list.size(), "out must hold the nodes");
    check_aligned(out);
    std::copy_n(list.data(), list.size(), out.data());
  }

  void copy_links(std::int64_t type, IdTable index, FloatTable attributes) {
    Turn turn(busy_);
    const PushLinks& links = batch_.links(checked(type, num_types()));
    const std::size_t count = links.nodes.size();
    check(index.shape(1) == count && attributes.shape(0) == count &&
              attributes.shape(1) == batch_.width(),
          "the outputs must hold the links");
    check_aligned(index);
    check_aligned(attributes);
    check_apart({extent(index), extent(attributes)}, {});
    std::copy_n(links.seeds.data(), count, index.data());
    std::copy_n(links.nodes.data(), count, index.data() + count);
    std::copy_n(links.attributes.data(), count * batch_.width(), attributes.data());
  }

  void copy_edges(std::int64_t relation, IdTable index, IdOutput edge_ids) {
    Turn turn(busy_);
    const PushEdges& edges = batch_.edges(checked(relation, kept_.size()));
    const std::size_t count = edges.rows.size();
    check(index.shape(1) == count && edge_ids.shape(0) == count, "the outputs must hold the edges");
    check_aligned(index);
    check_aligned(edge_ids);
    check_apart({extent(index), extent(edge_ids)}, {});
    std::copy_n(edges.rows.data(), count, index.data());
    std::copy_n(edges.cols.data(), count, index.data() + count);
    std::copy_n(edges.edge_ids.data(), count, edge_ids.data());
  }

 private:
  // By relation; nothing where nothing is excluded.
  std::vector<std::vector<ExcludedPair>> pairs_of(const std::vector<Excluded>& excluded) const {
    std::vector<std::vector<ExcludedPair>> pairs(excluded.empty() ? 0 : kept_.size());
    for (const auto& [relation, nodes, neighbors] : excluded) {
      check(relation >= 0 && static_cast<std::size_t>(relation) < pairs.size(),
            "an exclusion names a relation that is not there");
      check(nodes.shape(0) == neighbors.shape(0),
            "the arrays of an exclusion must be of one length");
      const Strided<std::int64_t> node = strided(nodes), neighbor = strided(neighbors);
      auto& list = pairs[static_cast<std::size_t>(relation)];
      for (std::int64_t i = 0; i < node.size; ++i) list.push_back({node[i], neighbor[i], 0});
    }
    return pairs;
  }

  // Fetched rows may have moved.
  void look_again() {
    for (std::size_t r = 0; r < kept_.size(); ++r) {
      if (kept_[r].fetched() != nullptr) batch_.use(r, kept_[r].view(), kept_[r].num_edges());
    }
  }

  std::size_t num_types() const { return batch_.spec().num_nodes.size(); }

  std::size_t checked(std::int64_t number, std::size_t count) const {
    check(is_made_, "there is no batch");
    check(number >= 0 && static_cast<std::size_t>(number) < count, "there is no such type");
    return static_cast<std::size_t>(number);
  }

  std::vector<Adjacency> kept_;  // the arrays that the batch points into
  PushBatch batch_;
  std::vector<SizeBytes> sizes_;  // likewise
  std::vector<Exclusion> excluded_;  // of the batch that is being made
  bool is_made_ = false;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

// What pushing costs at least: residuals added to a bare array, one after the other.
void py_floor_push(DoubleOutput residuals, const Ids& at, double share) {
  const Strided<std::int64_t> span = strided(at);
  check(span.size == 0 || span.stride == 1, "places must be contiguous");
  check_aligned(residuals);
  double* const to = residuals.data();
  const auto size = static_cast<std::int64_t>(residuals.shape(0));
  nb::gil_scoped_release unlocked;
  if (first_outside(span, size) >= 0) throw std::out_of_range("a place outside the residuals");
  for (std::int64_t i = 0; i < span.size; ++i) to[span.data[i]] += share;
}

// The same along rows that were written down: what a push adds, and nothing else that it does.
void py_floor_replay(DoubleOutput residuals, const Adjacency& adjacency, const Ids& begins,
                     const Ids& counts, const Doubles& shares) {
  const Strided<std::int64_t> from = strided(begins), many = strided(counts);
  check_aligned(residuals);
  check(static_cast<std::int64_t>(residuals.shape(0)) == adjacency.num_nodes(),
        "one residual per node is needed");
  check(many.size == from.size && static_cast<std::int64_t>(shares.shape(0)) == from.size &&
            (from.size < 2 || (from.stride == 1 && many.stride == 1)),
        "one entry per row is needed in each list, side by side");
  double* const to = residuals.data();
  nb::gil_scoped_release unlocked;
  for (std::int64_t i = 0; i < from.size; ++i) {
    const bool is_sound = from[i] >= 0 && many[i] >= 0 && many[i] <= adjacency.num_edges() &&
                          from[i] <= adjacency.num_edges() - many[i];
    if (!is_sound) throw std::out_of_range("a row outside the graph");
  }
  const RowsInUse in_use(adjacency);
  const bool is_sound = std::visit(
      [&](const auto& rows) {
        return floor_replay(rows, from, many.data, shares.data(), to, adjacency.num_nodes());
      },
      adjacency.view());
  if (!is_sound) throw std::out_of_range("a place outside the residuals");
}

void py_degree_sizes(const Adjacency& adjacency, SizeOutput out) {
  check(static_cast<std::int64_t>(out.shape(0)) == adjacency.num_nodes(),
        "out must hold a byte for every node");
  std::uint8_t* const sizes = out.data();
  if (adjacency.fetched() != nullptr) {
    // How large rows are that are elsewhere is not known before they are looked at.
    std::fill_n(sizes, adjacency.num_nodes(), DegreeSize::kUnknown);
    return;
  }
  const RowOffsets offsets = offsets_of(adjacency.view());
  nb::gil_scoped_release unlocked;
  measure_degrees(offsets, adjacency.num_nodes(), adjacency.num_edges(), sizes);
}

}  // namespace

void bind_ppr(nb::module_& m) {
  nb::class_<PPRSampler>(m, "PPRSampler")
      .def(nb::init<Numbers, const std::vector<const Adjacency*>&, std::vector<SizeBytes>,
                    const Numbers&, const Numbers&, const std::vector<std::uint64_t>&,
                    const std::vector<Numbers>&, const Numbers&, double, double, const Numbers&,
                    bool, bool, bool>(),
           "num_nodes"_a, "adjacencies"_a, "sizes"_a, "expands"_a, "finds"_a, "name_hashes"_a,
           "channels"_a, "shares"_a, "alpha"_a, "eps"_a, "limits"_a, "is_typed"_a, "has_topup"_a,
           "with_edges"_a)
      .def("sample", &PPRSampler::sample, "batch_key"_a, "seed_type"_a, "seeds"_a.noconvert(),
           "excluded"_a = std::vector<Excluded>())
      .def("copy_nodes", &PPRSampler::copy_nodes, "type"_a, "out"_a.noconvert())
      .def("copy_links", &PPRSampler::copy_links, "type"_a, "index"_a.noconvert(),
           "attributes"_a.noconvert())
      .def("copy_edges", &PPRSampler::copy_edges, "relation"_a, "index"_a.noconvert(),
           "edge_ids"_a.noconvert())
      .def("record", &PPRSampler::record, "batch_key"_a, "seed_type"_a, "seeds"_a)
      .def_prop_ro("pushes", &PPRSampler::pushes);

  m.def("floor_push", &py_floor_push, "residuals"_a.noconvert(), "at"_a.noconvert(), "share"_a);
  m.def("floor_replay", &py_floor_replay, "residuals"_a.noconvert(), "adjacency"_a,
        "begins"_a.noconvert(), "counts"_a.noconvert(), "shares"_a.noconvert());
  m.def("degree_sizes", &py_degree_sizes, "adjacency"_a, "out"_a.noconvert());
}

}  // namespace penstock
