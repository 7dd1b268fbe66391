// The table of nodes, whose stamps run through all 32 bits, and the columns it fills.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "check.hpp"
#include "neighbor.hpp"
#include "node_table.hpp"
#include "relabel.hpp"
#include "rng.hpp"

namespace {

using namespace penstock;

// A list of nodes with its table, as samplers keep them, and a map that cannot be wrong.
template <class Id>
struct Listed {
  NodeTable<Id> table;
  std::vector<std::int64_t> nodes;
  std::unordered_map<std::int64_t, std::int64_t> known;

  void add(std::int64_t node) {
    table.reserve(1, nodes.data(), size());
    const auto found = table.find_or_insert(node, size());
    const auto [place, is_new] = known.try_emplace(node, size());
    CHECK_EQUAL(found.local, place->second);
    CHECK_EQUAL(found.is_new, is_new);
    if (found.is_new) nodes.push_back(node);
  }

  void check_all() const {
    for (const auto& [node, place] : known) CHECK_EQUAL(table.find(node), place);
  }

  void clear() {
    table.clear(size());
    nodes.clear();
    known.clear();
  }

  std::int64_t size() const { return static_cast<std::int64_t>(nodes.size()); }
};

template <class Id>
void fill_and_check(Listed<Id>& list, std::int64_t count, std::uint64_t salt) {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Id>::max());
  for (std::int64_t i = 0; i < count; ++i) {
    // Some nodes come again, some are neighbours of each other.
    const std::uint64_t word = draw(salt, static_cast<std::uint64_t>(i / 2 * 2));
    list.add(static_cast<std::int64_t>(i % 4 == 0 ? word % 1000 : word % most));
  }
  list.check_all();
}

template <class Id>
void check_growth() {
  Listed<Id> list;
  for (const std::int64_t count : {0, 1, 500, 512, 513, 20000, 3, 1000, 40000}) {
    fill_and_check(list, count, static_cast<std::uint64_t>(count));
    list.clear();
    CHECK_EQUAL(list.table.find(5), -1);
  }
}

}  // namespace

TEST(a_table_that_holds_nothing_finds_nothing) {
  NodeTable<std::int32_t> table;
  CHECK_EQUAL(table.find(0), -1);
  table.clear(0);
  CHECK_EQUAL(table.find(0), -1);
  table.reserve(0, static_cast<const std::int64_t*>(nullptr), 0);
  CHECK_EQUAL(table.find(0), -1);
}

TEST(tables_grow_and_are_used_again) {
  check_growth<std::int32_t>();
  check_growth<std::int64_t>();
}

TEST(ids_alike_in_their_lower_bits_are_told_apart) {
  Listed<std::int64_t> list;
  for (std::int64_t high = 0; high < 300; ++high) {
    for (const std::int64_t low : {0, 1, -1}) list.add((high << 32) + low);
  }
  list.add(std::numeric_limits<std::int64_t>::max());
  list.add(std::numeric_limits<std::int64_t>::min());
  list.check_all();
}

TEST(ids_alike_in_their_lower_bits_are_told_apart_where_they_meet) {
  // A multiple of 2^32 that hardly moves an id's place in the table.
  std::int64_t step = 0;
  std::uint64_t least = ~std::uint64_t{0};
  for (std::uint64_t multiple = 1; multiple < (1U << 20); ++multiple) {
    const std::uint64_t moved = (multiple << 32) * 0x9E3779B97F4A7C15ULL;
    if (std::min(moved, 0 - moved) >= least) continue;
    least = std::min(moved, 0 - moved);
    step = static_cast<std::int64_t>(multiple << 32);
  }
  Listed<std::int64_t> list;
  for (std::int64_t id = 0; id < 600; id += 2) list.add(id);
  for (std::int64_t id = 0; id < 600; id += 2) list.add(id + step);
  CHECK_EQUAL(list.size(), 600);
  list.check_all();
}

TEST(stamps_that_run_out_start_again) {
  // Clearing claims far more positions than were filled, so that the base comes near 2^32; every
  // distance from it is met, also that of a batch begun just below and grown past it.
  constexpr std::int64_t end = std::int64_t{1} << 32;
  for (const std::int64_t left : {1, 2, 3, 5, 100, 511, 512, 513, 3000}) {
    Listed<std::int32_t> list;
    fill_and_check(list, 400, 1);
    list.table.clear(end - 1 - left);  // the base was 1
    list.nodes.clear();
    list.known.clear();
    CHECK_EQUAL(list.table.find(0), -1);
    for (int batch = 0; batch < 5; ++batch) {
      fill_and_check(list, 700, static_cast<std::uint64_t>(batch));
      list.clear();
    }
  }
}

TEST(repeated_seeds_are_found_at_their_first_place_after_growth) {
  NodeTable<std::int32_t> table;
  const std::vector<std::int64_t> seeds{7, 3, 7, 7, 3, 9};
  table.reserve(6, seeds.data(), 0);
  for (std::int64_t i = 0; i < 6; ++i) table.find_or_insert(seeds[static_cast<std::size_t>(i)], i);
  for (const std::int64_t more : {10, 1000, 100000}) {
    table.reserve(more, seeds.data(), 6);
    CHECK_EQUAL(table.find(7), 0);
    CHECK_EQUAL(table.find(3), 1);
    CHECK_EQUAL(table.find(9), 5);
  }
}

TEST(a_list_of_places_names_nodes_and_keeps_seeds_apart) {
  PlaceList list;
  for (const std::int64_t size : {0, 1, 127, 128, 129, 5000, 3}) {
    list.clear();
    CHECK_EQUAL(list.size(), 0);
    const std::vector<std::int64_t> seeds{7, -3, 7};
    list.add_seeds({seeds.data(), 3, 1});
    std::unordered_map<std::int64_t, std::int64_t> known{{7, 0}, {-3, 1}};
    std::vector<std::int64_t> nodes = seeds, ids, expected;
    for (std::int64_t i = 0; i < size; ++i) {
      const auto id = static_cast<std::int64_t>(draw(4, static_cast<std::uint64_t>(i % 700)));
      const auto [place, is_new] =
          known.try_emplace(i % 9 ? id : 7, static_cast<std::int64_t>(nodes.size()));
      ids.push_back(place->first);
      expected.push_back(place->second);
      if (is_new) nodes.push_back(place->first);
    }
    std::vector<std::int64_t> places(ids.size(), -7);
    list.relabel({ids.data(), size, 1}, places.data());
    CHECK(places == expected);
    CHECK_EQUAL(list.size(), static_cast<std::int64_t>(nodes.size()));
    CHECK(std::equal(nodes.begin(), nodes.end(), list.data()));
  }
}

TEST(a_column_of_the_callers_is_never_longer_than_it_is) {
  std::vector<std::int64_t> memory(10, -7);
  Column column(memory.data(), 8);
  CHECK(column.reserve(0));
  CHECK(column.reserve(8));
  CHECK(!column.reserve(9));
  CHECK(column.data() == memory.data());
}

TEST(a_column_that_spills_grows_and_keeps_what_it_holds) {
  std::vector<std::int64_t> spill;
  Column column(&spill);
  for (std::int64_t size = 1; size < 5000; size += size / 3 + 1) {
    CHECK(column.reserve(size));
    CHECK(column.data() == spill.data());
    CHECK(static_cast<std::int64_t>(spill.size()) >= size);
    column.data()[size - 1] = size;
  }
  for (std::int64_t size = 1; size < 5000; size += size / 3 + 1) {
    CHECK_EQUAL(column.data()[size - 1], size);
  }
}

TEST(a_list_of_edges_is_as_long_as_its_shortest_column) {
  std::vector<std::int64_t> memory(10);
  const Column five(memory.data(), 5), nine(memory.data(), 9);
  EdgeList edges{nine, nine, five, true};
  edges.size = 3;
  CHECK(edges.reserve(2));
  CHECK(!edges.reserve(3));
  edges.with_edge_ids = false;
  CHECK(edges.reserve(6));
  CHECK(!edges.reserve(7));
}
