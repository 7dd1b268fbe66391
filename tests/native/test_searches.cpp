// Searches in sorted rows: the place is that of a plain search, however the values rise.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.hpp"
#include "each_simd.hpp"
#include "rng.hpp"
#include "searches.hpp"

namespace {

using namespace penstock;
using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();

struct Task {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t guess;
  double slope;
};

// With the instructions in use, as loops of choosers do.
void look(Searches& searches, const Task& task, const Numbers& bounds, Numbers& found) {
  with_simd([&]<Simd kSimd>() PENSTOCK_INLINED {
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      const std::int64_t window = searches.window(task.begin, task.end, task.guess);
      searches.send_for(window);
      searches.look<kSimd>(task.begin, task.end, window, bounds[i], task.slope, &found[i]);
    }
  });
}

// Looks for all bounds in all of the row from `begin` on, beginning at each of a few guesses.
void check_found(const Numbers& row, std::int64_t begin, const Numbers& bounds, double slope) {
  Searches searches(row.data());
  const auto end = static_cast<std::int64_t>(row.size());
  for (const std::int64_t guess : {begin, begin + (end - begin) / 3, end}) {
    Numbers found(bounds.size(), -1);
    look(searches, {begin, end, guess, slope}, bounds, found);
    searches.finish();
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      const auto place = std::upper_bound(row.begin() + begin, row.end(), bounds[i]);
      CHECK_EQUAL(found[i], place - row.begin());
    }
  }
}

// Every value of a row and those beside it, as many as may be looked for at a time.
Numbers bounds_of(const Numbers& row) {
  Numbers bounds{kLeast, kLeast + 1, -1, 0, 1, kGreatest - 1, kGreatest};
  const std::size_t step = std::max<std::size_t>(1, row.size() / 300);
  for (std::size_t i = 0; i < row.size(); i += step) {
    bounds.push_back(row[i]);
    if (row[i] > kLeast) bounds.push_back(row[i] - 1);
    if (row[i] < kGreatest) bounds.push_back(row[i] + 1);
  }
  return bounds;
}

void check_row(const Numbers& row) {
  for (const double slope : {0.0, 1.0, 1e-9, 1e18}) {
    for (const std::int64_t begin : {0, 1, 5}) {
      if (begin <= static_cast<std::int64_t>(row.size())) {
        with_each_simd([&] { check_found(row, begin, bounds_of(row), slope); });
      }
    }
  }
}

}  // namespace

TEST(a_search_finds_the_first_greater_value) {
  for (std::int64_t size = 0; size < 70; ++size) {
    Numbers even, random, equal(static_cast<std::size_t>(size), 7);
    for (std::int64_t i = 0; i < size; ++i) {
      even.push_back(10 * i);
      random.push_back(static_cast<std::int64_t>(draw(5, static_cast<std::uint64_t>(i))));
    }
    std::sort(random.begin(), random.end());
    for (const Numbers& row : {even, random, equal}) check_row(row);
  }
}

TEST(a_search_in_a_row_that_rises_as_it_likes_finds_it_too) {
  Numbers doubling, late(20000, -3), steps, ends(5000, kLeast);
  for (int i = 0; i < 63; ++i) doubling.insert(doubling.end(), 40, std::int64_t{1} << i);
  for (std::int64_t i = 0; i < 20; ++i) late.push_back(kGreatest - 19 + i);
  for (std::int64_t i = 0; i < 20000; ++i) steps.push_back(i / 64 * 1000 + i % 3 / 2);
  ends.insert(ends.end(), 5000, kGreatest);
  std::sort(steps.begin(), steps.end());
  for (const Numbers& row : {doubling, late, steps, ends}) check_row(row);
}

TEST(a_search_in_a_row_that_is_not_sorted_ends_within_it) {
  Numbers row;
  for (std::uint64_t i = 0; i < 3000; ++i) row.push_back(static_cast<std::int64_t>(draw(9, i)));
  Searches searches(row.data());
  Numbers found(1000, -1);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::int64_t window = searches.window(100, 2900, static_cast<std::int64_t>(i));
    searches.look(100, 2900, window, row[i], i % 2 == 0 ? 0 : 1e-16, &found[i]);
  }
  searches.finish();
  for (const std::int64_t place : found) CHECK(place >= 100 && place <= 2900);
}
