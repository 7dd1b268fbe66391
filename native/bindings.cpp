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

#include "build.hpp"
#include "digest.hpp"
#include "floor.hpp"
#include "gather.hpp"
#include "khop.hpp"
#include "permute.hpp"
#include "rng.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using Input = nb::ndarray<nb::numpy, nb::ro>;
using Ids = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>>;
using Bytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>, nb::c_contig>;
using Words = nb::ndarray<nb::numpy, const std::uint64_t, nb::ndim<1>, nb::c_contig>;
using Output = nb::ndarray<nb::numpy, nb::c_contig>;
using IdOutput = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>, nb::c_contig>;
using ByteOutput = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig>;

// Kernels read whole numbers: at an odd address that is undefined, and vectors may trap on it.
void check_aligned(const void* data, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(data) % bytes != 0) {
    throw nb::value_error("arrays must be aligned to the size of their elements");
  }
}

template <class Array>
void check_aligned(const Array& array) {
  check_aligned(array.data(), array.itemsize());
}

// The addresses from an array's first byte to its last.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
};

template <class Array>
Extent extent(const Array& array) {
  std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(array.data()), end = begin;
  const auto bytes = static_cast<std::int64_t>(array.itemsize());
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    if (array.shape(axis) == 0) return {begin, begin};
    const auto last = (static_cast<std::int64_t>(array.shape(axis)) - 1) * array.stride(axis);
    if (last < 0) begin -= static_cast<std::uintptr_t>(-last * bytes);
    else end += static_cast<std::uintptr_t>(last * bytes);
  }
  return {begin, end + static_cast<std::uintptr_t>(bytes)};
}

// What a kernel writes must overlap nothing else it works with: ids are checked before it runs, and
// would be other ids afterwards.
void check_apart(std::vector<Extent> written, const std::vector<Extent>& read) {
  std::erase_if(written, [](const Extent& e) { return e.begin == e.end; });
  std::sort(written.begin(), written.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  bool overlap = false;
  for (std::size_t i = 1; i < written.size(); ++i) {
    overlap |= written[i].begin < written[i - 1].end;
  }
  for (const Extent& e : read) {
    const auto after = std::lower_bound(written.begin(), written.end(), e.end,
                                        [](const Extent& a, std::uintptr_t at) { return a.begin < at; });
    overlap |= e.begin != e.end && after != written.begin() && std::prev(after)->end > e.begin;
  }
  if (overlap) throw nb::value_error("output must not share memory with other arrays");
}

template <class T>
Strided<T> strided(const Input& array) {
  check_aligned(array);
  return {static_cast<const T*>(array.data()), static_cast<std::int64_t>(array.shape(0)),
          array.stride(0)};
}

Strided<std::int64_t> strided(const Ids& array) {
  check_aligned(array);
  return {array.data(), static_cast<std::int64_t>(array.shape(0)), array.stride(0)};
}

// Calls `body` with a null pointer of the array's integer type.
template <class Body>
auto with_index_type(nb::dlpack::dtype dtype, Body body) {
  if (dtype == nb::dtype<std::int32_t>()) return body(static_cast<std::int32_t*>(nullptr));
  if (dtype == nb::dtype<std::int64_t>()) return body(static_cast<std::int64_t*>(nullptr));
  throw nb::type_error("ids must be int32 or int64");
}

template <class Body>
auto with_ids(const Input& ids, Body body) {
  if (ids.ndim() != 1) throw nb::value_error("ids must have one dimension");
  return with_index_type(ids.dtype(), [&]<class T>(T*) { return body(strided<T>(ids)); });
}

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

enum class Code { kDone = 0, kTooSmall = 1, kDamaged = 2 };

Column column(const IdOutput& out) {
  check_aligned(out);
  return Column(out.data(), static_cast<std::int64_t>(out.shape(0)));
}

using Counts = std::vector<std::vector<std::int64_t>>;

class KHopSampler {
 public:
  KHopSampler(std::vector<std::int64_t> num_nodes, std::vector<const Adjacency*> adjacencies,
              const std::vector<std::int64_t>& expands, const std::vector<std::int64_t>& finds,
              const std::vector<std::uint64_t>& name_hashes, const Counts& fanouts,
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
  std::tuple<int, Counts, Counts> sample(std::uint64_t batch_key, const std::vector<Ids>& seeds,
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
    Counts starts;  // copied: the seeds may lie in memory that will be written to
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
    Code code;
    {
      nb::gil_scoped_release unlocked;
      spec_.batch_key = batch_key;
      code = run(starts, lists);
    }
    return {static_cast<int>(code), std::move(lists.hop_nodes), std::move(lists.hop_edges)};
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

  static bool enter(const Counts& seeds, BatchLists& lists) {
    for (std::size_t type = 0; type < seeds.size(); ++type) {
      NodeList& list = lists.nodes[type];
      list.size = static_cast<std::int64_t>(seeds[type].size());
      if (!list.ids.reserve(list.size)) return false;
      std::copy(seeds[type].begin(), seeds[type].end(), list.ids.data());
    }
    return true;
  }

  Code run(const Counts& seeds, BatchLists& lists) {
    for (std::size_t type = 0; type < seeds.size(); ++type) {
      const auto count = static_cast<std::int64_t>(seeds[type].size());
      const Strided<std::int64_t> span{seeds[type].data(), count, 1};
      if (first_outside(span, spec_.num_nodes[type]) >= 0) return Code::kDamaged;
    }
    Outcome outcome = Outcome::kTooSmall;
    if (enter(seeds, lists)) outcome = workspace_.sample(spec_, lists);
    if (outcome == Outcome::kTooSmall) return run_aside(seeds, lists);
    return outcome == Outcome::kDone ? Code::kDone : Code::kDamaged;
  }

  // The batch again, in memory that grows: it tells how much is needed, and, since room is asked
  // for by the chunk, may turn out to fit after all.
  Code run_aside(const Counts& seeds, BatchLists& lists) {
    std::vector<std::vector<std::int64_t>> spill(lists.nodes.size() + 3 * lists.edges.size());
    BatchLists aside;
    std::size_t next = 0;
    for (std::size_t t = 0; t < lists.nodes.size(); ++t) {
      aside.nodes.push_back({Column(&spill[next++])});
    }
    for (const EdgeList& edges : lists.edges) {
      aside.edges.push_back({Column(&spill[next]), Column(&spill[next + 1]),
                             Column(&spill[next + 2]), edges.with_edge_ids});
      next += 3;
    }
    enter(seeds, aside);
    const Outcome outcome = workspace_.sample(spec_, aside);
    lists.hop_nodes = std::move(aside.hop_nodes);
    lists.hop_edges = std::move(aside.hop_edges);
    if (outcome != Outcome::kDone) return Code::kDamaged;
    return copy_back(aside, lists) ? Code::kDone : Code::kTooSmall;
  }

  static bool copy_back(const BatchLists& aside, BatchLists& lists) {
    for (std::size_t t = 0; t < lists.nodes.size(); ++t) {
      if (!lists.nodes[t].ids.reserve(aside.nodes[t].size)) return false;
    }
    for (std::size_t r = 0; r < lists.edges.size(); ++r) {
      lists.edges[r].size = 0;
      if (!lists.edges[r].reserve(aside.edges[r].size)) return false;
    }
    const auto copy = [](const Column& from, std::int64_t size, const Column& to) {
      if (size > 0) std::memcpy(to.data(), from.data(), static_cast<std::size_t>(size) * 8);
    };
    for (std::size_t t = 0; t < lists.nodes.size(); ++t) {
      copy(aside.nodes[t].ids, aside.nodes[t].size, lists.nodes[t].ids);
    }
    for (std::size_t r = 0; r < lists.edges.size(); ++r) {
      const EdgeList& from = aside.edges[r];
      copy(from.row, from.size, lists.edges[r].row);
      copy(from.col, from.size, lists.edges[r].col);
      if (from.with_edge_ids) copy(from.edge_id, from.size, lists.edges[r].edge_id);
    }
    return true;
  }

  BatchSpec spec_;
  std::vector<Adjacency> kept_;  // the arrays that spec_ points into
  Workspace workspace_;
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
    return {static_cast<int>(Code::kDamaged), 0};
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
          if (outcome == Outcome::kDone) return {static_cast<int>(Code::kTooSmall), total};
        }
        return {static_cast<int>(outcome == Outcome::kDone ? Code::kDone : Code::kDamaged), total};
      },
      adjacency.view());
}

// The second half of a hop: names nodes by their place in a list that grows.
class Relabeler {
 public:
  // Empties the list. Returns nothing; the memory is kept.
  void clear() {
    Turn turn(busy_);
    table_.clear(size_);
    nodes_.clear();
    size_ = 0;
  }

  std::int64_t size() const { return size_; }

  // Appends seeds: each has a place of its own, also when it stands twice.
  void add_seeds(const Ids& seeds) {
    Turn turn(busy_);
    const Strided<std::int64_t> span = strided(seeds);
    nb::gil_scoped_release unlocked;
    make_room(span.size);
    for (std::int64_t i = 0; i < span.size; ++i) {
      table_.find_or_insert(span[i], size_);
      nodes_[static_cast<std::size_t>(size_++)] = span[i];
    }
  }

  // Writes the place of every id, entering those not seen before in order.
  void relabel(const Ids& ids, IdOutput out) {
    if (out.shape(0) != ids.shape(0)) throw nb::value_error("out must be as long as ids");
    check_aligned(out);
    check_apart({extent(out)}, {extent(ids)});
    Turn turn(busy_);
    const Strided<std::int64_t> span = strided(ids);
    std::int64_t* const local = out.data();
    nb::gil_scoped_release unlocked;
    constexpr std::int64_t kChunk = 1024;
    for (std::int64_t begin = 0; begin < span.size; begin += kChunk) {
      const std::int64_t end = std::min(begin + kChunk, span.size);
      make_room(end - begin);
      for (std::int64_t i = begin; i < end; ++i) table_.prefetch(span[i]);
      for (std::int64_t i = begin; i < end; ++i) {
        const auto [place, is_new] = table_.find_or_insert(span[i], size_);
        nodes_[static_cast<std::size_t>(size_)] = span[i];
        size_ += is_new;
        local[i] = place;
      }
    }
  }

  // Copies the list from `start` on.
  void copy_nodes(std::int64_t start, IdOutput out) {
    if (start < 0 || start > size_ || static_cast<std::int64_t>(out.shape(0)) != size_ - start) {
      throw nb::value_error("out must hold the nodes from start on");
    }
    Turn turn(busy_);
    std::copy(nodes_.begin() + start, nodes_.begin() + size_, out.data());
  }

 private:
  void make_room(std::int64_t more) {
    table_.reserve(more, nodes_.data(), size_);
    const auto wanted = static_cast<std::size_t>(size_ + more + 1);
    if (nodes_.size() < wanted) nodes_.resize(std::max(wanted, 2 * nodes_.size()));
  }

  NodeTable<std::int64_t> table_;
  std::vector<std::int64_t> nodes_;
  std::int64_t size_ = 0;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

std::uint64_t py_floor_random_reads(const Words& words, const Ids& at) {
  const Strided<std::int64_t> span = strided(at);
  if (span.size > 0 && span.stride != 1) throw nb::value_error("places must be contiguous");
  const std::uint64_t* const data = words.data();
  const auto size = static_cast<std::int64_t>(words.shape(0));
  nb::gil_scoped_release unlocked;
  if (first_outside(span, size) >= 0) throw std::out_of_range("a place outside the words");
  return floor_random_reads(data, span);
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
                    const std::vector<std::uint64_t>&, const Counts&, std::int64_t, bool,
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

  m.def("floor_random_reads", &py_floor_random_reads, "words"_a.noconvert(), "at"_a.noconvert());
  m.def("floor_copy_rows", &py_floor_copy_rows, "rows"_a.noconvert(), "row_bytes"_a,
        "ids"_a.noconvert(), "out"_a.noconvert());
}
