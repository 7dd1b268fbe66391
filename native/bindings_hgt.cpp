// Layers with budgets as Python sees them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "build.hpp"
#include "hgt.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using OwnedLists = std::vector<Handed>;

OwnedLists owned(hgt::Lists&& lists) {
  OwnedLists arrays;
  for (std::vector<std::int64_t>& ids : lists) arrays.push_back(handed_over(std::move(ids)));
  return arrays;
}

class HGTSampler {
 public:
  HGTSampler(std::vector<std::int64_t> num_nodes, std::vector<std::uint64_t> type_hashes,
             const std::vector<const Adjacency*>& adjacencies,
             const std::vector<std::int64_t>& expands, const std::vector<std::int64_t>& finds,
             const std::vector<std::uint64_t>& name_hashes, hgt::Lists num_samples,
             std::int64_t num_layers, std::int64_t max_neighbors) {
    const std::size_t types = num_nodes.size(), count = adjacencies.size();
    if (type_hashes.size() != types || num_samples.size() != types || expands.size() != count ||
        finds.size() != count || name_hashes.size() != count) {
      throw nb::value_error("one entry per node type, or relation, is needed in each list");
    }
    if (num_layers < 0 || max_neighbors < 1 || max_neighbors > (1LL << 31)) {
      throw nb::value_error("num_layers is not negative, max_neighbors 1 to 2**31");
    }
    check_samples(num_samples, num_layers);
    spec_ = {std::move(num_nodes), std::move(type_hashes), {},
             std::move(num_samples), num_layers,           max_neighbors};
    for (std::size_t r = 0; r < count; ++r) {
      check_relation(*adjacencies[r], expands[r], finds[r]);
      kept_.push_back(*adjacencies[r]);
      const RowsInUse rows(kept_.back());
      spec_.relations.push_back({adjacencies[r]->view(), expands[r], finds[r], name_hashes[r]});
    }
  }

  // A code, the nodes by type, rows, columns and edge ids by relation, and nodes per layer by type.
  std::tuple<int, OwnedLists, OwnedLists, OwnedLists, OwnedLists, hgt::Lists> sample(
      std::uint64_t batch_key, const std::vector<Ids>& seeds) {
    if (seeds.size() != spec_.num_nodes.size()) {
      throw nb::value_error("one array of seeds per node type is needed");
    }
    hgt::Lists starts;
    for (const Ids& ids : seeds) {
      const Strided<std::int64_t> span = strided(ids);
      std::vector<std::int64_t>& copy = starts.emplace_back(static_cast<std::size_t>(span.size));
      for (std::int64_t i = 0; i < span.size; ++i) copy[static_cast<std::size_t>(i)] = span[i];
    }
    Turn turn(busy_);
    const RowsInUse rows(kept_);
    for (std::size_t r = 0; r < kept_.size(); ++r) spec_.relations[r].adjacency = kept_[r].view();
    hgt::Sampled out;
    Outcome outcome = Outcome::kDamaged;
    {
      nb::gil_scoped_release unlocked;
      if (are_nodes(starts)) outcome = sampler_.sample(spec_, batch_key, starts, out);
    }
    return {static_cast<int>(outcome),   owned(std::move(out.nodes)),    owned(std::move(out.rows)),
            owned(std::move(out.cols)), owned(std::move(out.edge_ids)), std::move(out.layer_nodes)};
  }

 private:
  static void check_samples(const hgt::Lists& num_samples, std::int64_t num_layers) {
    for (const std::vector<std::int64_t>& layers : num_samples) {
      if (static_cast<std::int64_t>(layers.size()) != num_layers) {
        throw nb::value_error("one number of samples per layer is needed");
      }
      for (const std::int64_t count : layers) {
        if (count < 0) throw nb::value_error("a number of samples is negative");
      }
    }
  }

  void check_relation(const Adjacency& adjacency, std::int64_t expands, std::int64_t finds) const {
    const auto types = static_cast<std::int64_t>(spec_.num_nodes.size());
    if (expands < 0 || expands >= types || finds < 0 || finds >= types) {
      throw nb::value_error("a relation names a node type that is not there");
    }
    if (adjacency.num_nodes() != spec_.num_nodes[static_cast<std::size_t>(expands)]) {
      throw nb::value_error("a relation has another number of rows than its node type has nodes");
    }
  }

  bool are_nodes(const hgt::Lists& seeds) const {
    for (std::size_t type = 0; type < seeds.size(); ++type) {
      const auto count = static_cast<std::int64_t>(seeds[type].size());
      const Strided<std::int64_t> span{seeds[type].data(), count, 1};
      if (first_outside(span, spec_.num_nodes[type]) >= 0) return false;
    }
    return true;
  }

  hgt::Spec spec_;
  std::vector<Adjacency> kept_;  // the arrays that spec_ points into
  hgt::Sampler sampler_;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

}  // namespace

void bind_hgt(nb::module_& m) {
  nb::class_<HGTSampler>(m, "HGTSampler")
      .def(nb::init<std::vector<std::int64_t>, std::vector<std::uint64_t>,
                    const std::vector<const Adjacency*>&, const std::vector<std::int64_t>&,
                    const std::vector<std::int64_t>&, const std::vector<std::uint64_t>&,
                    hgt::Lists, std::int64_t, std::int64_t>(),
           "num_nodes"_a, "type_hashes"_a, "adjacencies"_a, "expands"_a, "finds"_a,
           "name_hashes"_a, "num_samples"_a, "num_layers"_a, "max_neighbors"_a)
      .def("sample", &HGTSampler::sample, "batch_key"_a, "seeds"_a);
}

}  // namespace penstock
