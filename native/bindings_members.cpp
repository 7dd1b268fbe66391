// Members, and rows that are fetched, as Python sees them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "arrays.hpp"
#include "build.hpp"
#include "fetched.hpp"
#include "members.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using WordOutput = nb::ndarray<nb::numpy, std::uint64_t, nb::shape<-1, 2>, nb::c_contig>;

template <class Words>
void check_words(const Words& words, std::int64_t size) {
  if (size < 0 || words.shape(0) != static_cast<std::size_t>((size + 63) / 64)) {
    throw nb::value_error("members need a word for every 64 ids");
  }
  check_aligned(words);
}

const MemberWord* words_of(const MemberWords& words) {
  return reinterpret_cast<const MemberWord*>(words.data());
}

// `words` hold zeros. Returns the first position of an id that is out of range or does not rise, with
// nothing of use written, or -1.
std::int64_t py_fill_members(const Ids& ids, std::int64_t size, WordOutput words) {
  check_words(words, size);
  check_apart({extent(words)}, {extent(ids)});
  const Strided<std::int64_t> span = strided(ids);
  auto* const to = reinterpret_cast<MemberWord*>(words.data());
  const auto num_words = static_cast<std::int64_t>(words.shape(0));
  nb::gil_scoped_release unlocked;
  const std::int64_t outside = first_outside(span, size), fall = first_fall(span);
  if (outside >= 0 || fall >= 0) return outside >= 0 ? outside : fall;
  fill_members(span, to, num_words);
  return -1;
}

// Returns the first position of an id that is out of range, with nothing written, or -1.
std::int64_t py_member_rows(const MemberWords& words, std::int64_t size, const Input& ids,
                            IdOutput out) {
  check_words(words, size);
  if (out.shape(0) != length(ids)) throw nb::value_error("out must be as long as ids");
  check_aligned(out);
  check_apart({extent(out)}, {extent(words), extent(ids)});
  const MemberWord* const from = words_of(words);
  std::int64_t* const rows = out.data();
  return with_ids(ids, [&](auto span) {
    nb::gil_scoped_release unlocked;
    const std::int64_t bad = first_outside(span, size);
    if (bad < 0) find_rows(from, span, rows);
    return bad;
  });
}

bool py_member_ids(const MemberWords& words, IdOutput out) {
  check_aligned(words);
  check_aligned(out);
  check_apart({extent(out)}, {extent(words)});
  const MemberWord* const from = words_of(words);
  const auto num_words = static_cast<std::int64_t>(words.shape(0));
  const auto count = static_cast<std::int64_t>(out.shape(0));
  std::int64_t* const ids = out.data();
  nb::gil_scoped_release unlocked;
  return list_members(from, num_words, ids, count);
}

bool py_members_are_sound(const MemberWords& words, std::int64_t size) {
  check_words(words, size);
  const MemberWord* const from = words_of(words);
  nb::gil_scoped_release unlocked;
  return members_are_sound(from, size);
}

class PyFetchedRows {
 public:
  PyFetchedRows(std::int64_t num_nodes, std::int64_t num_edges) {
    if (num_nodes < 0 || num_edges < 0) throw nb::value_error("sizes must not be negative");
    shared_ = std::make_shared<SharedRows>(num_nodes);
    shared_->rows.reserve(num_edges);
  }

  Adjacency adjacency(bool sorted) const { return Adjacency(shared_, sorted); }

  // Returns the first position of a node that is out of range or has a row, with nothing added, or
  // -1; -2 where counts are not those of the edges.
  std::int64_t add(const Input& nodes, const Input& counts, const Input& neighbors,
                   const Input& edge_ids) {
    if (length(counts) != length(nodes) || length(edge_ids) != length(neighbors)) {
      throw nb::value_error("one count per node, and one edge id per neighbour are needed");
    }
    Turn turn(shared_->busy);
    FetchedRows& rows = shared_->rows;
    const std::vector<std::int64_t> ids = copied(nodes), many = copied(counts);
    const Strided<std::int64_t> span{ids.data(), static_cast<std::int64_t>(ids.size()), 1};
    const Strided<std::int64_t> each{many.data(), static_cast<std::int64_t>(many.size()), 1};
    const std::int64_t bad = first_outside(span, rows.num_nodes());
    if (bad >= 0) return bad;
    std::int64_t total = 0;
    const auto size = static_cast<std::int64_t>(neighbors.shape(0));
    for (const std::int64_t count : many) {
      if (count < 0 || count > size - total) return -2;
      total += count;
    }
    if (total != size) return -2;
    return with_ids(neighbors, [&](auto found) {
      return with_ids(edge_ids, [&](auto edges) { return rows.add(span, each, found, edges); });
    });
  }

  Handed take_missing() {
    Turn turn(shared_->busy);
    return handed_over(shared_->rows.take_missing());
  }

  void clear() {
    Turn turn(shared_->busy);
    shared_->rows.clear();
  }

  std::int64_t num_rows() const { return shared_->rows.num_rows(); }
  std::int64_t num_edges() const { return shared_->rows.num_edges(); }

  std::int64_t num_bytes() {
    Turn turn(shared_->busy);
    return shared_->rows.num_bytes();
  }

 private:
  std::shared_ptr<SharedRows> shared_;
};

}  // namespace

void bind_members(nb::module_& m) {
  m.def("fill_members", &py_fill_members, "ids"_a.noconvert(), "size"_a, "out"_a.noconvert());
  m.def("member_rows", &py_member_rows, "words"_a.noconvert(), "size"_a, "ids"_a.noconvert(),
        "out"_a.noconvert());
  m.def("member_ids", &py_member_ids, "words"_a.noconvert(), "out"_a.noconvert());
  m.def("members_are_sound", &py_members_are_sound, "words"_a.noconvert(), "size"_a);

  nb::class_<PyFetchedRows>(m, "FetchedRows")
      .def(nb::init<std::int64_t, std::int64_t>(), "num_nodes"_a, "num_edges"_a)
      .def("adjacency", &PyFetchedRows::adjacency, "sorted"_a)
      .def("add", &PyFetchedRows::add, "nodes"_a.noconvert(), "counts"_a.noconvert(),
           "neighbors"_a.noconvert(), "edge_ids"_a.noconvert())
      .def("take_missing", &PyFetchedRows::take_missing)
      .def("clear", &PyFetchedRows::clear)
      .def_prop_ro("num_rows", &PyFetchedRows::num_rows)
      .def_prop_ro("num_edges", &PyFetchedRows::num_edges)
      .def_prop_ro("num_bytes", &PyFetchedRows::num_bytes);
}

}  // namespace penstock
