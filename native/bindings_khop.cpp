// The k-hop kernels as Python sees them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "batch.hpp"
#include "build.hpp"
#include "khop.hpp"
#include "python.hpp"
#include "rng.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using EdgeColumn = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig>;
using EdgeColumns = std::vector<std::optional<EdgeColumn>>;
using Outputs = std::vector<IdOutput>;
// A relation by number, nodes that are expanded, neighbours they must not find, and in which trees.
using Excluded = std::tuple<std::int64_t, Ids, Ids, std::optional<Ids>>;

class KHopSampler {
 public:
  KHopSampler(std::vector<std::int64_t> num_nodes, std::vector<const Adjacency*> adjacencies,
              const std::vector<std::int64_t>& expands, const std::vector<std::int64_t>& finds,
              const std::vector<std::uint64_t>& name_hashes, const IdLists& fanouts,
              std::int64_t num_hops, bool replace, std::vector<std::int64_t> node_caps,
              EdgeColumns weights, EdgeColumns times, bool disjoint, bool last)
      : weights_(std::move(weights)), times_(std::move(times)) {
    const std::size_t count = adjacencies.size();
    weights_.resize(weights_.empty() ? count : weights_.size());
    times_.resize(times_.empty() ? count : times_.size());
    if (expands.size() != count || finds.size() != count || name_hashes.size() != count ||
        fanouts.size() != count || weights_.size() != count || times_.size() != count ||
        num_hops < 0) {
      throw nb::value_error("one entry per relation is needed in each list");
    }
    spec_ = {std::move(num_nodes), {}, num_hops, replace, 0, std::move(node_caps),
             disjoint,             last, {}};
    for (std::size_t r = 0; r < count; ++r) {
      check_relation(*adjacencies[r], expands[r], finds[r], fanouts[r]);
      kept_.push_back(*adjacencies[r]);
      const RowsInUse rows(kept_.back());
      spec_.relations.push_back({adjacencies[r]->view(), expands[r], finds[r], name_hashes[r],
                                 fanouts[r], numbers(weights_[r], *adjacencies[r]),
                                 numbers(times_[r], *adjacencies[r])});
      timed_ |= times_[r].has_value();
      if (weights_[r] && times_[r]) {
        throw nb::value_error("a relation has weights or times, not both");
      }
    }
    if (timed_ && !disjoint) throw nb::value_error("times need disjoint sampling");
  }

  // Returns a code and the counts per hop, which say how much memory is needed if it was too small.
  std::tuple<int, IdLists, IdLists> sample(std::uint64_t batch_key, const std::vector<Ids>& seeds,
                                           const Outputs& nodes, const Outputs& rows,
                                           const Outputs& cols,
                                           const std::optional<Outputs>& edge_ids,
                                           const std::optional<Outputs>& trees,
                                           const std::optional<std::vector<Ids>>& times,
                                           const std::vector<Excluded>& excluded) {
    const std::size_t types = spec_.num_nodes.size(), relations = spec_.relations.size();
    if (seeds.size() != types || nodes.size() != types || rows.size() != relations ||
        cols.size() != relations || (edge_ids && edge_ids->size() != relations) ||
        (trees && trees->size() != types) || (times && times->size() != types)) {
      throw nb::value_error("one array per node type, or relation, is needed in each list");
    }
    if (trees.has_value() != spec_.disjoint) {
      throw nb::value_error("trees are for disjoint sampling, which needs them");
    }
    check_apart({&nodes, &rows, &cols, edge_ids ? &*edge_ids : nullptr, trees ? &*trees : nullptr});
    const IdLists starts = copies(seeds);  // the seeds may lie in memory that will be written to
    std::vector<std::int64_t> tree_times = times_of_trees(starts, times);
    std::vector<std::vector<ExcludedPair>> pairs = pairs_of(excluded);
    BatchLists lists;
    for (std::size_t t = 0; t < types; ++t) {
      const Column whose = trees ? column((*trees)[t]) : Column(nullptr, 0);
      lists.nodes.push_back({column(nodes[t]), 0, whose});
    }
    for (std::size_t r = 0; r < relations; ++r) {
      const Column ids = edge_ids ? column((*edge_ids)[r]) : Column(nullptr, 0);
      lists.edges.push_back({column(rows[r]), column(cols[r]), ids, edge_ids.has_value()});
    }
    Turn turn(busy_);
    const RowsInUse in_use(kept_);
    for (std::size_t r = 0; r < relations; ++r) spec_.relations[r].adjacency = kept_[r].view();
    Outcome outcome;
    {
      nb::gil_scoped_release unlocked;
      spec_.batch_key = batch_key;
      spec_.tree_times = std::move(tree_times);
      exclude(std::move(pairs));
      outcome = sampler_.sample(spec_, starts, lists);
    }
    return {static_cast<int>(outcome), std::move(lists.hop_nodes), std::move(lists.hop_edges)};
  }

 private:
  void check_relation(const Adjacency& adjacency, std::int64_t expands, std::int64_t finds,
                      const std::vector<std::int64_t>& fanouts) const {
    const auto types = static_cast<std::int64_t>(spec_.num_nodes.size());
    if (expands < 0 || expands >= types || finds < 0 || finds >= types) {
      throw nb::value_error("a relation names a node type that is not there");
    }
    if (adjacency.num_nodes() != spec_.num_nodes[static_cast<std::size_t>(expands)]) {
      throw nb::value_error("a relation has another number of rows than its node type has nodes");
    }
    if (static_cast<std::int64_t>(fanouts.size()) != spec_.num_hops) {
      throw nb::value_error("one fan-out per hop is needed");
    }
  }

  static const std::int64_t* numbers(const std::optional<EdgeColumn>& column,
                                     const Adjacency& adjacency) {
    if (!column) return nullptr;
    if (adjacency.fetched() != nullptr) {
      throw nb::value_error("rows that are fetched have neither weights nor times");
    }
    if (static_cast<std::int64_t>(column->shape(0)) != adjacency.num_edges()) {
      throw nb::value_error("weights and times need one entry per edge");
    }
    check_aligned(*column);
    // An array without elements may lie nowhere; that there is one counts all the same.
    static constexpr std::int64_t nothing = 0;
    return column->data() == nullptr ? &nothing : column->data();
  }

  static void check_apart(std::initializer_list<const Outputs*> lists) {
    std::vector<Extent> written;
    for (const Outputs* outputs : lists) {
      if (outputs == nullptr) continue;
      for (const IdOutput& out : *outputs) written.push_back(extent(out));
    }
    penstock::check_apart(std::move(written), {});
  }

  static IdLists copies(const std::vector<Ids>& arrays) {
    IdLists result;
    for (const Ids& ids : arrays) {
      const Strided<std::int64_t> span = strided(ids);
      std::vector<std::int64_t>& copy = result.emplace_back(static_cast<std::size_t>(span.size));
      for (std::int64_t i = 0; i < span.size; ++i) copy[static_cast<std::size_t>(i)] = span[i];
    }
    return result;
  }

  // One after the other, as the trees are numbered.
  std::vector<std::int64_t> times_of_trees(const IdLists& seeds,
                                           const std::optional<std::vector<Ids>>& times) const {
    std::vector<std::int64_t> result;
    if (!times) {
      if (timed_) throw nb::value_error("times are needed, one per seed");
      return result;
    }
    const IdLists given = copies(*times);
    for (std::size_t t = 0; t < given.size(); ++t) {
      if (given[t].size() != seeds[t].size()) throw nb::value_error("one time per seed is needed");
      result.insert(result.end(), given[t].begin(), given[t].end());
    }
    return result;
  }

  // By relation; nothing where nothing is excluded.
  std::vector<std::vector<ExcludedPair>> pairs_of(const std::vector<Excluded>& excluded) const {
    std::vector<std::vector<ExcludedPair>> pairs(excluded.empty() ? 0 : spec_.relations.size());
    for (const auto& [relation, nodes, neighbors, trees] : excluded) {
      if (relation < 0 || static_cast<std::size_t>(relation) >= pairs.size()) {
        throw nb::value_error("an exclusion names a relation that is not there");
      }
      if (trees.has_value() != spec_.disjoint) {
        throw nb::value_error("an exclusion has trees if sampling is disjoint, and only then");
      }
      const std::size_t count = nodes.shape(0);
      if (neighbors.shape(0) != count || (trees && trees->shape(0) != count)) {
        throw nb::value_error("the arrays of an exclusion must be of one length");
      }
      const Strided<std::int64_t> node = strided(nodes), neighbor = strided(neighbors);
      auto& list = pairs[static_cast<std::size_t>(relation)];
      for (std::int64_t i = 0; i < node.size; ++i) {
        list.push_back({node[i], neighbor[i], trees ? strided(*trees)[i] : 0});
      }
    }
    return pairs;
  }

  void exclude(std::vector<std::vector<ExcludedPair>> pairs) {
    spec_.excluded = pairs.empty() ? nullptr : &excluded_;
    excluded_.resize(pairs.size());
    for (std::size_t r = 0; r < pairs.size(); ++r) {
      excluded_[r].assign(std::move(pairs[r]), spec_.disjoint);
    }
  }

  BatchSpec spec_;
  std::vector<Exclusion> excluded_;  // of the batch that is being made
  std::vector<Adjacency> kept_;  // the arrays that spec_ points into, as are the next two
  EdgeColumns weights_;
  EdgeColumns times_;
  bool timed_ = false;
  BatchSampler sampler_;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

}  // namespace

void bind_khop(nb::module_& m) {
  nb::class_<KHopSampler>(m, "KHopSampler")
      .def(nb::init<std::vector<std::int64_t>, std::vector<const Adjacency*>,
                    const std::vector<std::int64_t>&, const std::vector<std::int64_t>&,
                    const std::vector<std::uint64_t>&, const IdLists&, std::int64_t, bool,
                    std::vector<std::int64_t>, EdgeColumns, EdgeColumns, bool, bool>(),
           "num_nodes"_a, "adjacencies"_a, "expands"_a, "finds"_a, "name_hashes"_a, "fanouts"_a,
           "num_hops"_a, "replace"_a, "node_caps"_a, "weights"_a = EdgeColumns(),
           "times"_a = EdgeColumns(), "disjoint"_a = false, "last"_a = false)
      // What is written to is not converted: nobody would see the copy.
      .def("sample", &KHopSampler::sample, "batch_key"_a, "seeds"_a, "nodes"_a.noconvert(),
           "rows"_a.noconvert(), "cols"_a.noconvert(), "edge_ids"_a.none().noconvert(),
           "trees"_a.none().noconvert() = nb::none(), "times"_a = nb::none(),
           "excluded"_a = std::vector<Excluded>());
}

}  // namespace penstock
