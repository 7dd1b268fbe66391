// The native module as Python sees it. Shapes and types are checked here, ids in the Python face;
// every kernel runs with the interpreter's lock released.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "build.hpp"
#include "copy.hpp"
#include "digest.hpp"
#include "floor.hpp"
#include "gather.hpp"
#include "permute.hpp"
#include "python.hpp"
#include "relabel.hpp"
#include "rng.hpp"
#include "simd.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {

// Each family of kernels has a face of its own, in bindings_*.cpp.
void bind_khop(nb::module_& m);
void bind_prepare(nb::module_& m);
void bind_negatives(nb::module_& m);
void bind_subgraph(nb::module_& m);
void bind_labels(nb::module_& m);
void bind_merge(nb::module_& m);
void bind_ppr(nb::module_& m);
void bind_walks(nb::module_& m);
void bind_hgt(nb::module_& m);
void bind_members(nb::module_& m);
void bind_cutting(nb::module_& m);
void bind_hops(nb::module_& m);
void bind_locality(nb::module_& m);
void bind_id_table(nb::module_& m);
void bind_buckets(nb::module_& m);

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

bool py_transpose(const Adjacency& from, IdOutput indptr, Output adjacency) {
  if (adjacency.ndim() != 2 || adjacency.shape(1) != 2 ||
      static_cast<std::int64_t>(adjacency.shape(0)) != from.num_edges() || indptr.shape(0) < 1) {
    throw nb::value_error("the transpose needs indptr [n + 1] and adjacency [E, 2]");
  }
  if (from.has_some_rows()) throw nb::value_error("the transpose needs the rows of all nodes");
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

std::int64_t py_scatter_rows(const Bytes& rows, std::int64_t row_bytes, const Ids& positions,
                             std::int64_t num_rows, ByteOutput out) {
  if (num_rows < 0 || row_bytes < 0 ||
      out.shape(0) != static_cast<std::size_t>(num_rows) * static_cast<std::size_t>(row_bytes)) {
    throw nb::value_error("out must hold num_rows * row_bytes bytes");
  }
  if (rows.shape(0) != positions.shape(0) * static_cast<std::size_t>(row_bytes)) {
    throw nb::value_error("rows must hold one row per position");
  }
  check_apart({extent(out)}, {extent(rows), extent(positions)});
  const auto* const from = reinterpret_cast<const char*>(rows.data());
  auto* const to = reinterpret_cast<char*>(out.data());
  const Strided<std::int64_t> span = strided(positions);
  nb::gil_scoped_release unlocked;
  return scatter_rows(from, row_bytes, span, to, num_rows);
}

void py_copy_bytes(const Bytes& from, ByteOutput to) {
  if (from.shape(0) != to.shape(0)) throw nb::value_error("both must be of one length");
  check_apart({extent(to)}, {extent(from)});
  const auto* const source = reinterpret_cast<const char*>(from.data());
  auto* const target = reinterpret_cast<char*>(to.data());
  const std::size_t size = from.shape(0);
  nb::gil_scoped_release unlocked;
  copy_bytes(target, source, size);
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

std::string py_simd_in_use() { return std::string(simd_name(simd_in_use())); }

std::vector<std::string> py_available_simd() {
  std::vector<std::string> names;
  for (const Simd simd : available_simd()) names.emplace_back(simd_name(simd));
  return names;
}

// False where there is none of this name.
bool py_use_simd(const std::string& name) {
  for (const Simd simd : kAllSimd) {
    if (simd_name(simd) == name) return use_simd(simd);
  }
  return false;
}

}  // namespace
}  // namespace penstock

NB_MODULE(_native, m) {
  using namespace penstock;
  m.doc() = "The kernels of Penstock.";
  // A process that ends while graphs are in use leaves them to the system; there is nothing to report.
  nb::set_leak_warnings(false);

  m.def("simd_in_use", &py_simd_in_use);
  m.def("available_simd", &py_available_simd);
  m.def("use_simd", &py_use_simd, "name"_a);

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

  m.def("scatter_rows", &py_scatter_rows, "rows"_a.noconvert(), "row_bytes"_a,
        "positions"_a.noconvert(), "num_rows"_a, "out"_a.noconvert());
  m.def("copy_bytes", &py_copy_bytes, "source"_a.noconvert(), "out"_a.noconvert());

  nb::class_<Adjacency>(m, "Adjacency")
      .def(nb::init<nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig>,
                    nb::ndarray<nb::numpy, nb::ro, nb::c_contig>, std::optional<MemberWords>,
                    std::int64_t>(),
           "indptr"_a.noconvert(), "entries"_a.noconvert(),
           "members"_a.noconvert().none() = nb::none(), "num_nodes"_a = 0)
      .def_prop_ro("num_nodes", &Adjacency::num_nodes)
      .def_prop_ro("num_edges", &Adjacency::num_edges);

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

  bind_khop(m);
  bind_prepare(m);
  bind_negatives(m);
  bind_subgraph(m);
  bind_labels(m);
  bind_merge(m);
  bind_ppr(m);
  bind_walks(m);
  bind_hgt(m);
  bind_members(m);
  bind_cutting(m);
  bind_hops(m);
  bind_locality(m);
  bind_id_table(m);
  bind_buckets(m);
}
