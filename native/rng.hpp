// Counter-based random numbers: every draw is a pure function of its key, so any process can make
// any draw again. docs/random.md is the specification, kernels/reference.py the NumPy twin.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

inline constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15ULL;

// Domains keep the streams of different purposes apart, whatever else their keys share.
inline constexpr std::uint64_t kSampleDomain = 0x73616D706C650001ULL;
inline constexpr std::uint64_t kPermuteDomain = 0x7065726D75740001ULL;

constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Folds one more word into a key. Not symmetric: fold(fold(h, a), b) != fold(fold(h, b), a).
constexpr std::uint64_t fold(std::uint64_t h, std::uint64_t word) {
  return mix(h ^ mix(word + kGamma));
}

// The key shared by all nodes that one hop of one batch expands along one edge type.
constexpr std::uint64_t hop_key(std::uint64_t batch_key, std::uint64_t hop,
                                std::uint64_t edge_type_hash) {
  return fold(fold(batch_key, hop), edge_type_hash);
}

constexpr std::uint64_t batch_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t index) {
  return fold(fold(fold(kSampleDomain, seed), epoch), index);
}

// The key of one expanding node; `tree` is 0 unless sampling is disjoint.
constexpr std::uint64_t node_key(std::uint64_t hop_key, std::uint64_t node, std::uint64_t tree) {
  return fold(fold(hop_key, node), tree);
}

constexpr std::uint64_t draw(std::uint64_t key, std::uint64_t j) { return mix(key + j * kGamma); }

__extension__ typedef unsigned __int128 Wide;

// A draw scaled to [0, bound) by multiply-shift; the bias is below bound / 2^64.
constexpr std::uint64_t bounded(std::uint64_t word, std::uint64_t bound) {
  return static_cast<std::uint64_t>((static_cast<Wide>(word) * bound) >> 64);
}

}  // namespace penstock
