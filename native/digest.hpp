// A 128-bit digest of bytes at memory speed: for telling contents apart and finding damage, not
// against an adversary. docs/digest.md is the specification.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "rng.hpp"

namespace penstock {

static_assert(std::endian::native == std::endian::little, "files and digests are little-endian");

inline constexpr std::uint64_t kDigestDomain = 0x6469676573740001ULL;
inline constexpr std::uint64_t kDigestFactor = 0x9FB21C651E98DF25ULL;
inline constexpr std::size_t kDigestLanes = 8;
inline constexpr std::size_t kDigestStripe = kDigestLanes * sizeof(std::uint64_t);

struct Digest {
  std::uint64_t low;
  std::uint64_t high;
};

namespace detail {

using Lanes = std::array<std::uint64_t, kDigestLanes>;

inline void absorb_stripe(Lanes& lanes, const unsigned char* stripe) {
  for (std::size_t lane = 0; lane < kDigestLanes; ++lane) {
    std::uint64_t word;
    std::memcpy(&word, stripe + lane * sizeof word, sizeof word);
    const Wide product = static_cast<Wide>(lanes[lane] ^ word) * kDigestFactor;
    lanes[lane] = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
}

}  // namespace detail

inline Digest digest(const unsigned char* bytes, std::size_t length) {
  detail::Lanes lanes;
  for (std::size_t lane = 0; lane < kDigestLanes; ++lane) lanes[lane] = fold(kDigestDomain, lane);

  std::size_t at = 0;
  for (; at + kDigestStripe <= length; at += kDigestStripe) {
    detail::absorb_stripe(lanes, bytes + at);
  }
  if (at < length) {  // the tail, padded with zeros; the length below tells it from real zeros
    unsigned char tail[kDigestStripe] = {};
    std::memcpy(tail, bytes + at, length - at);
    detail::absorb_stripe(lanes, tail);
  }

  std::uint64_t low = fold(kDigestDomain, length);
  for (const std::uint64_t lane : lanes) low = fold(low, lane);
  std::uint64_t high = low;
  for (const std::uint64_t lane : lanes) high = fold(high, lane);
  return {low, high};
}

}  // namespace penstock
