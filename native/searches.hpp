// Searches in sorted rows, many side by side: while one waits for memory, the others go on.
//
// A search begins where its caller guesses, and goes on where a straight line through what it read
// leads. Where values rise evenly that is soon over; where they do not, what is left is halved, so
// that no search takes longer than the logarithm of its row. What is found is the same in any case.
//
// A row that is not sorted gives some place within it; nothing outside is ever read.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "choose.hpp"
#include "prefetch.hpp"
#include "simd.hpp"

#if PENSTOCK_X86
#include <immintrin.h>
#endif

namespace penstock {

class Searches {
 public:
  static constexpr std::int64_t kWindow = 8;  // values in a cache line
  static constexpr std::int64_t kMost = kBlockNodes * kBlockTake;  // at a time

  explicit Searches(const std::int64_t* values)
      : values_(values),
        lead_(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(values) /
                                        sizeof(std::int64_t))) {}

  // What of [begin, end) is read to see whether a search ends at a place: its cache line; at the
  // ends of a row as many values within it; all of a short one.
  static std::int64_t window(std::int64_t begin, std::int64_t end, std::int64_t place,
                             std::int64_t lead) {
    const std::int64_t line = place - ((place + lead) & (kWindow - 1));
    return std::max(begin, std::min(line, end - kWindow));
  }
  std::int64_t window(std::int64_t begin, std::int64_t end, std::int64_t place) const {
    return window(begin, end, place, lead_);
  }
  std::int64_t lead() const { return lead_; }

  // To be called in a loop of its own: mixed with other work, much is sent for in vain.
  void send_for(std::int64_t window) const { prefetch_once(values_ + window); }

  // Writes to `found` the first place of [begin, end) whose value is greater than `bound`, or
  // `end` where there is none: at once, if it is in the window, or in finish(). `slope` is how many
  // places, about, lie between two values that differ by one, or 0 where nobody knows. Where that
  // does not lead there, the row is another than expected, and what was read last counts.
  //
  // `kSimd` is what the loop round it is compiled for.
  template <Simd kSimd = Simd::kPlain>
  PENSTOCK_INLINE void look(std::int64_t begin, std::int64_t end, std::int64_t window,
                            std::int64_t bound, double slope, std::int64_t* found) {
    if (open_ == nullptr) open_ = std::make_unique_for_overwrite<Search[]>(kMost);
    step<true, kSimd>({begin, end, window, bound, slope, found});
  }

  void finish() {
    with_simd([&]<Simd kSimd>() PENSTOCK_INLINED { finish_body<kSimd>(); });
  }

 private:
  struct Search {
    std::int64_t begin;
    std::int64_t end;
    std::int64_t window;
    std::int64_t bound;
    double slope;
    std::int64_t* found;
  };

  static constexpr int kGuesses = 4;  // then rows are halved

  template <Simd kSimd>
  PENSTOCK_INLINE void finish_body() {
    for (int guesses = 1; size_ > 0; ++guesses) {
      for (std::int64_t i = 0; i < size_; ++i) send_for(open_[i].window);
      const std::int64_t size = std::exchange(size_, 0);
      if (guesses < kGuesses) {
        for (std::int64_t i = 0; i < size; ++i) step<true, kSimd>(open_[i]);
      } else {
        for (std::int64_t i = 0; i < size; ++i) step<false, kSimd>(open_[i]);
      }
    }
  }

  // Reads a window, and keeps what is not over then. Whether it is cannot be predicted, so nothing
  // branches on it.
  template <bool kGuess, Simd kSimd>
  PENSTOCK_INLINE void step(Search search) {
    const Read read = narrow<kSimd>(search);
    *search.found = search.begin;
    const std::int64_t next = kGuess ? guess(search, read) : middle(search);
    search.window = window(search.begin, search.end, next);
    search.slope = 0;
    open_[size_] = search;
    size_ += search.begin < search.end;
  }

  // What a search read that is not over: the first and the last value, and where the first is.
  struct Read {
    std::int64_t first;
    std::int64_t last;
    std::int64_t at;
  };

  template <Simd kSimd>
  PENSTOCK_INLINE Read narrow(Search& search) const {
    const std::int64_t* const values = values_ + search.window;
    const std::int64_t size = search.end - search.begin, at = search.window;
    if (size < kWindow) [[unlikely]] {
      search.begin = search.end = at + count_few(values, size, search.bound);
      return {0, 0, at};
    }
    const std::int64_t count = count_window<kSimd>(values, search.bound);
    search.begin = either(count > 0, at + count, search.begin);
    search.end = either(count < kWindow, at + count, search.end);
    return {values[0], values[kWindow - 1], at};
  }

  // Compilers make branches of `?:` where they see fit, and here they do.
  PENSTOCK_INLINE static std::int64_t either(bool first, std::int64_t one, std::int64_t other) {
    return other ^ ((one ^ other) & -std::int64_t{first});
  }

  // How many are not greater.
  template <Simd kSimd>
  PENSTOCK_INLINE static std::int64_t count_window(const std::int64_t* values, std::int64_t bound) {
#if PENSTOCK_X86
    if constexpr (kSimd == Simd::kAvx512) return count_avx512(values, bound);
    if constexpr (kSimd == Simd::kAvx2) return count_avx2(values, bound);
#endif
    if constexpr (kSimd == Simd::kNeon) return count_in_pairs(values, bound);
    std::int64_t count = std::int64_t{values[3] <= bound} << 2;
    count += std::int64_t{values[count + 1] <= bound} << 1;
    count += std::int64_t{values[count] <= bound};
    return count + std::int64_t{values[count] <= bound};
  }

#if PENSTOCK_X86
  PENSTOCK_AVX512 static std::int64_t count_avx512(const std::int64_t* values, std::int64_t bound) {
    const __m512i line = _mm512_loadu_si512(values);
    const __mmask8 few = _mm512_cmple_epi64_mask(line, _mm512_set1_epi64(bound));
    return std::popcount(static_cast<unsigned>(few));
  }

  PENSTOCK_AVX2 static std::int64_t count_avx2(const std::int64_t* values, std::int64_t bound) {
    const auto* const half = reinterpret_cast<const __m256i*>(values);
    const __m256i bounds = _mm256_set1_epi64x(bound);
    const __m256i first = _mm256_cmpgt_epi64(_mm256_loadu_si256(half), bounds);
    const __m256i second = _mm256_cmpgt_epi64(_mm256_loadu_si256(half + 1), bounds);
    const __m256 greater = _mm256_castsi256_ps(_mm256_packs_epi32(first, second));
    return kWindow - std::popcount(static_cast<unsigned>(_mm256_movemask_ps(greater)));
  }
#endif

  // Compares two at a time, for machines that can do so with numbers of 64 bits.
  PENSTOCK_INLINE static std::int64_t count_in_pairs(const std::int64_t* values,
                                                     std::int64_t bound) {
    typedef std::int64_t Pair __attribute__((vector_size(16)));
    Pair count = {};
    for (std::int64_t i = 0; i < kWindow; i += 2) {
      Pair pair;
      std::memcpy(&pair, values + i, sizeof(Pair));
      count -= pair <= bound;
    }
    return count[0] + count[1];
  }

  static std::int64_t count_few(const std::int64_t* values, std::int64_t size, std::int64_t bound) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < size; ++i) count += values[i] <= bound;
    return count;
  }

  PENSTOCK_INLINE static std::int64_t middle(const Search& search) {
    return search.begin + (search.end - search.begin) / 2;
  }

  PENSTOCK_INLINE static std::int64_t guess(const Search& search, const Read& read) {
    const auto first = static_cast<double>(read.first);
    double slope = search.slope;
    if (slope == 0) {
      const double rise = static_cast<double>(read.last) - first;
      if (!(rise > 0)) return middle(search);
      slope = (kWindow - 1) / rise;
    }
    const double place =
        static_cast<double>(read.at) + (static_cast<double>(search.bound) - first) * slope;
    return static_cast<std::int64_t>(std::min(std::max(place, static_cast<double>(search.begin)),
                                              static_cast<double>(search.end)));
  }

  const std::int64_t* values_;
  std::int64_t lead_;  // how many values before the first, as far as cache lines go
  std::unique_ptr<Search[]> open_;
  std::int64_t size_ = 0;
};

}  // namespace penstock
