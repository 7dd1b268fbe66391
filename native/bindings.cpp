// The native module as Python sees it. Shapes and types are checked here, ids in the Python face;
// every kernel runs with the interpreter's lock released.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "batch.hpp"
#include "build.hpp"
#include "digest.hpp"
#include "floor.hpp"
#include "gather.hpp"
#include "khop.hpp"
#include "permute.hpp"
#include "relabel.hpp"
#include "rng.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

std::int64_t py_first_outside(const Input& ids, std::int64_t bound) {
  return with_ids(ids, [&](auto span) {
    nb::gil_scoped_release unlocked;
    return first_outside(span, bound);
  });
}

bool py_is_sorted(const Input& ids) {
  return with_ids(ids, [](auto span) {
    nb::gil_scoped_release unlocked;
    return is_sorted(span);
  });
}

bool is_paired(std::size_t ndim, std::int64_t width) {
  if (ndim == 1) return false;
  if (ndim == 2 && width == 2) return true;
  throw nb::value_error("adjacency must have shape [E] or [E, 2]");
}

void py_fill_adjacency(const Input& keys, const Input& values, IdOutput indptr, Output adjacency) {
  const bool paired =
      is_paired(adjacency.ndim(), adjacency.ndim() == 2 ? adjacency.shape(1) : 0);
  if (keys.dtype() != values.dtype() || keys.ndim() != 1 || values.ndim() != 1) {
    throw nb::value_error("keys and values must be one-dimensional and of one type");
  }
  if (keys.shape(0) != values.shape(0) || adjacency.shape(0) != keys.shape(0)) {
    throw nb::value_error("keys, values and adjacency must be of one length");
  }
  if (indptr.shape(0) < 1) throw nb::value_error("indptr must have at least one entry");
  check_aligned(indptr);
  check_aligned(adjacency);
  check_apart({extent(indptr), extent(adjacency)}, {extent(keys), extent(values)});
  const auto num_rows = static_cast<std::int64_t>(indptr.shape(0)) - 1;
  std::int64_t* const starts = indptr.data();
  void* const entries = adjacency.data();
  with_ids(keys, [&]<class T>(Strided<T> key_span) {
    const Strided<T> value_span = strided<T>(values);
    return with_index_type(adjacency.dtype(), [&]<class Index>(Index*) {
      nb::gil_scoped_release unlocked;
      if (paired) {
        fill_paired(key_span, value_span, starts, num_rows, static_cast<Index*>(entries));
      } else {
        fill_bare(key_span, value_span, starts, num_rows, static_cast<Index*>(entries));
      }
    });
  });
}

// Rows of neighbours that keep the arrays they point into alive.
class Adjacency {
 public:
  Adjacency(nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig> indptr,
            nb::ndarray<nb::numpy, nb::ro, nb::c_contig> entries)
      : indptr_(std::move(indptr)), entries_(std::move(entries)) {
    if (indptr_.shape(0) < 1) throw nb::value_error("indptr must have at least one entry");
    check_aligned(indptr_);
    check_aligned(entries_);
    const bool paired = is_paired(entries_.ndim(), entries_.ndim() == 2 ? entries_.shape(1) : 0);
    with_index_type(entries_.dtype(), [&]<class Index>(Index*) {
      if (paired) view_ = make<Paired<Index>>();
      else view_ = make<Bare<Index>>();
    });
  }

  std::int64_t num_nodes() const { return static_cast<std::int64_t>(indptr_.shape(0)) - 1; }
  std::int64_t num_edges() const { return static_cast<std::int64_t>(entries_.shape(0)); }
  const AnyAdjacency& view() const { return view_; }
  std::vector<Extent> extents() const { return {extent(indptr_), extent(entries_)}; }

 private:
  template <class View>
  AnyAdjacency make() const {
    using Index = typename View::Id;
    return View{indptr_.data(), static_cast<const Index*>(entries_.data()), num_nodes(),
                num_edges()};
  }

  nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig> indptr_;
  nb::ndarray<nb::numpy, nb::ro, nb::c_contig> entries_;
  AnyAdjacency view_;
};

bool py_transpose(const Adjacency& from, IdOutput indptr, Output adjacency) {
  if (adjacency.ndim() != 2 || adjacency.shape(1) != 2 ||
      static_cast<std::int64_t>(adjacency.shape(0)) != from.num_edges() || indptr.shape(0) < 1) {
    throw nb::value_error("the transpose needs indptr [n + 1] and adjacency [E, 2]");
  }
  check_aligned(indptr);
  check_aligned(adjacency);
  check_apart({extent(indptr), extent(adjacency)}, from.extents());
  const auto num_rows = static_cast<std::int64_t>(indptr.shape(0)) - 1;
  std::int64_t* const starts = indptr.data();
  void* const entries = adjacency.data();
  return with_index_type(adjacency.dtype(), [&]<class Index>(Index*) {
    nb::gil_scoped_release unlocked;
    return std::visit(
        [&](const auto& view) {
          return transpose(view, num_rows, starts, static_cast<Index*>(entries));
        },
        from.view());
  });
}

nb::bytes py_digest(const Bytes& bytes) {
  Digest result;
  {
    const unsigned char* const data = bytes.data();
    const std::size_t size = bytes.shape(0);
    nb::gil_scoped_release unlocked;
    result = digest(data, size);
  }
  return nb::bytes(&result, sizeof result);
}

std::int64_t py_gather_rows(const Bytes& rows, std::int64_t num_rows, std::int64_t row_bytes,
                            const Ids& ids, ByteOutput out) {
  if (num_rows < 0 || row_bytes < 0 ||
      rows.shape(0) != static_cast<std::size_t>(num_rows) * static_cast<std::size_t>(row_bytes)) {
    throw nb::value_error("rows must hold num_rows * row_bytes bytes");
  }
  if (out.shape(0) != ids.shape(0) * static_cast<std::size_t>(row_bytes)) {
    throw nb::value_error("out must hold one row per id");
  }
  check_apart({extent(out)}, {extent(rows), extent(ids)});
  const auto* const from = reinterpret_cast<const char*>(rows.data());
  auto* const to = reinterpret_cast<char*>(out.data());
  const Strided<std::int64_t> span = strided(ids);
  nb::gil_scoped_release unlocked;
  return gather_rows(from, num_rows, row_bytes, span, to);
}

void py_permute(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size, std::uint64_t start,
                IdOutput out) {
  if (start > size || out.shape(0) > size - start) {
    throw nb::value_error("start and out must lie within the permutation");
  }
  check_aligned(out);
  std::int64_t* const to = out.data();
  const std::uint64_t count = out.shape(0);
  nb::gil_scoped_release unlocked;
  const Permutation permutation(seed, epoch, size);
  for (std::uint64_t i = 0; i < count; ++i) to[i] = static_cast<std::int64_t>(permutation(start + i));
}

// --- sampling ---------------------------------------------------------------------------------

// One thread at a time: a second one is told so instead of corrupting the tables.
class Turn {
 public:
  explicit Turn(std::atomic_flag& busy) : busy_(busy) {
    if (busy_.test_and_set()) {
      throw std::runtime_error("this object is in use by another thread; give each its own");
    }
  }
  ~Turn() { busy_.clear(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic_flag& busy_;
};

Column column(const IdOutput& out) {
  check_aligned(out);
  return Column(out.data(), static_cast<std::int64_t>(out.shape(0)));
}

class KHopSampler {
 public:
  KHopSampler(std::vector<std::int64_t> num_nodes, std::vector<const Adjacency*> adjacencies,
              const std::vector<std::int64_t>& expands, const std::vector<std::int64_t>& finds,
              const std::vector<std::uint64_t>& name_hashes, const IdLists& fanouts,
              std::int64_t num_hops, bool replace, std::vector<std::int64_t> node_caps) {
    const std::size_t count = adjacencies.size();
    if (expands.size() != count || finds.size() != count || name_hashes.size() != count ||
        fanouts.size() != count || num_hops < 0) {
      throw nb::value_error("one entry per relation is needed in each list");
    }
    spec_ = {std::move(num_nodes), {}, num_hops, replace, 0, std::move(node_caps)};
    for (std::size_t r = 0; r < count; ++r) {
      check_relation(*adjacencies[r], expands[r], finds[r], fanouts[r]);
      kept_.push_back(*adjacencies[r]);
      spec_.relations.push_back(
          {adjacencies[r]->view(), expands[r], finds[r], name_hashes[r], fanouts[r]});
    }
  }

  // Returns a code and the counts per hop, which say how much memory is needed if it was too small.
  std::tuple<int, IdLists, IdLists> sample(std::uint64_t batch_key, const std::vector<Ids>& seeds,
                                         const std::vector<IdOutput>& nodes,
                                         const std::vector<IdOutput>& rows,
                                         const std::vector<IdOutput>& cols,
                                         const std::optional<std::vector<IdOutput>>& edge_ids) {
    const std::size_t types = spec_.num_nodes.size(), relations = spec_.relations.size();
    if (seeds.size() != types || nodes.size() != types || rows.size() != relations ||
        cols.size() != relations || (edge_ids && edge_ids->size() != relations)) {
      throw nb::value_error("one array per node type, or relation, is needed in each list");
    }
    check_apart(nodes, rows, cols, edge_ids);
    BatchLists lists;
    IdLists starts;  // copied: the seeds may lie in memory that will be written to
    for (const Ids& ids : seeds) {
      const Strided<std::int64_t> span = strided(ids);
      std::vector<std::int64_t>& copy = starts.emplace_back(static_cast<std::size_t>(span.size));
      for (std::int64_t i = 0; i < span.size; ++i) copy[static_cast<std::size_t>(i)] = span[i];
    }
    for (const IdOutput& out : nodes) lists.nodes.push_back({column(out)});
    for (std::size_t r = 0; r < relations; ++r) {
      const Column ids = edge_ids ? column((*edge_ids)[r]) : Column(nullptr, 0);
      lists.edges.push_back({column(rows[r]), column(cols[r]), ids, edge_ids.has_value()});
    }
    Turn turn(busy_);
    Outcome outcome;
    {
      nb::gil_scoped_release unlocked;
      spec_.batch_key = batch_key;
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

  static void check_apart(const std::vector<IdOutput>& nodes, const std::vector<IdOutput>& rows,
                          const std::vector<IdOutput>& cols,
                          const std::optional<std::vector<IdOutput>>& edge_ids) {
    std::vector<Extent> written;
    for (const auto* outputs : {&nodes, &rows, &cols, edge_ids ? &*edge_ids : nullptr}) {
      if (outputs == nullptr) continue;
      for (const IdOutput& out : *outputs) written.push_back(extent(out));
    }
    penstock::check_apart(std::move(written), {});
  }

  BatchSpec spec_;
  std::vector<Adjacency> kept_;  // the arrays that spec_ points into
  BatchSampler sampler_;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

// Returns a code and the number of edges, which is what is needed if the memory was too small.
std::pair<int, std::int64_t> py_sample_hop(const Adjacency& adjacency, const Ids& nodes,
                                           std::int64_t fanout, bool replace, std::uint64_t key,
                                           IdOutput counts, IdOutput neighbors,
                                           IdOutput edge_ids) {
  if (counts.shape(0) != nodes.shape(0)) throw nb::value_error("one count per node is needed");
  check_aligned(counts);
  check_apart({extent(counts), extent(neighbors), extent(edge_ids)}, {extent(nodes)});
  const Strided<std::int64_t> span = strided(nodes);
  std::int64_t* const count = counts.data();
  const Column neighbor_column = column(neighbors), edge_column = column(edge_ids);
  nb::gil_scoped_release unlocked;
  if (first_outside(span, adjacency.num_nodes()) >= 0) {
    return {static_cast<int>(Outcome::kDamaged), 0};
  }
  return std::visit(
      [&](const auto& view) -> std::pair<int, std::int64_t> {
        Column into = neighbor_column, ids = edge_column;
        std::int64_t total = 0;
        Outcome outcome =
            sample_hop(view, span, Chooser(fanout, replace, key), count, into, ids, total);
        if (outcome == Outcome::kTooSmall) {
          std::vector<std::int64_t> spill[2];
          Column more(&spill[0]), more_ids(&spill[1]);
          outcome = sample_hop(view, span, Chooser(fanout, replace, key), count, more, more_ids, total);
          if (outcome == Outcome::kDone) outcome = Outcome::kTooSmall;
        }
        return {static_cast<int>(outcome), total};
      },
      adjacency.view());
}

class Relabeler {
 public:
  void clear() {
    Turn turn(busy_);
    list_.clear();
  }

  std::int64_t size() const { return list_.size(); }

  void add_seeds(const Ids& seeds) {
    Turn turn(busy_);
    const Strided<std::int64_t> span = strided(seeds);
    nb::gil_scoped_release unlocked;
    list_.add_seeds(span);
  }

  void relabel(const Ids& ids, IdOutput out) {
    if (out.shape(0) != ids.shape(0)) throw nb::value_error("out must be as long as ids");
    check_aligned(out);
    check_apart({extent(out)}, {extent(ids)});
    Turn turn(busy_);
    const Strided<std::int64_t> span = strided(ids);
    std::int64_t* const places = out.data();
    nb::gil_scoped_release unlocked;
    list_.relabel(span, places);
  }

  void copy_nodes(std::int64_t start, IdOutput out) {
    const std::int64_t size = list_.size();
    if (start < 0 || start > size || static_cast<std::int64_t>(out.shape(0)) != size - start) {
      throw nb::value_error("out must hold the nodes from start on");
    }
    check_aligned(out);
    Turn turn(busy_);
    if (start < size) std::copy(list_.data() + start, list_.data() + size, out.data());
  }

 private:
  PlaceList list_;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

std::uint64_t py_floor_random_reads(const Words& words, const Ids& at, int cache_level) {
  const Strided<std::int64_t> span = strided(at);
  if (span.size > 0 && span.stride != 1) throw nb::value_error("places must be contiguous");
  const std::uint64_t* const data = words.data();
  const auto size = static_cast<std::int64_t>(words.shape(0));
  nb::gil_scoped_release unlocked;
  if (first_outside(span, size) >= 0) throw std::out_of_range("a place outside the words");
  return cache_level == 1 ? floor_random_reads<3>(data, span) : floor_random_reads<2>(data, span);
}

void py_floor_copy_rows(const Bytes& rows, std::int64_t row_bytes, const Ids& ids, ByteOutput out) {
  const Strided<std::int64_t> span = strided(ids);
  if (row_bytes < 1 || (span.size > 0 && span.stride != 1) ||
      out.shape(0) != ids.shape(0) * static_cast<std::size_t>(row_bytes)) {
    throw nb::value_error("out must hold one row per id, and ids be contiguous");
  }
  const auto* const from = reinterpret_cast<const char*>(rows.data());
  auto* const to = reinterpret_cast<char*>(out.data());
  const auto num_rows = static_cast<std::int64_t>(rows.shape(0)) / row_bytes;
  nb::gil_scoped_release unlocked;
  if (first_outside(span, num_rows) >= 0) throw std::out_of_range("an id outside the rows");
  floor_copy_rows(from, row_bytes, span, to);
}

}  // namespace
}  // namespace penstock

NB_MODULE(_native, m) {
  using namespace penstock;
  m.doc() = "The kernels of Penstock.";

  m.def("mix", &mix, "word"_a);
  m.def("fold", &fold, "key"_a, "word"_a);
  m.def("batch_key", &batch_key, "seed"_a, "epoch"_a, "index"_a);
  m.def("hop_key", &hop_key, "batch_key"_a, "hop"_a, "edge_type_hash"_a);
  m.def("permute", &py_permute, "seed"_a, "epoch"_a, "size"_a, "start"_a, "out"_a.noconvert());

  m.def("first_outside", &py_first_outside, "ids"_a.noconvert(), "bound"_a);
  m.def("is_sorted", &py_is_sorted, "ids"_a.noconvert());
  m.def("fill_adjacency", &py_fill_adjacency, "keys"_a.noconvert(), "values"_a.noconvert(),
        "indptr"_a.noconvert(), "adjacency"_a.noconvert());
  m.def("transpose", &py_transpose, "adjacency"_a, "out_indptr"_a.noconvert(),
        "out_adjacency"_a.noconvert());
  m.def("digest", &py_digest, "data"_a.noconvert());
  m.def("gather_rows", &py_gather_rows, "rows"_a.noconvert(), "num_rows"_a, "row_bytes"_a,
        "ids"_a.noconvert(), "out"_a.noconvert());

  nb::class_<Adjacency>(m, "Adjacency")
      .def(nb::init<nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig>,
                    nb::ndarray<nb::numpy, nb::ro, nb::c_contig>>(),
           "indptr"_a.noconvert(), "entries"_a.noconvert())
      .def_prop_ro("num_nodes", &Adjacency::num_nodes)
      .def_prop_ro("num_edges", &Adjacency::num_edges);

  nb::class_<KHopSampler>(m, "KHopSampler")
      .def(nb::init<std::vector<std::int64_t>, std::vector<const Adjacency*>,
                    const std::vector<std::int64_t>&, const std::vector<std::int64_t>&,
                    const std::vector<std::uint64_t>&, const IdLists&, std::int64_t, bool,
                    std::vector<std::int64_t>>(),
           "num_nodes"_a, "adjacencies"_a, "expands"_a, "finds"_a, "name_hashes"_a, "fanouts"_a,
           "num_hops"_a, "replace"_a, "node_caps"_a)
      .def("sample", &KHopSampler::sample, "batch_key"_a, "seeds"_a, "nodes"_a, "rows"_a, "cols"_a,
           "edge_ids"_a.none());

  m.def("sample_hop", &py_sample_hop, "adjacency"_a, "nodes"_a.noconvert(), "fanout"_a,
        "replace"_a, "hop_key"_a, "counts"_a.noconvert(), "neighbors"_a.noconvert(),
        "edge_ids"_a.noconvert());

  nb::class_<Relabeler>(m, "Relabeler")
      .def(nb::init<>())
      .def("clear", &Relabeler::clear)
      .def_prop_ro("size", &Relabeler::size)
      .def("add_seeds", &Relabeler::add_seeds, "seeds"_a.noconvert())
      .def("relabel", &Relabeler::relabel, "ids"_a.noconvert(), "out"_a.noconvert())
      .def("copy_nodes", &Relabeler::copy_nodes, "start"_a, "out"_a.noconvert());

  m.def("floor_random_reads", &py_floor_random_reads, "words"_a.noconvert(), "at"_a.noconvert(),
        "cache_level"_a);
  m.def("floor_copy_rows", &py_floor_copy_rows, "rows"_a.noconvert(), "row_bytes"_a,
        "ids"_a.noconvert(), "out"_a.noconvert());
}
