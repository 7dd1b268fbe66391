// Rows of neighbours made, turned round and checked; rows of features gathered.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "build.hpp"
#include "check.hpp"
#include "gather.hpp"
#include "rng.hpp"
#include "rows.hpp"
#include "spans.hpp"

namespace {

using namespace penstock;
using Numbers = std::vector<std::int64_t>;

std::int64_t below(std::uint64_t salt, std::int64_t i, std::int64_t bound) {
  const std::uint64_t word = draw(salt, static_cast<std::uint64_t>(i));
  return static_cast<std::int64_t>(bounded(word, static_cast<std::uint64_t>(bound)));
}

template <class T>
std::vector<T> random_ids(std::uint64_t salt, std::int64_t size, std::int64_t bound) {
  std::vector<T> ids;
  for (std::int64_t i = 0; i < size; ++i) ids.push_back(static_cast<T>(below(salt, i, bound)));
  return ids;
}

template <class T>
Strided<T> span(const std::vector<T>& ids) {
  return {ids.data(), static_cast<std::int64_t>(ids.size()), 1};
}

// The edges of every row, in the order of their ids: what any way of sorting must give.
template <class T>
void check_rows(const std::vector<T>& keys, const std::vector<T>& values, const Numbers& indptr,
                const Numbers& entries) {
  std::size_t at = 0;
  for (std::size_t row = 0; row + 1 < indptr.size(); ++row) {
    CHECK_EQUAL(indptr[row], static_cast<std::int64_t>(at));
    for (std::size_t edge = 0; edge < keys.size(); ++edge) {
      if (static_cast<std::size_t>(keys[edge]) != row) continue;
      CHECK_EQUAL(entries[2 * at], static_cast<std::int64_t>(values[edge]));
      CHECK_EQUAL(entries[2 * at + 1], static_cast<std::int64_t>(edge));
      ++at;
    }
  }
  CHECK_EQUAL(indptr.back(), static_cast<std::int64_t>(keys.size()));
}

template <class T, class Index>
void check_fill(std::int64_t num_rows, std::int64_t size) {
  const std::vector<T> keys = random_ids<T>(1, size, num_rows), values = random_ids<T>(2, size, 99);
  Numbers indptr(static_cast<std::size_t>(num_rows) + 1, -7);
  std::vector<Index> entries(2 * keys.size(), -7);
  fill_paired(span(keys), span(values), indptr.data(), num_rows, entries.data());
  check_rows(keys, values, indptr, Numbers(entries.begin(), entries.end()));
}

// Three sources and four destinations; in-edges of each destination.
struct Small {
  Numbers indptr{0, 2, 2, 3, 5};
  std::vector<std::int32_t> entries{2, 4, 0, 1, 1, 0, 2, 3, 0, 2};  // (source, edge id)

  Paired<std::int32_t> view() const { return {indptr.data(), entries.data(), 4, 5}; }
};

bool turns(const Small& small) {
  Numbers indptr(4);
  std::vector<std::int32_t> entries(10);
  return transpose(small.view(), 3, indptr.data(), entries.data());
}

// Rows of the one type turned into rows of the other, with more rows than the narrower can number.
template <class From, class To>
void check_turned(std::int64_t num_sources, std::int64_t num_destinations) {
  const std::int64_t size = 60;
  Numbers indptr(static_cast<std::size_t>(num_destinations) + 1, 0);
  const auto owners = [&] {
    Numbers ids = random_ids<std::int64_t>(4, size, num_destinations);
    std::sort(ids.begin(), ids.end());
    return ids;
  }();
  for (const std::int64_t owner : owners) ++indptr[static_cast<std::size_t>(owner) + 1];
  for (std::size_t row = 1; row < indptr.size(); ++row) indptr[row] += indptr[row - 1];
  const std::vector<From> sources = random_ids<From>(5, size, num_sources);

  const Bare<From> from{indptr.data(), sources.data(), num_destinations, size};
  Numbers out_indptr(static_cast<std::size_t>(num_sources) + 1);
  std::vector<To> out(2 * static_cast<std::size_t>(size));
  CHECK(transpose(from, num_sources, out_indptr.data(), out.data()));
  check_rows(Numbers(sources.begin(), sources.end()), owners, out_indptr,
             Numbers(out.begin(), out.end()));
}

}  // namespace

TEST(edges_are_sorted_into_rows_stably) {
  // Sizes around the distances at which memory is sent for.
  for (const std::int64_t size : {0, 1, 31, 32, 33, 63, 64, 65, 97, 1000}) {
    check_fill<std::int32_t, std::int32_t>(7, size);
    check_fill<std::int64_t, std::int32_t>(1, size);
    check_fill<std::int64_t, std::int64_t>(300, size);
  }
  check_fill<std::int64_t, std::int64_t>(0, 0);
}

TEST(edges_are_read_through_strides) {
  const Numbers keys{2, 9, 0, 9, 2}, values{5, 9, 6, 9, 7};
  Numbers indptr(4), entries(6);
  fill_paired(Strided<std::int64_t>{keys.data() + 4, 3, -2},
              Strided<std::int64_t>{values.data() + 4, 3, -2}, indptr.data(), 3, entries.data());
  CHECK_EQUAL(indptr, (Numbers{0, 1, 1, 3}));
  CHECK_EQUAL(entries, (Numbers{6, 1, 7, 0, 5, 2}));
}

TEST(sorted_edges_stay_where_they_are) {
  const std::vector<std::int32_t> keys{0, 0, 2, 3, 3, 3}, values{5, 4, 3, 2, 1, 0};
  Numbers indptr(6, -7), entries(6, -7);
  fill_bare(span(keys), span(values), indptr.data(), 5, entries.data());
  CHECK_EQUAL(indptr, (Numbers{0, 2, 2, 3, 6, 6}));
  CHECK_EQUAL(entries, (Numbers{5, 4, 3, 2, 1, 0}));
}

TEST(a_transpose_has_its_rows_in_the_order_of_edge_ids) {
  const Small small;
  Numbers indptr(4), entries(10);
  CHECK(transpose(small.view(), 3, indptr.data(), entries.data()));
  CHECK_EQUAL(indptr, (Numbers{0, 2, 3, 5}));
  CHECK_EQUAL(entries, (Numbers{0, 1, 3, 2, 2, 0, 3, 3, 0, 4}));
}

TEST(a_transpose_holds_ids_too_wide_for_the_other_side) {
  check_turned<std::int8_t, std::int64_t>(100, 1000);   // more destinations than sources have bits
  check_turned<std::int64_t, std::int8_t>(1000, 100);   // and the other way round
  check_turned<std::int16_t, std::int8_t>(1000, 100);
  check_turned<std::int8_t, std::int16_t>(100, 1000);
}

TEST(a_damaged_topology_is_not_turned) {
  CHECK(turns(Small{}));
  const auto broken = [](auto damage) {
    Small small;
    damage(small);
    return !turns(small);
  };
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(broken([](Small& s) { s.indptr[0] = 1; }));
  CHECK(broken([](Small& s) { s.indptr[0] = -1; }));
  CHECK(broken([](Small& s) { s.indptr[1] = 3; }));
  CHECK(broken([](Small& s) { s.indptr[2] = 6; }));
  CHECK(broken([](Small& s) { s.indptr[2] = -most - 1; }));
  CHECK(broken([](Small& s) { s.indptr[2] = most; }));
  CHECK(broken([](Small& s) { s.indptr[4] = 4; }));
  CHECK(broken([](Small& s) { s.indptr[4] = 6; }));
  CHECK(broken([](Small& s) { s.entries[0] = 3; }));
  CHECK(broken([](Small& s) { s.entries[0] = -1; }));
  CHECK(broken([](Small& s) { s.entries[1] = 5; }));
  CHECK(broken([](Small& s) { s.entries[1] = -1; }));
}

TEST(the_first_id_outside_is_found) {
  for (const std::int64_t size : {1, 10, 4095, 4096, 4097, 9000}) {
    for (const std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
      for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{5},
                                     std::numeric_limits<std::int64_t>::min(),
                                     std::numeric_limits<std::int64_t>::max()}) {
        Numbers ids(static_cast<std::size_t>(size), 4);
        CHECK_EQUAL(first_outside(span(ids), 5), -1);
        ids[static_cast<std::size_t>(at)] = bad;
        ids.back() = bad;
        CHECK_EQUAL(first_outside(span(ids), 5), at);
      }
    }
  }
  CHECK_EQUAL(first_outside(span(Numbers{0}), 0), 0);
  CHECK_EQUAL(first_outside(span(Numbers{0}), -1), 0);
  CHECK_EQUAL(first_outside(span(Numbers{}), 0), -1);
}

TEST(order_is_seen) {
  CHECK(is_sorted(span(Numbers{})));
  CHECK(is_sorted(span(Numbers{5})));
  CHECK(is_sorted(span(Numbers{-3, 5, 5, 9})));
  CHECK(!is_sorted(span(Numbers{5, 4})));
  const Numbers ids{9, 0, 8, 0, 7};
  CHECK(is_sorted(Strided<std::int64_t>{ids.data() + 4, 3, -2}));
}

TEST(rows_are_gathered_whatever_their_width) {
  for (std::int64_t row_bytes = 0; row_bytes <= 200; ++row_bytes) {
    const std::int64_t num_rows = 30;
    std::vector<char> rows(static_cast<std::size_t>(num_rows * row_bytes));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<char>(mix(i));
    const Numbers ids = random_ids<std::int64_t>(9, 40, num_rows);
    std::vector<char> out(ids.size() * static_cast<std::size_t>(row_bytes));
    CHECK_EQUAL(gather_rows(rows.data(), num_rows, row_bytes, span(ids), out.data()), -1);
    for (std::size_t i = 0; i < ids.size() && row_bytes > 0; ++i) {
      const char* const row = rows.data() + ids[i] * row_bytes;
      CHECK(std::memcmp(out.data() + i * static_cast<std::size_t>(row_bytes), row,
                        static_cast<std::size_t>(row_bytes)) == 0);
    }
  }
}

TEST(nothing_is_gathered_when_an_id_is_outside) {
  const std::vector<char> rows(30, 1);
  std::vector<char> out(9, 7);
  CHECK_EQUAL(gather_rows(rows.data(), 10, 3, span(Numbers{0, 10, -1}), out.data()), 1);
  CHECK(std::all_of(out.begin(), out.end(), [](char byte) { return byte == 7; }));
}
