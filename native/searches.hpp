// Binary searches in sorted rows, many side by side: while one waits for memory, the others go on.
//
// A row that is not sorted gives some place within it; nothing outside is ever read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "choose.hpp"
#include "prefetch.hpp"

namespace penstock {

class Searches {
 public:
  static constexpr std::int64_t kMost = kBlockNodes * kBlockTake;  // at a time

  explicit Searches(const std::int64_t* values) : values_(values), at_(kMost), bound_(kMost) {}

  std::int64_t size() const { return size_; }

  void clear() {
    size_ = 0;
    rows_.clear();
  }

  // Some searches in [begin, begin + count), count > 0: each looks for the first place whose value
  // is greater than its bound. The last place is found where none before it is, whatever its own
  // value, which is not read: a search over one place more than a row has finds its end. The bounds
  // are to be written where the result points to.
  std::int64_t* add(std::int64_t begin, std::int64_t count, std::int64_t searches) {
    const std::int64_t first = size_;
    size_ += searches;
    std::fill_n(at_.data() + first, searches, begin);
    if (count > 1) {
      rows_.push_back({first, searches, count});
      prefetch_once(values_ + begin + (count >> 1) - 1);
    }
    return bound_.data() + first;
  }

  // Halves all rows, then all halves, until each is one place. No branch depends on a value.
  void run() {
    while (!rows_.empty()) {
      for (Row& row : rows_) {
        halve(row);
        if (row.left > kLine) send_for_middles(row);
      }
      std::erase_if(rows_, [](const Row& row) { return row.left == 1; });
    }
  }

  // Where each search ended, in the order they were added.
  const std::int64_t* found() const { return at_.data(); }

 private:
  // Searches in one row: they stand in different places, but all have as many places left.
  struct Row {
    std::int64_t first;
    std::int64_t searches;
    std::int64_t left;
  };

  // So few places lie in the cache lines that were read to get there.
  static constexpr std::int64_t kLine = 8;

  void halve(Row& row) {
    const std::int64_t half = row.left >> 1;
    const std::int64_t* const ends = values_ + half - 1;
    const std::int64_t* const bound = bound_.data() + row.first;
    std::int64_t* const at = at_.data() + row.first;
    for (std::int64_t i = 0; i < row.searches; ++i) {
      at[i] += half & -static_cast<std::int64_t>(ends[at[i]] <= bound[i]);
    }
    row.left -= half;
  }

  void send_for_middles(const Row& row) const {
    const std::int64_t* const ends = values_ + (row.left >> 1) - 1;
    const std::int64_t* const at = at_.data() + row.first;
    for (std::int64_t i = 0; i < row.searches; ++i) prefetch_once(ends + at[i]);
  }

  const std::int64_t* values_;
  std::int64_t size_ = 0;
  std::vector<std::int64_t> at_;
  std::vector<std::int64_t> bound_;
  std::vector<Row> rows_;  // those not done
};

}  // namespace penstock
