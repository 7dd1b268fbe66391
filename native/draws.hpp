// The draws of a block of nodes. Draw j of all of them is one loop without branches.
//
// What a machine does best differs. AVX-512 multiplies words, and compilers make vectors of plain
// loops. AVX2 does not multiply words, and its multiplications are written out (words.hpp). Any
// other machine multiplies words one by one, and compares draws by vectors. The numbers drawn are
// the same.
#pragma once

#include <cstdint>
#include <cstring>

#include "opaque.hpp"
#include "rng.hpp"
#include "simd.hpp"
#include "words.hpp"

namespace penstock {

inline constexpr std::int64_t kBlockNodes = 64;
inline constexpr std::int64_t kBlockTake = 32;  // fan-outs up to this are drawn by blocks

// A few nodes about to be expanded. `offset[j][i]` will be draw j of node i. Lists begin where
// cache lines do, or every vector would be read from two of them.
struct NodeBlock {
  std::int64_t size = 0;
  alignas(64) std::int64_t node[kBlockNodes];
  std::int64_t place[kBlockNodes];
  std::int64_t begin[kBlockNodes];
  std::int64_t degree[kBlockNodes];
  std::uint64_t tree[kBlockNodes];  // the word in its key: 0, or one more than the tree's number
  std::int64_t time[kBlockNodes];   // its tree's time, where there are times
  std::uint64_t key[kBlockNodes];
  std::uint32_t bound[kBlockNodes];
  std::uint32_t offset[kBlockTake][kBlockNodes];
};

namespace detail {

// bounded() for a bound of 32 bits, in 32-bit multiplications, which vectors have.
PENSTOCK_INLINE std::uint32_t bounded_narrow(std::uint64_t word, std::uint32_t bound) {
  const std::uint64_t low = (word & 0xFFFFFFFFULL) * bound;
  const std::uint64_t high = (word >> 32) * bound;
  return static_cast<std::uint32_t>((high + (low >> 32)) >> 32);
}

// Keeps compilers from making vectors of the loop round it where these cannot multiply words: put
// together from smaller products, draws take a third longer.
template <Simd kSimd>
PENSTOCK_INLINE std::uint64_t one_by_one(std::uint64_t word) {
  return kSimd == Simd::kAvx512 ? word : opaque(word);
}

// The keys of all nodes. Without `kTrees` every tree's word is 0, and known.
template <Simd kSimd, bool kTrees>
PENSTOCK_INLINE void make_keys(NodeBlock& block, std::uint64_t hop_key) {
  for (std::int64_t i = 0; i < kBlockNodes; ++i) {
    const std::uint64_t tree = kTrees ? block.tree[i] : 0;
    const auto node = one_by_one<kSimd>(static_cast<std::uint64_t>(block.node[i]));
    block.key[i] = node_key(hop_key, node, tree);
  }
}

// Floyd's method: replaces each draw j that repeats an earlier one by the last number in its range,
// which no earlier draw can be. Compilers make vectors of these loops.
PENSTOCK_INLINE void replace_taken(NodeBlock& block, std::int64_t j) {
  std::uint32_t* const drawn = block.offset[j];
  std::uint32_t taken[kBlockNodes] = {};
  for (std::int64_t earlier = 0; earlier < j; ++earlier) {
    for (std::int64_t i = 0; i < kBlockNodes; ++i) {
      taken[i] |= block.offset[earlier][i] == drawn[i] ? ~0U : 0U;
    }
  }
  const auto step = static_cast<std::uint32_t>(j);
  for (std::int64_t i = 0; i < kBlockNodes; ++i) {
    drawn[i] = (drawn[i] & ~taken[i]) | ((block.bound[i] + step) & taken[i]);
  }
}

// The same in vectors of 16 bytes, four at a time, so that `taken` stays in registers on any
// machine. Of the loops above compilers make such as load and store it each time.
PENSTOCK_INLINE void replace_taken_narrow(NodeBlock& block, std::int64_t j) {
  typedef std::uint32_t Lanes __attribute__((vector_size(16)));
  constexpr std::int64_t kLanes = 4, kVectors = 4;
  using Vectors = Lanes[kVectors];
  for (std::int64_t first = 0; first < kBlockNodes; first += kLanes * kVectors) {
    Vectors drawn, bound, taken = {};
    std::memcpy(drawn, block.offset[j] + first, sizeof(Vectors));
    std::memcpy(bound, block.bound + first, sizeof(Vectors));
    for (std::int64_t earlier = 0; earlier < j; ++earlier) {
      for (std::int64_t k = 0; k < kVectors; ++k) {
        Lanes other;
        std::memcpy(&other, block.offset[earlier] + first + kLanes * k, sizeof(Lanes));
        taken[k] |= reinterpret_cast<Lanes>(other == drawn[k]);
      }
    }
    for (std::int64_t k = 0; k < kVectors; ++k) {
      const Lanes last = bound[k] + static_cast<std::uint32_t>(j);
      drawn[k] = (drawn[k] & ~taken[k]) | (last & taken[k]);
    }
    std::memcpy(block.offset[j] + first, drawn, sizeof(Vectors));
  }
}

// All draws of a block. Floyd: draw j is over [0, last], last = degree - take + j, and stands for
// `last` itself when it was chosen before. Nodes with fewer edges than `take` get numbers that
// nobody uses. Fixed trip counts, no branches.
template <Simd kSimd, bool kReplace, bool kTrees>
PENSTOCK_INLINE void draw_block_body(NodeBlock& block, std::int64_t take, std::uint64_t hop_key) {
  make_keys<kSimd, kTrees>(block, hop_key);
  for (std::int64_t i = 0; i < kBlockNodes; ++i) {
    block.bound[i] = static_cast<std::uint32_t>(block.degree[i] - (kReplace ? 0 : take));
  }
  for (std::int64_t j = 0; j < take; ++j) {
    const auto step = static_cast<std::uint32_t>(j);
    std::uint32_t* const drawn = block.offset[j];
    for (std::int64_t i = 0; i < kBlockNodes; ++i) {
      const std::uint32_t bound = kReplace ? block.bound[i] : block.bound[i] + step + 1;
      const std::uint64_t word = draw(block.key[i], step);
      if constexpr (kSimd == Simd::kAvx512) drawn[i] = bounded_narrow(word, bound);
      else drawn[i] = static_cast<std::uint32_t>(bounded(word, bound));
    }
    if constexpr (!kReplace) {
      if constexpr (kSimd == Simd::kAvx512) replace_taken(block, j);
      else replace_taken_narrow(block, j);
    }
  }
}

#if PENSTOCK_X86
template <bool kTrees>
PENSTOCK_INLINE_AVX2 avx2::FourWords keys_of_four(const NodeBlock& block, std::int64_t i,
                                                  std::uint64_t hop_key) {
  const avx2::FourWords trees = kTrees ? avx2::load(block.tree + i) : avx2::all(0);
  return avx2::fold(avx2::fold(avx2::all(hop_key), avx2::load(block.node + i)), trees);
}

// The same, eight nodes after each other: what is drawn for them stays in registers.
template <bool kReplace, bool kTrees>
PENSTOCK_AVX2 void draw_block_avx2(NodeBlock& block, std::int64_t take, std::uint64_t hop_key) {
  using namespace avx2;
  for (std::int64_t i = 0; i < kBlockNodes; i += 2 * kWords) {
    FourWords keys[2], bounds[2];
    for (std::int64_t k = 0; k < 2; ++k) {
      keys[k] = keys_of_four<kTrees>(block, i + k * kWords, hop_key);
      bounds[k] = load(block.degree + i + k * kWords);
      if constexpr (!kReplace) bounds[k] -= all(static_cast<std::uint64_t>(take - 1));
    }
    EightHalves last = halves<false>(bounds[0], bounds[1]) - 1;  // for draws without replacement
    for (std::int64_t j = 0; j < take; ++j) {
      EightHalves drawn = halves<true>(bounded(mix(keys[0]), bounds[0]),
                                       bounded(mix(keys[1]), bounds[1]));
      for (FourWords& some : keys) some += kGamma;
      if constexpr (!kReplace) {
        EightHalves taken{};
        for (std::int64_t earlier = 0; earlier < j; ++earlier) {
          const auto other = load<EightHalves>(block.offset[earlier] + i);
          taken |= reinterpret_cast<EightHalves>(other == drawn);
        }
        drawn = taken != 0 ? last : drawn;
        last += 1;
        for (FourWords& some : bounds) some += 1;
      }
      store(block.offset[j] + i, drawn);
    }
  }
}
#endif

template <bool kReplace, bool kTrees = true>
void draw_block(NodeBlock& block, std::int64_t take, std::uint64_t hop_key) {
  with_simd([&]<Simd kSimd>() PENSTOCK_INLINED {
#if PENSTOCK_X86
    if constexpr (kSimd == Simd::kAvx2) {
      return draw_block_avx2<kReplace, kTrees>(block, take, hop_key);
    }
#endif
    draw_block_body<kSimd, kReplace, kTrees>(block, take, hop_key);
  });
}

}  // namespace detail

}  // namespace penstock
