// Rows of some nodes only, and hops that are drawn in one place and put together in another.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "assembly.hpp"
#include "batch.hpp"
#include "check.hpp"
#include "draw_hop.hpp"
#include "fetched.hpp"
#include "members.hpp"
#include "rows.hpp"

namespace {

using namespace penstock;
using Numbers = std::vector<std::int64_t>;

Strided<std::int64_t> span(const Numbers& numbers) {
  return {numbers.data(), static_cast<std::int64_t>(numbers.size()), 1};
}

// Which ids there are below `size`, and their words.
struct SomeIds {
  Numbers ids;
  std::int64_t size;
  std::vector<MemberWord> words;

  SomeIds(Numbers given, std::int64_t bound)
      : ids(std::move(given)), size(bound), words(static_cast<std::size_t>((bound + 63) / 64)) {
    fill_members(span(ids), words.data(), static_cast<std::int64_t>(words.size()));
  }
};

// 1 → 0, 2 → 0, 3 → 0, 0 → 1, 3 → 1, 4 → 3; nobody points at 2 and 4.
struct Small {
  Numbers indptr{0, 3, 5, 5, 6, 6};
  Numbers entries{1, 10, 2, 11, 3, 12, 0, 13, 3, 14, 4, 15};

  Paired<std::int64_t> rows() const { return {indptr.data(), entries.data(), 5, 6}; }
  Numbers row(std::int64_t node) const {
    const auto at = static_cast<std::size_t>(node);
    return Numbers(entries.begin() + 2 * indptr[at], entries.begin() + 2 * indptr[at + 1]);
  }
};

// What was drawn, in plain lists.
struct Drawn {
  Outcome outcome = Outcome::kDamaged;
  Numbers counts, neighbors, edge_ids;
};

template <class Adjacency>
Drawn draw(const Adjacency& rows, Numbers nodes, std::int64_t fanout, HopDrawer& drawer) {
  const auto size = static_cast<std::int64_t>(nodes.size());
  const NodeList list{Column(nodes.data(), size), size};
  const DrawSpec spec{{fanout, false, false, 1, nullptr, nullptr}, &list, nullptr};
  std::vector<std::uint32_t> counts(nodes.size() + 1, 77);
  DrawnEdges<typename Adjacency::Id> out;
  Drawn drawn;
  drawn.outcome = drawer.draw<false>(rows, spec, counts.data(), out);
  CHECK_EQUAL(counts.back(), 77u);
  drawn.counts.assign(counts.begin(), counts.end() - 1);
  drawn.neighbors.assign(out.neighbors.data(), out.neighbors.data() + out.size);
  drawn.edge_ids.assign(out.edge_ids.data(), out.edge_ids.data() + out.size);
  return drawn;
}

TEST(members_have_rows_in_the_order_of_their_ids) {
  const SomeIds some({0, 5, 63, 64, 127, 200}, 201);
  Numbers asked(201), rows(201), listed(6);
  for (std::size_t i = 0; i < asked.size(); ++i) asked[i] = static_cast<std::int64_t>(i);
  find_rows(some.words.data(), span(asked), rows.data());
  std::int64_t next = 0;
  for (const std::int64_t id : asked) {
    const bool is_here = std::binary_search(some.ids.begin(), some.ids.end(), id);
    CHECK_EQUAL(rows[static_cast<std::size_t>(id)], is_here ? next++ : -1);
  }
  CHECK(list_members(some.words.data(), 4, listed.data(), 6));
  CHECK_EQUAL(listed, some.ids);
  CHECK(!list_members(some.words.data(), 4, listed.data(), 5));
  CHECK(members_are_sound(some.words.data(), 201));
  CHECK(!members_are_sound(some.words.data(), 200));
}

TEST(bits_are_counted) {
  CHECK_EQUAL(set_bits(0), 0);
  CHECK_EQUAL(set_bits(~std::uint64_t{0}), 64);
  for (int bit = 0; bit < 64; ++bit) {
    CHECK_EQUAL(set_bits(std::uint64_t{1} << bit), 1);
    CHECK_EQUAL(set_bits((std::uint64_t{1} << bit) - 1), bit);
  }
}

TEST(ids_that_do_not_rise_are_found) {
  CHECK_EQUAL(first_fall(span({1, 2, 5})), -1);
  CHECK_EQUAL(first_fall(span({1, 2, 2})), 2);
  CHECK_EQUAL(first_fall(span({3, 1})), 1);
  CHECK_EQUAL(first_fall(span({})), -1);
}

TEST(members_alone_have_edges) {
  const Small small;
  const SomeIds some({1, 3}, 5);
  const Numbers indptr{0, 2, 3};
  const SomeRows which{some.words.data(), nullptr, 2};
  const Paired<std::int64_t> rows{indptr.data(), small.entries.data() + 6, 5, 3, &which};
  HopDrawer drawer;
  const Drawn drawn = draw(rows, {0, 3, 1, 4}, -1, drawer);
  CHECK(drawn.outcome == Outcome::kDone);
  CHECK_EQUAL(drawn.counts, (Numbers{0, 1, 2, 0}));
  CHECK_EQUAL(drawn.edge_ids, (Numbers{15, 13, 14}));
}

TEST(one_hop_gives_counts_neighbours_and_edge_ids) {
  const Small small;
  HopDrawer drawer;
  for (int again = 0; again < 2; ++again) {
    const Drawn drawn = draw(small.rows(), {1, 4, 0, 1}, -1, drawer);
    CHECK(drawn.outcome == Outcome::kDone);
    CHECK_EQUAL(drawn.counts, (Numbers{2, 0, 3, 2}));
    CHECK_EQUAL(drawn.neighbors, (Numbers{0, 3, 1, 2, 3, 0, 3}));
    CHECK_EQUAL(drawn.edge_ids, (Numbers{13, 14, 10, 11, 12, 13, 14}));
  }
}

TEST(one_hop_of_damaged_rows_is_refused) {
  for (const Numbers& indptr : {Numbers{0, 3, 2, 5, 6, 6}, Numbers{0, 3, 7, 5, 6, 6},
                                Numbers{-1, 3, 5, 5, 6, 6}}) {
    Small small;
    small.indptr = indptr;
    HopDrawer drawer;
    CHECK(draw(small.rows(), {0, 1}, 1, drawer).outcome == Outcome::kDamaged);
  }
}

TEST(rows_are_missed_once_until_they_are_fetched) {
  const Small small;
  FetchedRows fetched(5);
  HopDrawer drawer;
  const auto draw_all = [&](const Numbers& nodes) {
    const SomeRows some{nullptr, &fetched, fetched.num_rows()};
    const Paired<std::int64_t> rows{fetched.indptr(), fetched.entries(), 5, fetched.num_edges(),
                                    &some};
    return draw(rows, nodes, -1, drawer).edge_ids;
  };
  CHECK_EQUAL(draw_all({1, 0, 1}), (Numbers{}));
  CHECK_EQUAL(fetched.take_missing(), (Numbers{1, 0}));
  CHECK_EQUAL(fetched.take_missing(), (Numbers{}));
  CHECK_EQUAL(fetched.add(span({1, 4}), span({2, 0}), span({0, 3}), span({13, 14})), -1);
  CHECK_EQUAL(draw_all({1, 0, 4}), (Numbers{13, 14}));
  CHECK_EQUAL(fetched.take_missing(), (Numbers{0}));
  CHECK_EQUAL(fetched.add(span({3, 1}), span({0, 0}), span({}), span({})), 1);  // 1 is there
  CHECK_EQUAL(fetched.add(span({2, 2}), span({0, 0}), span({}), span({})), 1);  // twice
  CHECK_EQUAL(draw_all({2, 3}), (Numbers{}));
  CHECK_EQUAL(fetched.take_missing(), (Numbers{2, 3}));
  fetched.clear();
  CHECK_EQUAL(draw_all({1}), (Numbers{}));
  CHECK_EQUAL(fetched.num_rows(), 0);
}

TEST(many_rows_are_found_in_a_table_that_grows) {
  FetchedRows fetched(std::int64_t{1} << 40);
  for (std::int64_t i = 0; i < 5000; ++i) {
    const std::int64_t node = i << 24;
    CHECK_EQUAL(fetched.find(node), FetchedRows::kNoRow);
    CHECK_EQUAL(fetched.add(span({node}), span({1}), span({i}), span({-i})), -1);
  }
  for (std::int64_t i = 0; i < 5000; ++i) {
    CHECK_EQUAL(fetched.find(i << 24), i);
  }
  CHECK_EQUAL(fetched.take_missing(), (Numbers{}));
}

TEST(sorted_rows_follow_what_is_added) {
  FetchedRows fetched(9);
  fetched.add(span({4}), span({3}), span({8, 2, 5}), span({0, 1, 2}));
  CHECK_EQUAL(Numbers(fetched.sorted(), fetched.sorted() + 3), (Numbers{2, 5, 8}));
  fetched.add(span({1, 0}), span({2, 1}), span({7, 3, 6}), span({0, 1, 2}));
  CHECK_EQUAL(Numbers(fetched.sorted(), fetched.sorted() + 6), (Numbers{2, 5, 8, 3, 7, 6}));
}

// A batch of one node type and one relation, put together out of rows taken whole.
struct Together {
  Assembly assembly{{{5}, {{0, 0}}, 2, {}, false}};
  Numbers memory[4];

  BatchMemory room(std::int64_t nodes, std::int64_t edges) {
    memory[0].assign(static_cast<std::size_t>(nodes), -7);
    for (int i = 1; i < 4; ++i) memory[i].assign(static_cast<std::size_t>(edges), -7);
    BatchMemory rooms;
    rooms.nodes = {{memory[0].data(), nodes}};
    rooms.rows = {{memory[1].data(), edges}};
    rooms.cols = {{memory[2].data(), edges}};
    rooms.edge_ids = {{memory[3].data(), edges}};
    return rooms;
  }

  void expand(const Small& small) {
    Numbers nodes(static_cast<std::size_t>(assembly.num_expanded(0)));
    assembly.copy_frontier(0, nodes.data(), nullptr);
    Numbers counts, neighbors, edge_ids;
    for (const std::int64_t node : nodes) {
      const Numbers row = small.row(node);
      counts.push_back(static_cast<std::int64_t>(row.size() / 2));
      for (std::size_t i = 0; i < row.size(); i += 2) {
        neighbors.push_back(row[i]);
        edge_ids.push_back(row[i + 1]);
      }
    }
    CHECK(assembly.take(0, span(counts), span(neighbors), span(edge_ids)).what ==
          Assembly::Taken::kDone);
    assembly.end_hop();
  }
};

TEST(hops_put_together_are_the_batch) {
  const Small small;
  Together together;
  for (const std::int64_t spare : {-1, 0, 1, 200}) {
    const BatchMemory memory = together.room(6 + spare, 6 + spare);
    together.assembly.begin({{1, 3, 1}}, memory);
    CHECK_EQUAL(together.assembly.num_expanded(0), 2);
    together.expand(small);
    together.expand(small);
    together.assembly.finish();
    CHECK_EQUAL(together.assembly.lists().hop_nodes[0], (Numbers{3, 2, 1}));
    CHECK_EQUAL(together.assembly.lists().hop_edges[0], (Numbers{3, 3}));
    CHECK(together.assembly.write(memory) == (spare >= 0));
    together.assembly.take_back();
    const BatchMemory larger = together.room(6, 6);
    CHECK(together.assembly.write(larger));
    CHECK_EQUAL(together.memory[0], (Numbers{1, 3, 1, 0, 4, 2}));
    CHECK_EQUAL(together.memory[1], (Numbers{3, 1, 4, 0, 5, 1}));
    CHECK_EQUAL(together.memory[2], (Numbers{0, 0, 1, 3, 3, 3}));
    CHECK_EQUAL(together.memory[3], (Numbers{13, 14, 15, 10, 11, 12}));
  }
}

TEST(what_does_not_fit_the_frontier_is_not_taken) {
  Together together;
  together.assembly.begin({{1, 3}}, together.room(9, 9));
  using Taken = Assembly::Taken;
  const Numbers one{0}, none{};
  const auto take = [&](const Numbers& counts, const Numbers& neighbors) {
    return together.assembly.take(0, span(counts), span(neighbors), span(neighbors)).what;
  };
  CHECK(take({-1, 2}, one) == Taken::kBadCount);
  CHECK(take({std::numeric_limits<std::int64_t>::max(), 1}, one) == Taken::kBadCount);
  CHECK(take({1, 1}, one) == Taken::kBadSum);
  CHECK(take({1, 0}, {5}) == Taken::kNoNode);
  CHECK(take({1, 0}, {-1}) == Taken::kNoNode);
  CHECK_EQUAL(together.assembly.lists().edges[0].size, 0);
  CHECK(take({0, 1}, one) == Taken::kDone);
  CHECK_EQUAL(together.assembly.lists().edges[0].size, 1);
}

}  // namespace
