// Hops that are drawn in one place and put together in another, as Python sees them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "assembly.hpp"
#include "build.hpp"
#include "draw_hop.hpp"
#include "induced.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using List = std::vector<std::int64_t>;
using EdgeColumn = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig>;
using CountOutput = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<1>, nb::c_contig>;
using Column1 = nb::ndarray<nb::numpy, nb::ndim<1>, nb::c_contig>;  // of int32 or int64
using Excluded = std::tuple<Ids, Ids, std::optional<Ids>>;  // nodes, neighbours, trees
using Outputs = std::vector<IdOutput>;

template <class T>
Column1 handed_over(Grown<T>& list, std::int64_t size) {
  list.reserve(1);  // an address even where there is nothing
  T* const data = list.release();
  nb::capsule owner(data, [](void* it) noexcept { std::free(it); });
  return Column1(data, {static_cast<std::size_t>(size)}, owner, {}, nb::dtype<T>());
}

const std::int64_t* numbers(const std::optional<EdgeColumn>& column, const Adjacency& adjacency) {
  if (!column) return nullptr;
  if (adjacency.fetched() != nullptr) {
    throw nb::value_error("rows that are fetched have neither weights nor times");
  }
  if (static_cast<std::int64_t>(column->shape(0)) != adjacency.num_edges()) {
    throw nb::value_error("weights and times need one entry per edge");
  }
  check_aligned(*column);
  static constexpr std::int64_t nothing = 0;
  return column->data() == nullptr ? &nothing : column->data();
}

std::vector<ExcludedPair> pairs_of(const std::optional<Excluded>& excluded, bool by_tree) {
  std::vector<ExcludedPair> pairs;
  if (!excluded) return pairs;
  const auto& [nodes, neighbors, trees] = *excluded;
  if (trees.has_value() != by_tree) {
    throw nb::value_error("an exclusion has trees if sampling is disjoint, and only then");
  }
  const std::size_t count = nodes.shape(0);
  if (neighbors.shape(0) != count || (trees && trees->shape(0) != count)) {
    throw nb::value_error("the arrays of an exclusion must be of one length");
  }
  const Strided<std::int64_t> node = strided(nodes), neighbor = strided(neighbors);
  for (std::int64_t i = 0; i < node.size; ++i) {
    pairs.push_back({node[i], neighbor[i], trees ? strided(*trees)[i] : 0});
  }
  return pairs;
}

// What draws for nodes, and stays between calls: one for each thread.
HopDrawer& drawer() {
  static thread_local HopDrawer kept;
  return kept;
}

// The topology's edge ids fit its entries, but where they are positions there may be too many.
template <class Adjacency>
constexpr bool ids_are_wide(const Adjacency& adjacency) {
  using Id = typename Adjacency::Id;
  if constexpr (std::is_same_v<Adjacency, Bare<Id>>) {
    return sizeof(Id) < sizeof(std::int64_t) &&
           adjacency.num_edges > std::numeric_limits<Id>::max();
  }
  return false;
}

// A code, and the neighbours and edge ids. kTooSmall: a node gives more edges than a count can say.
std::tuple<int, Column1, Column1> py_draw_hop(
    const Adjacency& adjacency, const Input& nodes, std::int64_t fanout, std::uint64_t key,
    bool replace, const std::optional<EdgeColumn>& weights, const std::optional<EdgeColumn>& times,
    bool last, const std::optional<Input>& trees, const std::optional<Input>& node_times,
    const std::optional<Excluded>& excluded, CountOutput counts) {
  List ids = copied(nodes), whose = trees ? copied(*trees) : List();
  const List until = node_times ? copied(*node_times) : List();
  const std::size_t size = ids.size();
  if (counts.shape(0) != size || (trees && whose.size() != size) ||
      (node_times && until.size() != size)) {
    throw nb::value_error("one count, tree and time per node is needed");
  }
  if (weights && times) throw nb::value_error("there are weights or times, not both");
  if (times && (!trees || !node_times)) throw nb::value_error("times need trees and their times");
  check_aligned(counts);
  check_apart({extent(counts)}, adjacency.extents());
  const ChoiceSpec choice{fanout, replace, last, key, numbers(weights, adjacency),
                          numbers(times, adjacency)};
  Exclusion exclusion;
  exclusion.assign(pairs_of(excluded, trees.has_value()), trees.has_value());
  const auto count = static_cast<std::int64_t>(size);
  const NodeList list{Column(ids.data(), count), count, Column(whose.data(), count)};
  const DrawSpec spec{choice, &list, times ? until.data() : nullptr,
                      exclusion.empty() ? nullptr : &exclusion};
  auto* const many = reinterpret_cast<std::uint32_t*>(counts.data());
  const RowsInUse in_use(adjacency);
  return std::visit(
      [&]<class Rows>(const Rows& rows) -> std::tuple<int, Column1, Column1> {
        DrawnEdges<typename Rows::Id> out;
        out.are_wide = ids_are_wide(rows);
        Outcome outcome = Outcome::kDamaged;
        {
          nb::gil_scoped_release unlocked;
          const Strided<std::int64_t> span{ids.data(), count, 1};
          const Strided<std::int64_t> tree_span{whose.data(), trees ? count : 0, 1};
          constexpr std::int64_t kMostTrees = std::numeric_limits<std::int64_t>::max();
          if (first_outside(span, adjacency.num_nodes()) < 0 &&
              first_outside(tree_span, kMostTrees) < 0) {
            outcome = trees ? drawer().template draw<true>(rows, spec, many, out)
                            : drawer().template draw<false>(rows, spec, many, out);
          }
          for (std::size_t i = 0; i < size && outcome == Outcome::kDone; ++i) {
            if (many[i] > std::numeric_limits<std::int32_t>::max()) outcome = Outcome::kTooSmall;
          }
        }
        if (outcome != Outcome::kDone) out.size = 0;
        Column1 found = handed_over(out.neighbors, out.size);
        if (out.are_wide) {
          return {static_cast<int>(outcome), found, handed_over(out.wide_ids, out.size)};
        }
        return {static_cast<int>(outcome), found, handed_over(out.edge_ids, out.size)};
      },
      adjacency.view());
}

// A code, positions in `tails` and edge ids.
std::tuple<int, Handed, Handed> py_edges_within(const Adjacency& adjacency, const Input& heads,
                                                const Input& tails,
                                                const std::optional<Input>& head_trees,
                                                const std::optional<Input>& tail_trees,
                                                CountOutput counts) {
  const List from = copied(heads), to = copied(tails);
  const List from_trees = head_trees ? copied(*head_trees) : List();
  const List to_trees = tail_trees ? copied(*tail_trees) : List();
  if (head_trees.has_value() != tail_trees.has_value()) {
    throw nb::value_error("heads and tails have trees, or neither have");
  }
  if (counts.shape(0) != from.size() || (head_trees && from_trees.size() != from.size()) ||
      (tail_trees && to_trees.size() != to.size())) {
    throw nb::value_error("one count and tree per node is needed");
  }
  check_aligned(counts);
  check_apart({extent(counts)}, adjacency.extents());
  std::int32_t* const many = counts.data();
  List lists[3];
  EdgeList edges{Column(&lists[0]), Column(&lists[1]), Column(&lists[2])};
  Outcome outcome = Outcome::kDamaged;
  const RowsInUse in_use(adjacency);
  {
    nb::gil_scoped_release unlocked;
    const auto listed = [](const List& nodes, const List* trees) {
      return Listed{nodes.data(), trees == nullptr ? nullptr : trees->data(),
                    static_cast<std::int64_t>(nodes.size())};
    };
    const Listed first = listed(from, head_trees ? &from_trees : nullptr);
    const Strided<std::int64_t> span{from.data(), first.size, 1};
    if (first_outside(span, adjacency.num_nodes()) < 0) {
      ListedPlaces places, repeated;
      places.fill(listed(to, tail_trees ? &to_trees : nullptr));
      const bool repeats = repeated.fill(first);
      outcome = std::visit(
          [&](const auto& rows) {
            constexpr std::int64_t kAnyNode = std::numeric_limits<std::int64_t>::max();
            return Inducing(rows, kAnyNode, first, repeats ? &repeated : nullptr, places, edges)
                .run();
          },
          adjacency.view());
    }
    std::fill_n(many, from.size(), 0);
    if (outcome != Outcome::kDone) edges.size = 0;
    for (std::int64_t i = 0; i < edges.size; ++i) ++many[edges.col.data()[i]];
    for (List& list : lists) list.resize(static_cast<std::size_t>(edges.size));
  }
  return {static_cast<int>(outcome), penstock::handed_over(std::move(lists[0])),
          penstock::handed_over(std::move(lists[2]))};
}

class HopAssembly {
 public:
  HopAssembly(List num_nodes, const List& expands, const List& finds, std::int64_t num_hops,
              List node_caps, bool disjoint)
      : assembly_(checked(std::move(num_nodes), expands, finds, num_hops, std::move(node_caps),
                          disjoint)) {}

  void begin(const std::vector<Ids>& seeds, const Outputs& nodes, const Outputs& rows,
             const Outputs& cols, const std::optional<Outputs>& edge_ids,
             const std::optional<Outputs>& trees) {
    Turn turn(busy_);
    const AssemblySpec& spec = assembly_.spec();
    if (seeds.size() != spec.num_nodes.size()) {
      throw nb::value_error("one array of seeds per node type is needed");
    }
    std::vector<List> starts;
    std::int64_t num_seeds = 0;
    for (std::size_t type = 0; type < seeds.size(); ++type) {
      const Strided<std::int64_t> span = strided(seeds[type]);
      List& copy = starts.emplace_back(static_cast<std::size_t>(span.size));
      for (std::int64_t i = 0; i < span.size; ++i) copy[static_cast<std::size_t>(i)] = span[i];
      if (first_outside(Strided<std::int64_t>{copy.data(), span.size, 1}, spec.num_nodes[type]) >= 0) {
        throw nb::value_error("a seed is no node of its type");
      }
      num_seeds += span.size;
    }
    for (const std::int64_t count : spec.num_nodes) {
      if (spec.disjoint && !ByTree().arrange(count, num_seeds)) {
        throw nb::value_error("a tree and a node do not fit a key");
      }
    }
    const BatchMemory memory = memory_of(nodes, rows, cols, edge_ids, trees);
    stage_ = Stage::kNone;
    held_ = {nodes, rows, cols};
    if (edge_ids) held_.push_back(*edge_ids);
    if (trees) held_.push_back(*trees);
    {
      nb::gil_scoped_release unlocked;
      assembly_.begin(starts, memory);
    }
    memory_ = memory;
    next_ = 0;
    stage_ = Stage::kBegun;
  }

  // The nodes of a type that this hop expands, and their trees.
  std::pair<Handed, std::optional<Handed>> frontier(std::int64_t type) {
    Turn turn(busy_);
    expect(Stage::kBegun);
    const std::size_t number = checked(type, assembly_.spec().num_nodes.size());
    List ids(static_cast<std::size_t>(assembly_.num_expanded(number))), trees;
    if (assembly_.spec().disjoint) trees.resize(ids.size());
    assembly_.copy_frontier(number, ids.data(), assembly_.spec().disjoint ? trees.data() : nullptr);
    std::optional<Handed> whose;
    if (assembly_.spec().disjoint) whose = handed(std::move(trees));
    return {handed(std::move(ids)), std::move(whose)};
  }

  // A code, and what it is about: 0; 1: how many counts are expected; 2: the position of a count that
  // is none; 3: what the counts add up to; 4: the position of a neighbour that is no node.
  std::pair<int, std::int64_t> take(std::int64_t relation, const Input& counts,
                                    const Input& neighbors, const Input& edge_ids) {
    Turn turn(busy_);
    expect(Stage::kBegun);
    const AssemblySpec& spec = assembly_.spec();
    const std::size_t number = checked(relation, spec.ends.size());
    if (static_cast<std::int64_t>(number) < next_ || assembly_.hop() >= spec.num_hops) {
      throw nb::value_error("relations come in order, once in a hop");
    }
    const std::int64_t expected = assembly_.num_expanded(spec.ends[number].first);
    if (static_cast<std::int64_t>(length(counts)) != expected) return {1, expected};
    if (length(edge_ids) != length(neighbors)) {
      throw nb::value_error("one edge id per neighbour is needed");
    }
    check_read(counts, neighbors, edge_ids);
    Assembly::Verdict verdict{Assembly::Taken::kDone};
    with_ids(counts, [&](auto many) {
      with_ids(neighbors, [&](auto found) {
        with_ids(edge_ids, [&](auto edges) {
          nb::gil_scoped_release unlocked;
          verdict = assembly_.take(number, many, found, edges);
        });
      });
    });
    if (verdict.what == Assembly::Taken::kDone) next_ = relation + 1;
    switch (verdict.what) {
      case Assembly::Taken::kDone: return {0, 0};
      case Assembly::Taken::kBadCount: return {2, verdict.at};
      case Assembly::Taken::kBadSum: return {3, verdict.at};
      case Assembly::Taken::kNoNode: break;
    }
    return {4, verdict.at};
  }

  void end_hop() {
    Turn turn(busy_);
    expect(Stage::kBegun);
    if (assembly_.hop() >= assembly_.spec().num_hops) throw nb::value_error("there is no hop left");
    assembly_.end_hop();
    next_ = 0;
  }

  // Whether the batch fits its memory, where it is then, and the counts per hop. Where it does not,
  // it is kept.
  std::tuple<bool, std::vector<List>, std::vector<List>> finish() {
    Turn turn(busy_);
    expect(Stage::kBegun);
    const auto counts = std::pair(assembly_.lists().hop_nodes, assembly_.lists().hop_edges);
    bool fits = false;
    {
      nb::gil_scoped_release unlocked;
      assembly_.finish();
      fits = assembly_.write(memory_);
      if (!fits) assembly_.take_back();
      else assembly_.forget();
    }
    held_.clear();
    stage_ = fits ? Stage::kNone : Stage::kKept;
    return {fits, counts.first, counts.second};
  }

  // Writes the batch that is kept into other memory; false where it does not fit.
  bool write(const Outputs& nodes, const Outputs& rows, const Outputs& cols,
             const std::optional<Outputs>& edge_ids, const std::optional<Outputs>& trees) {
    Turn turn(busy_);
    expect(Stage::kKept);
    const BatchMemory memory = memory_of(nodes, rows, cols, edge_ids, trees);
    if (memory.with_edge_ids != memory_.with_edge_ids) {
      throw nb::value_error("edge ids are there for a batch that was begun with them");
    }
    nb::gil_scoped_release unlocked;
    return assembly_.write(memory);
  }

 private:
  enum class Stage { kNone, kBegun, kKept };

  static Handed handed(List&& list) { return penstock::handed_over(std::move(list)); }

  static AssemblySpec checked(List num_nodes, const List& expands, const List& finds,
                              std::int64_t num_hops, List node_caps, bool disjoint) {
    if (expands.size() != finds.size() || num_hops < 0) {
      throw nb::value_error("each relation expands one type and finds one");
    }
    AssemblySpec spec{std::move(num_nodes), {}, num_hops, std::move(node_caps), disjoint};
    for (std::size_t r = 0; r < expands.size(); ++r) {
      spec.ends.emplace_back(checked(expands[r], spec.num_nodes.size()),
                             checked(finds[r], spec.num_nodes.size()));
    }
    return spec;
  }

  static std::size_t checked(std::int64_t number, std::size_t count) {
    if (number < 0 || static_cast<std::size_t>(number) >= count) {
      throw nb::value_error("there is no such type or relation");
    }
    return static_cast<std::size_t>(number);
  }

  void expect(Stage stage) const {
    if (stage_ == stage) return;
    throw std::runtime_error(stage == Stage::kKept ? "no batch is kept"
                                                   : "no batch was begun, or it is finished");
  }

  // What is taken must not lie where the batch is written.
  void check_read(const Input& counts, const Input& neighbors, const Input& edge_ids) const {
    std::vector<Extent> written;
    for (const Outputs& outputs : held_) {
      for (const IdOutput& out : outputs) written.push_back(extent(out));
    }
    check_apart(std::move(written), {extent(counts), extent(neighbors), extent(edge_ids)});
  }

  BatchMemory memory_of(const Outputs& nodes, const Outputs& rows, const Outputs& cols,
                        const std::optional<Outputs>& edge_ids,
                        const std::optional<Outputs>& trees) const {
    const AssemblySpec& spec = assembly_.spec();
    const std::size_t types = spec.num_nodes.size(), relations = spec.ends.size();
    if (nodes.size() != types || rows.size() != relations || cols.size() != relations ||
        (edge_ids && edge_ids->size() != relations) || (trees && trees->size() != types)) {
      throw nb::value_error("one array per node type, or relation, is needed in each list");
    }
    if (trees.has_value() != spec.disjoint) {
      throw nb::value_error("trees are for disjoint sampling, which needs them");
    }
    BatchMemory memory;
    std::vector<Extent> written;
    const auto add = [&](const Outputs& outputs, std::vector<BatchMemory::Room>& rooms) {
      for (const IdOutput& out : outputs) {
        check_aligned(out);
        written.push_back(extent(out));
        rooms.push_back({out.data(), static_cast<std::int64_t>(out.shape(0))});
      }
    };
    add(nodes, memory.nodes);
    add(rows, memory.rows);
    add(cols, memory.cols);
    if (edge_ids) add(*edge_ids, memory.edge_ids);
    if (trees) add(*trees, memory.trees);
    check_apart(std::move(written), {});
    memory.with_edge_ids = edge_ids.has_value();
    return memory;
  }

  Assembly assembly_;
  BatchMemory memory_;
  std::vector<Outputs> held_;  // the arrays that a batch is being written to
  std::int64_t next_ = 0;      // the first relation that may still come in this hop
  Stage stage_ = Stage::kNone;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

}  // namespace

void bind_hops(nb::module_& m) {
  m.def("draw_hop", &py_draw_hop, "adjacency"_a, "nodes"_a.noconvert(), "fanout"_a, "key"_a,
        "replace"_a, "weights"_a.noconvert().none(), "times"_a.noconvert().none(), "last"_a,
        "trees"_a.noconvert().none(), "node_times"_a.noconvert().none(), "excluded"_a.none(),
        "counts"_a.noconvert());
  m.def("edges_within", &py_edges_within, "adjacency"_a, "heads"_a.noconvert(),
        "tails"_a.noconvert(), "head_trees"_a.noconvert().none(),
        "tail_trees"_a.noconvert().none(), "counts"_a.noconvert());

  nb::class_<HopAssembly>(m, "HopAssembly")
      .def(nb::init<List, const List&, const List&, std::int64_t, List, bool>(), "num_nodes"_a,
           "expands"_a, "finds"_a, "num_hops"_a, "node_caps"_a, "disjoint"_a)
      .def("begin", &HopAssembly::begin, "seeds"_a, "nodes"_a.noconvert(), "rows"_a.noconvert(),
           "cols"_a.noconvert(), "edge_ids"_a.none().noconvert(), "trees"_a.none().noconvert())
      .def("frontier", &HopAssembly::frontier, "type"_a)
      .def("take", &HopAssembly::take, "relation"_a, "counts"_a.noconvert(),
           "neighbors"_a.noconvert(), "edge_ids"_a.noconvert())
      .def("end_hop", &HopAssembly::end_hop)
      .def("finish", &HopAssembly::finish)
      .def("write", &HopAssembly::write, "nodes"_a.noconvert(), "rows"_a.noconvert(),
           "cols"_a.noconvert(), "edge_ids"_a.none().noconvert(), "trees"_a.none().noconvert());
}

}  // namespace penstock
