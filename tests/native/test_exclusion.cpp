// Rows that lose edges: which positions are taken out, and where those that are left stand.
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "choose.hpp"
#include "exclusion.hpp"
#include "khop.hpp"

namespace {

using namespace penstock;
using Places = std::vector<std::int64_t>;

// Row 0 has 5, 7, 5, 9 and 7; row 1 has 5.
const std::int64_t kIndptr[] = {0, 5, 6};
const std::int64_t kNeighbors[] = {5, 7, 5, 9, 7, 5};
const Bare<std::int64_t> kRows{kIndptr, kNeighbors, 2, 6};

Places taken_out(Exclusion& exclusion, std::int64_t node, std::int64_t tree = 0) {
  Places places;
  exclusion.take_out(kRows, node, tree, kIndptr[node], kIndptr[node + 1], places);
  return places;
}

}  // namespace

TEST(parallel_edges_of_a_pair_are_taken_out) {
  Exclusion exclusion;
  exclusion.assign({{0, 5, 0}, {0, 9, 0}, {0, 5, 0}, {3, 7, 0}}, false);
  CHECK_EQUAL(taken_out(exclusion, 0), (Places{0, 2, 3}));
  CHECK(taken_out(exclusion, 1).empty());
  exclusion.assign({{1, 5, 0}}, false);
  CHECK(taken_out(exclusion, 0).empty());
  CHECK_EQUAL(taken_out(exclusion, 1), (Places{5}));
  exclusion.clear();
  CHECK(exclusion.empty() && taken_out(exclusion, 1).empty());
}

TEST(trees_have_pairs_of_their_own) {
  Exclusion exclusion;
  exclusion.assign({{0, 5, 2}, {0, 7, 1}, {0, 9, 2}}, true);
  CHECK_EQUAL(taken_out(exclusion, 0, 1), (Places{1, 4}));
  CHECK_EQUAL(taken_out(exclusion, 0, 2), (Places{0, 2, 3}));
  CHECK(taken_out(exclusion, 0, 3).empty());
}

TEST(a_tree_excludes_its_own_pairs_however_many_others_have_some) {
  Exclusion exclusion;
  std::vector<ExcludedPair> pairs;
  for (std::int64_t tree = 0; tree < 100; ++tree) {
    for (int times = 0; times < 2; ++times) pairs.push_back({0, tree % 10, tree});
  }
  pairs.push_back({0, 9, 5});
  exclusion.assign(pairs, true);
  CHECK_EQUAL(taken_out(exclusion, 0, 5), (Places{0, 2, 3}));
  CHECK_EQUAL(taken_out(exclusion, 0, 7), (Places{1, 4}));
  CHECK(taken_out(exclusion, 0, 8).empty());
  CHECK_EQUAL(taken_out(exclusion, 0, 95), (Places{0, 2}));
}

TEST(many_nodes_are_told_apart) {
  Exclusion exclusion;
  std::vector<ExcludedPair> pairs;
  for (std::int64_t node = 1; node < 1000; ++node) pairs.push_back({node << 20, 5, 0});
  for (std::int64_t other = 0; other < 40; ++other) pairs.push_back({0, other, 0});  // over kFew
  exclusion.assign(pairs, false);
  CHECK_EQUAL(taken_out(exclusion, 0), (Places{0, 1, 2, 3, 4}));
  CHECK(taken_out(exclusion, 1).empty());
}

TEST(what_is_left_stands_where_it_stood) {
  const RowLeft row{0, 10, 6, {10, 12, 13}};  // 11, 14 and 15 are left
  CHECK(row.size() == 3);
  CHECK(row.position(0) == 11 && row.position(1) == 14 && row.position(2) == 15);
  CHECK(row.among_first(0) == 0 && row.among_first(2) == 1 && row.among_first(6) == 3);
}
