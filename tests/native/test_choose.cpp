// Which edges are taken: by blocks, with each kind of vector instructions, and one by one, the same
// numbers.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "check.hpp"
#include "choose.hpp"
#include "each_simd.hpp"

namespace {

using namespace penstock;
using Offsets = std::vector<std::int64_t>;

// The specification, word for word: docs/random.md, "Choosing edges".
Offsets by_the_book(std::int64_t degree, std::int64_t fanout, bool replace, std::uint64_t key) {
  Offsets offsets;
  if (degree == 0 || fanout == 0) return offsets;
  if (fanout < 0 || (!replace && degree <= fanout)) {
    for (std::int64_t offset = 0; offset < degree; ++offset) offsets.push_back(offset);
    return offsets;
  }
  for (std::int64_t j = 0; j < fanout; ++j) {
    const std::int64_t last = degree - fanout + j;
    const std::uint64_t word = draw(key, static_cast<std::uint64_t>(j));
    const auto bound = static_cast<std::uint64_t>(replace ? degree : last + 1);
    auto offset = static_cast<std::int64_t>(bounded(word, bound));
    if (!replace && std::find(offsets.begin(), offsets.end(), offset) != offsets.end()) offset = last;
    offsets.push_back(offset);
  }
  return offsets;
}

// Degrees around the fan-out, and the largest that a block takes.
std::int64_t some_degree(std::int64_t fanout, std::uint64_t i) {
  const std::int64_t degrees[] = {fanout - 1, fanout,      fanout + 1, 2 * fanout + 5,
                                  1000,       (1LL << 32) - 1, 1LL << 31,  1000000007};
  return std::max<std::int64_t>(degrees[i % 8], 0);
}

NodeBlock some_block(std::int64_t fanout, std::uint64_t salt, std::int64_t size = kBlockNodes) {
  NodeBlock block{};
  block.size = size;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::uint64_t word = draw(salt, static_cast<std::uint64_t>(i));
    block.node[i] = static_cast<std::int64_t>(word >> (salt % 2 ? 1 : 40));
    block.place[i] = i;
    block.begin[i] = 10 * i;
    block.degree[i] = some_degree(fanout, word % 8);
    block.tree[i] = salt % 3 == 0 ? 0 : word % 5;  // some blocks have no trees
  }
  return block;
}

template <bool kReplace, bool kTrees = true>
void check_draws() {
  for (std::int64_t take = 1; take <= kBlockTake; ++take) {
    for (std::uint64_t salt = 0; salt < 6; ++salt) {
      NodeBlock block = some_block(take, salt);
      detail::draw_block<kReplace, kTrees>(block, take, salt);
      for (std::int64_t i = 0; i < kBlockNodes; ++i) {
        if (block.degree[i] == 0 || (!kReplace && block.degree[i] <= take)) continue;
        const std::uint64_t tree = kTrees ? block.tree[i] : 0;
        const std::uint64_t key = node_key(salt, static_cast<std::uint64_t>(block.node[i]), tree);
        const Offsets expected = by_the_book(block.degree[i], take, kReplace, key);
        for (std::int64_t j = 0; j < take; ++j) {
          CHECK_EQUAL(std::int64_t{block.offset[j][i]}, expected[static_cast<std::size_t>(j)]);
        }
      }
    }
  }
}

template <bool kTrees>
void check_choices(std::int64_t fanout, bool replace, std::int64_t size, std::int64_t hub) {
  const std::uint64_t key = 77 + static_cast<std::uint64_t>(fanout);
  NodeBlock block = some_block(std::max<std::int64_t>(fanout, 3), 5, size);
  for (std::int64_t i = 0; i < size; ++i) block.degree[i] = std::min<std::int64_t>(block.degree[i], 90);
  if (hub > 0) block.degree[size / 2] = hub;
  const NodeBlock before = block;
  UniformChooser<kTrees> chooser(fanout, replace, key);
  Picks picks;
  chooser.choose(block, picks);
  Offsets at, owner;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::uint64_t own = node_key(key, static_cast<std::uint64_t>(before.node[i]),
                                       kTrees ? before.tree[i] : 0);
    for (const std::int64_t offset : by_the_book(before.degree[i], fanout, replace, own)) {
      at.push_back(before.begin[i] + offset);
      owner.push_back(before.place[i]);
    }
  }
  picks.at.resize(static_cast<std::size_t>(picks.size));
  picks.owner.resize(static_cast<std::size_t>(picks.size));
  CHECK_EQUAL(picks.at, at);
  CHECK_EQUAL(picks.owner, owner);
}

}  // namespace

TEST(the_book_gives_the_documented_offsets) {
  const std::uint64_t key = 0x735A472F1217FFC3ULL;
  CHECK_EQUAL(by_the_book(10, 4, false, key), (Offsets{3, 4, 6, 0}));
  CHECK_EQUAL(by_the_book(10, 4, true, key), (Offsets{5, 5, 6, 0}));
  CHECK_EQUAL(by_the_book(2, 5, true, key), (Offsets{1, 1, 1, 0, 0}));
  CHECK_EQUAL(by_the_book(4294967301, 4, false, key),
              (Offsets{2360016393, 2376948176, 2912570743, 302003859}));
}

TEST(blocks_draw_by_the_book) {
  with_each_simd([] {
    check_draws<false>();
    check_draws<true>();
    check_draws<false, false>();
    check_draws<true, false>();
  });
}

TEST(narrow_bounds_scale_like_wide_ones) {
  for (std::uint64_t j = 0; j < 3000; ++j) {
    const std::uint64_t word = j < 3 ? 0 - j : draw(1, j);
    for (const std::uint32_t bound : {1U, 2U, 3U, 1000U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFFU}) {
      CHECK_EQUAL(std::uint64_t{detail::bounded_narrow(word, bound)}, bounded(word, bound));
    }
  }
}

TEST(choosers_choose_by_the_book) {
  with_each_simd([] {
    for (const std::int64_t fanout : {-1, 0, 1, 2, 5, 31, 32, 33, 40, 80}) {
      for (const bool replace : {false, true}) {
        for (const std::int64_t size : {1, 2, 63, 64}) {
          check_choices<true>(fanout, replace, size, 0);
          check_choices<false>(fanout, replace, size, 0);
        }
      }
    }
  });
}

TEST(choosers_choose_by_the_book_beside_hubs_of_billions) {
  for (const std::int64_t fanout : {1, 5, 32, 33}) {
    for (const bool replace : {false, true}) {
      for (const std::int64_t hub : {(1LL << 32) - 1, 1LL << 32, (1LL << 32) + 1, 1LL << 60}) {
        check_choices<true>(fanout, replace, 10, hub);
        check_choices<false>(fanout, replace, 10, hub);
      }
    }
  }
}

TEST(an_empty_block_gives_nothing) {
  for (const std::int64_t fanout : {-1, 0, 3, 40}) {
    NodeBlock block{};
    Picks picks;
    Chooser(fanout, false, 1).choose(block, picks);
    CHECK_EQUAL(picks.size, 0);
  }
}

TEST(take_counts) {
  for (const bool replace : {false, true}) {
    CHECK_EQUAL(take_count(0, 5, replace), 0);
    CHECK_EQUAL(take_count(5, 0, replace), 0);
    CHECK_EQUAL(take_count(0, -1, replace), 0);
    CHECK_EQUAL(take_count(7, -1, replace), 7);
  }
  CHECK_EQUAL(take_count(3, 5, false), 3);
  CHECK_EQUAL(take_count(3, 5, true), 5);
  CHECK_EQUAL(take_count(8, 5, false), 5);
}

TEST(a_set_of_offsets_knows_what_is_in_it) {
  OffsetSet set;
  for (const std::int64_t size : {1, 2, 3, 33, 64, 65, 1000, 5}) {
    set.clear(size);
    std::set<std::int64_t> known;
    for (std::int64_t i = 0; i < size; ++i) {
      // Multiples of a power of two crowd together; zero and the largest are offsets too.
      const std::int64_t offset = i % 3 == 0   ? i << 50
                                  : i % 3 == 1 ? std::numeric_limits<std::int64_t>::max() - i
                                               : i / 2;
      CHECK_EQUAL(set.insert(offset), known.insert(offset).second);
      CHECK(!set.insert(offset));
    }
  }
}

TEST(picks_keep_what_they_hold_when_they_grow) {
  Picks picks;
  for (std::int64_t i = 0; i < 1000; ++i) {
    picks.make_room(1 + i % 7);
    picks.at[static_cast<std::size_t>(picks.size)] = i;
    picks.owner[static_cast<std::size_t>(picks.size)] = -i;
    ++picks.size;
  }
  for (std::size_t i = 0; i < 1000; ++i) {
    CHECK_EQUAL(picks.at[i], static_cast<std::int64_t>(i));
    CHECK_EQUAL(picks.owner[i], -static_cast<std::int64_t>(i));
  }
}
