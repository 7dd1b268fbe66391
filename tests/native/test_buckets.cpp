// Edges shared out to buckets, and buckets sorted.
#include <cstdint>
#include <vector>

#include "buckets.hpp"
#include "check.hpp"
#include "rng.hpp"
#include "spans.hpp"

namespace {

using namespace penstock;
using Numbers = std::vector<std::int64_t>;

template <class T>
Strided<T> span(const std::vector<T>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size()), 1};
}

std::int64_t as_is(std::int64_t id) { return id; }

// Edges go to four buckets of four rows each; ids that jump have marks before them.
template <class Record>
void check_round_trip() {
  constexpr std::int64_t kSize = 300, kRoom = 2 * kSize;
  Numbers sources, keys, ids;
  for (std::int64_t i = 0; i < kSize; ++i) {
    const auto word = mix(static_cast<std::uint64_t>(i));
    sources.push_back(static_cast<std::int64_t>(word % 9));
    keys.push_back(100 + static_cast<std::int64_t>(word >> 32) % 16);
    ids.push_back(7000 * i);
  }
  std::vector<Record> pool(4 * kRoom);
  std::vector<Bucket> buckets;
  for (std::int64_t i = 0; i < 4; ++i) buckets.push_back({i * kRoom, (i + 1) * kRoom, -1, 0});
  const auto id_of = [&](std::int64_t i) { return ids[static_cast<std::size_t>(i)]; };
  CHECK_EQUAL(spread_edges(span(sources), span(keys), id_of, KeyRange{100, 16, 2}, pool.data(),
                           buckets.data()),
              kSize);
  for (std::int64_t b = 0; b < 4; ++b) {
    const Bucket& bucket = buckets[static_cast<std::size_t>(b)];
    Numbers ends(4), entries(2 * static_cast<std::size_t>(bucket.edges)), expected;
    CHECK(sort_records<true>(pool.data() + b * kRoom, bucket.at - b * kRoom, 50, as_is, 9,
                             ends.data(), 4, entries.data(), bucket.edges));
    for (std::int64_t row = 0; row < 4; ++row) {
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (keys[i] != 100 + 4 * b + row) continue;
        expected.push_back(sources[i]);
        expected.push_back(ids[i]);
      }
      CHECK_EQUAL(ends[static_cast<std::size_t>(row)],
                  50 + static_cast<std::int64_t>(expected.size()) / 2);
    }
    CHECK_EQUAL(entries, expected);
  }
}

TEST(records_of_both_widths_come_back_sorted) {
  check_round_trip<NarrowRecord>();
  check_round_trip<WideRecord>();
}

TEST(an_edge_that_cannot_be_is_told_by_its_position) {
  std::vector<NarrowRecord> pool(8);
  const auto id_of = [](std::int64_t i) { return i; };
  for (const auto& [source, key] : {std::pair{-1, 5}, {0, 4}, {0, 7}}) {
    std::vector<Bucket> buckets{{0, 8, -1, 0}};
    CHECK_EQUAL(spread_edges(span(Numbers{0, source}), span(Numbers{5, key}), id_of,
                             KeyRange{5, 2, 1}, pool.data(), buckets.data()),
                -2);
  }
}

TEST(a_full_bucket_stops_and_goes_on_where_there_is_room) {
  std::vector<NarrowRecord> pool(8);
  std::vector<Bucket> buckets{{0, 3, -1, 0}};
  const Numbers keys(5, 0);
  const auto id_of = [](std::int64_t i) { return i; };
  CHECK_EQUAL(spread_edges(span(keys), span(keys), id_of, KeyRange{0, 1, 0}, pool.data(),
                           buckets.data()),
              1);
  CHECK_EQUAL(buckets[0].edges, 1);
  CHECK_EQUAL(buckets[0].at, 2);
}

TEST(records_that_are_damaged_are_refused) {
  const std::vector<NarrowRecord> records{{kMark<NarrowRecord>, 0, 0}, {3, 1, 0}, {4, 0, 1}};
  Numbers ends(2), entries(4);
  CHECK(sort_records<true>(records.data(), 3, 0, as_is, 9, ends.data(), 2, entries.data(), 2));
  CHECK(!sort_records<true>(records.data(), 3, 0, as_is, 9, ends.data(), 1, entries.data(), 2));
  CHECK(!sort_records<true>(records.data(), 3, 0, as_is, 9, ends.data(), 2, entries.data(), 1));
  CHECK(!sort_records<true>(records.data(), 3, 0, as_is, 4, ends.data(), 2, entries.data(), 2));
  CHECK(!count_records(records.data(), 3, 0, as_is, ends.data(), 1));
  std::int64_t upper = 0;
  Numbers one(1), two(1), three(1);
  CHECK_EQUAL(unpack_records(records.data(), 3, upper, one.data(), two.data(), three.data(), 1), -1);
}

TEST(repeats_lose_their_bits) {
  Numbers entries{5, 0, 4, 1, 5, 2, 4, 3, 4, 70};
  const Numbers ends{3, 5};
  std::vector<MemberWord> words{{~std::uint64_t{0}, 0}, {~std::uint64_t{0}, 0}};
  const Repeats found =
      find_repeats(ends.data(), 2, entries.data(), 5, 0, words.data(), 128);
  CHECK_EQUAL(found.count, 2);
  CHECK_EQUAL(found.id, 2);
  CHECK_EQUAL(found.source, 5);
  CHECK_EQUAL(found.row, 0);
  CHECK_EQUAL(words[0].bits, ~std::uint64_t{4});
  CHECK_EQUAL(words[1].bits, ~std::uint64_t{64});
  CHECK_EQUAL(rank_members(words.data(), 2), 126);
  CHECK_EQUAL(words[1].before, 63u);
}

}  // namespace
