// Buckets of edges, as Python sees them. Records are bytes: 8 for each, or 16.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "arrays.hpp"
#include "buckets.hpp"
#include "python.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using BucketOutput = nb::ndarray<nb::numpy, std::int64_t, nb::shape<-1, 4>, nb::c_contig>;
using WordOutput = nb::ndarray<nb::numpy, std::uint64_t, nb::shape<-1, 2>, nb::c_contig>;

// Calls `body` with a null pointer of the record that has so many bytes.
template <class Body>
auto with_record(std::int64_t nbytes, Body body) {
  if (nbytes == sizeof(NarrowRecord)) return body(static_cast<NarrowRecord*>(nullptr));
  if (nbytes == sizeof(WideRecord)) return body(static_cast<WideRecord*>(nullptr));
  throw nb::value_error("records have 8 bytes, or 16");
}

template <class Record, class Array>
std::int64_t num_records(const Array& bytes) {
  if (bytes.shape(0) % sizeof(Record) != 0) throw nb::value_error("not a number of records");
  check_aligned(bytes.data(), alignof(Record));
  return static_cast<std::int64_t>(bytes.shape(0) / sizeof(Record));
}

KeyRange checked_range(std::int64_t first, std::int64_t size, int shift, int bits,
                       std::size_t buckets) {
  if (first < 0 || size < 0 || shift < 0 || shift > bits) throw nb::value_error("no such keys");
  const auto needed = size == 0 ? 0 : ((size - 1) >> shift) + 1;
  if (static_cast<std::int64_t>(buckets) < needed) throw nb::value_error("too few buckets");
  return {first, size, shift};
}

void check_buckets(const Bucket* buckets, std::size_t count, std::int64_t size) {
  for (std::size_t i = 0; i < count; ++i) {
    if (buckets[i].at < 0 || buckets[i].at > buckets[i].end || buckets[i].end > size) {
      throw nb::value_error("a bucket lies outside the pool");
    }
  }
}

// Ids are `first_id` and those that follow it, or `ids`.
std::int64_t py_spread_edges(const Input& sources, const Input& keys, const std::optional<Ids>& ids,
                             std::int64_t first_id, std::int64_t first_key, std::int64_t num_keys,
                             int shift, std::int64_t record_nbytes, ByteOutput pool,
                             BucketOutput buckets) {
  if (sources.dtype() != keys.dtype() || length(sources) != length(keys) ||
      (ids && ids->shape(0) != keys.shape(0)) || first_id < 0) {
    throw nb::value_error("sources, keys and ids must be of one length, and ends of one type");
  }
  check_aligned(buckets);
  std::vector<Extent> read{extent(sources), extent(keys)};
  if (ids) read.push_back(extent(*ids));
  check_apart({extent(pool), extent(buckets)}, read);
  static_assert(sizeof(Bucket) == 4 * sizeof(std::int64_t));
  auto* const state = reinterpret_cast<Bucket*>(buckets.data());
  const std::size_t count = buckets.shape(0);
  return with_record(record_nbytes, [&]<class Record>(Record*) {
    const KeyRange range = checked_range(first_key, num_keys, shift, Record::kBits, count);
    check_buckets(state, count, num_records<Record>(pool));
    auto* const to = reinterpret_cast<Record*>(pool.data());
    return with_ids(keys, [&]<class T>(Strided<T> span) {
      const Strided<T> others = strided<T>(sources);
      const Strided<std::int64_t> given =
          ids ? strided(*ids) : Strided<std::int64_t>{nullptr, 0, 1};
      nb::gil_scoped_release unlocked;
      if (given.data != nullptr) {
        return spread_edges(others, span, [&](std::int64_t i) { return given[i]; }, range, to, state);
      }
      return spread_edges(others, span, [&](std::int64_t i) { return first_id + i; }, range, to,
                          state);
    });
  });
}

// Returns how many edges there are (-1 without room for them), and what the last mark said.
std::tuple<std::int64_t, std::int64_t> py_unpack_records(const Bytes& records,
                                                         std::int64_t record_nbytes,
                                                         std::int64_t upper, IdOutput sources,
                                                         IdOutput rows, IdOutput ids) {
  if (sources.shape(0) != rows.shape(0) || rows.shape(0) != ids.shape(0)) {
    throw nb::value_error("sources, rows and ids must be of one length");
  }
  check_aligned(sources);
  check_aligned(rows);
  check_aligned(ids);
  check_apart({extent(sources), extent(rows), extent(ids)}, {extent(records)});
  return with_record(record_nbytes, [&]<class Record>(Record*) {
    const std::int64_t size = num_records<Record>(records);
    const auto* const from = reinterpret_cast<const Record*>(records.data());
    std::int64_t last = upper;
    nb::gil_scoped_release unlocked;
    const std::int64_t count =
        unpack_records(from, size, last, sources.data(), rows.data(), ids.data(),
                       static_cast<std::int64_t>(ids.shape(0)));
    return std::tuple(count, last);
  });
}

// Calls `body` with who says which edges count: all of them, or members.
template <class Body>
bool with_numbers(const std::optional<MemberWords>& words, std::int64_t num_ids, Body body) {
  if (!words) return body(AllEdges{});
  if (num_ids < 0 || words->shape(0) != static_cast<std::size_t>((num_ids + 63) / 64)) {
    throw nb::value_error("a word for every 64 ids is needed");
  }
  check_aligned(*words);
  return body(SomeEdges{reinterpret_cast<const MemberWord*>(words->data()), num_ids});
}

bool py_count_records(const Bytes& records, std::int64_t record_nbytes, std::int64_t begin,
                      IdOutput ends, const std::optional<MemberWords>& words,
                      std::int64_t num_ids) {
  check_aligned(ends);
  check_apart({extent(ends)}, {extent(records)});
  return with_record(record_nbytes, [&]<class Record>(Record*) {
    const std::int64_t size = num_records<Record>(records);
    const auto* const from = reinterpret_cast<const Record*>(records.data());
    return with_numbers(words, num_ids, [&](auto number) {
      nb::gil_scoped_release unlocked;
      return count_records(from, size, begin, number, ends.data(),
                           static_cast<std::int64_t>(ends.shape(0)));
    });
  });
}

bool py_sort_records(const Bytes& records, std::int64_t record_nbytes, std::int64_t begin,
                     std::int64_t num_sources, IdOutput ends, Output entries,
                     const std::optional<MemberWords>& words, std::int64_t num_ids) {
  const bool pairs = is_paired(entries.ndim(), entries.ndim() == 2 ? entries.shape(1) : 0);
  if (begin < 0) throw nb::value_error("begin must not be negative");
  check_aligned(ends);
  check_aligned(entries);
  std::vector<Extent> read{extent(records)};
  if (words) read.push_back(extent(*words));
  check_apart({extent(ends), extent(entries)}, read);
  const auto room = static_cast<std::int64_t>(entries.shape(0));
  const auto num_rows = static_cast<std::int64_t>(ends.shape(0));
  void* const into = entries.data();
  std::int64_t* const bounds = ends.data();
  return with_record(record_nbytes, [&]<class Record>(Record*) {
    const std::int64_t size = num_records<Record>(records);
    const auto* const from = reinterpret_cast<const Record*>(records.data());
    return with_numbers(words, num_ids, [&](auto number) {
      return with_index_type(entries.dtype(), [&]<class Index>(Index*) {
        auto* const to = static_cast<Index*>(into);
        nb::gil_scoped_release unlocked;
        return pairs ? sort_records<true>(from, size, begin, number, num_sources, bounds, num_rows,
                                          to, room)
                     : sort_records<false>(from, size, begin, number, num_sources, bounds,
                                           num_rows, to, room);
      });
    });
  });
}

// Returns how many edges repeat earlier ones; of the one with the lowest id the id, the source and
// the row, or -1.
std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t> py_find_repeats(
    const nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>, nb::c_contig>& ends,
    Output entries, std::int64_t begin, std::optional<WordOutput> words, std::int64_t num_ids) {
  if (entries.ndim() != 2 || entries.shape(1) != 2) {
    throw nb::value_error("entries must have shape [E, 2]");
  }
  check_aligned(ends);
  check_aligned(entries);
  std::vector<Extent> written{extent(entries)};
  MemberWord* bits = nullptr;
  if (words) {
    if (num_ids < 0 || words->shape(0) != static_cast<std::size_t>((num_ids + 63) / 64)) {
      throw nb::value_error("a word for every 64 ids is needed");
    }
    check_aligned(*words);
    written.push_back(extent(*words));
    bits = reinterpret_cast<MemberWord*>(words->data());
  }
  check_apart(written, {extent(ends)});
  const auto size = static_cast<std::int64_t>(entries.shape(0));
  const auto num_rows = static_cast<std::int64_t>(ends.shape(0));
  void* const into = entries.data();
  return with_index_type(entries.dtype(), [&]<class Index>(Index*) {
    nb::gil_scoped_release unlocked;
    const Repeats found = find_repeats(ends.data(), num_rows, static_cast<Index*>(into), size,
                                       begin, bits, num_ids);
    return std::tuple(found.count, found.id, found.source, found.row);
  });
}

std::int64_t py_rank_members(WordOutput words) {
  check_aligned(words);
  auto* const to = reinterpret_cast<MemberWord*>(words.data());
  const auto num_words = static_cast<std::int64_t>(words.shape(0));
  nb::gil_scoped_release unlocked;
  return rank_members(to, num_words);
}

}  // namespace

void bind_buckets(nb::module_& m) {
  m.def("spread_edges", &py_spread_edges, "sources"_a.noconvert(), "keys"_a.noconvert(),
        "ids"_a.noconvert().none(), "first_id"_a, "first_key"_a, "num_keys"_a, "shift"_a,
        "record_nbytes"_a, "pool"_a.noconvert(), "buckets"_a.noconvert());
  m.def("unpack_records", &py_unpack_records, "records"_a.noconvert(), "record_nbytes"_a,
        "upper"_a, "sources"_a.noconvert(), "rows"_a.noconvert(), "ids"_a.noconvert());
  m.def("count_records", &py_count_records, "records"_a.noconvert(), "record_nbytes"_a, "begin"_a,
        "ends"_a.noconvert(), "words"_a.noconvert().none() = nb::none(), "num_ids"_a = 0);
  m.def("sort_records", &py_sort_records, "records"_a.noconvert(), "record_nbytes"_a, "begin"_a,
        "num_sources"_a, "ends"_a.noconvert(), "entries"_a.noconvert(),
        "words"_a.noconvert().none() = nb::none(), "num_ids"_a = 0);
  m.def("find_repeats", &py_find_repeats, "ends"_a.noconvert(), "entries"_a.noconvert(), "begin"_a,
        "words"_a.noconvert().none() = nb::none(), "num_ids"_a = 0);
  m.def("rank_members", &py_rank_members, "words"_a.noconvert());
}

}  // namespace penstock
