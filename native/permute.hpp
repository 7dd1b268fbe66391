// A keyed permutation of [0, n) that can be evaluated at any index: nobody stores shuffled ids.
//
// An alternating Feistel network over the smallest power of two that holds n, walked along its
// cycle until it lands inside: at most two steps on average.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "rng.hpp"

namespace penstock {

class Permutation {
 public:
  Permutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size) : size_(size) {
    const int bits = size > 1 ? std::bit_width(size - 1) : 0;
    right_bits_ = (bits + 1) / 2;
    left_mask_ = (std::uint64_t{1} << (bits - right_bits_)) - 1;
    right_mask_ = (std::uint64_t{1} << right_bits_) - 1;
    rounds_ = bits <= kFewBits ? kMostRounds : kRounds;
    const std::uint64_t key = fold(fold(fold(kPermuteDomain, seed), epoch), size);
    for (std::uint64_t round = 0; round < rounds_; ++round) keys_[round] = draw(key, round);
  }

  std::uint64_t operator()(std::uint64_t index) const {
    do index = scramble(index);
    while (index >= size_);
    return index;
  }

 private:
  // A round over a few bits mixes little: with 12 of them, 5 inputs do not come in all 120 orders
  // equally often.
  static constexpr int kFewBits = 8;
  static constexpr std::size_t kRounds = 12, kMostRounds = 32;

  std::uint64_t scramble(std::uint64_t index) const {
    std::uint64_t left = index >> right_bits_, right = index & right_mask_;
    for (std::size_t round = 0; round < rounds_; round += 2) {
      left ^= mix(keys_[round] ^ right) & left_mask_;
      right ^= mix(keys_[round + 1] ^ left) & right_mask_;
    }
    return (left << right_bits_) | right;
  }

  std::uint64_t size_;
  int right_bits_;
  std::uint64_t left_mask_;
  std::uint64_t right_mask_;
  std::size_t rounds_;
  std::array<std::uint64_t, kMostRounds> keys_;
};

}  // namespace penstock
