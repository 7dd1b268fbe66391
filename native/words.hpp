// The arithmetic of rng.hpp on four words at once, for machines with AVX2.
//
// AVX2 multiplies 32 bits by 32 bits. Written out, a product of words takes six instructions;
// compilers, which do not know that one factor is a constant, take more.
#pragma once

#include "rng.hpp"
#include "simd.hpp"

#if PENSTOCK_X86
#include <immintrin.h>

#define PENSTOCK_INLINE_AVX2 PENSTOCK_AVX2 PENSTOCK_INLINE

namespace penstock::avx2 {

inline constexpr std::int64_t kWords = 4;

typedef std::uint64_t FourWords __attribute__((vector_size(32)));
typedef std::int64_t FourNumbers __attribute__((vector_size(32)));
typedef std::uint32_t EightHalves __attribute__((vector_size(32)));  // eight of 32 bits

PENSTOCK_INLINE_AVX2 FourWords all(std::uint64_t word) { return FourWords{word, word, word, word}; }

template <class Vector = FourWords>
PENSTOCK_INLINE_AVX2 Vector load(const void* from) {
  return reinterpret_cast<Vector>(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
}

template <class Vector>
PENSTOCK_INLINE_AVX2 void store(void* into, Vector vector) {
  _mm256_storeu_si256(static_cast<__m256i*>(into), reinterpret_cast<__m256i>(vector));
}

// The products of the lower halves: 64 bits each.
PENSTOCK_INLINE_AVX2 FourWords times_low(FourWords a, FourWords b) {
  return reinterpret_cast<FourWords>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}

// Each word times `factor`, modulo 2^64. To the product of the lower halves come, in its upper
// half, both products of an upper half with a lower one; one multiplication of eight gives these.
PENSTOCK_INLINE_AVX2 FourWords times(FourWords words, std::uint64_t factor) {
  const EightHalves swapped = reinterpret_cast<EightHalves>(all(factor >> 32 | factor << 32));
  const auto across = reinterpret_cast<FourWords>(reinterpret_cast<EightHalves>(words) * swapped);
  const EightHalves low = reinterpret_cast<EightHalves>(times_low(words, all(factor)));
  const EightHalves one = reinterpret_cast<EightHalves>(across << 32);
  const EightHalves other = reinterpret_cast<EightHalves>(across & all(0xFFFFFFFF00000000ULL));
  return reinterpret_cast<FourWords>(low + one + other);
}

PENSTOCK_INLINE_AVX2 FourWords mix(FourWords z) {
  z = times(z ^ (z >> 30), 0xBF58476D1CE4E5B9ULL);
  z = times(z ^ (z >> 27), 0x94D049BB133111EBULL);
  return z ^ (z >> 31);
}

PENSTOCK_INLINE_AVX2 FourWords fold(FourWords h, FourWords words) {
  return mix(h ^ mix(words + kGamma));
}

// The upper halves are the words scaled to [0, bound), for bounds of 32 bits; the lower halves are
// left over.
PENSTOCK_INLINE_AVX2 FourWords bounded(FourWords words, FourWords bounds) {
  return times_low(words >> 32, bounds) + (times_low(words, bounds) >> 32);
}

// The lower halves of eight words, in order; or with `kUpper` the upper ones.
template <bool kUpper>
PENSTOCK_INLINE_AVX2 EightHalves halves(FourWords first, FourWords second) {
  constexpr int kWhich = kUpper ? 0xDD : 0x88;
  const __m256 mixed = _mm256_shuffle_ps(reinterpret_cast<__m256>(first),
                                         reinterpret_cast<__m256>(second), kWhich);
  return reinterpret_cast<EightHalves>(
      _mm256_permute4x64_epi64(reinterpret_cast<__m256i>(mixed), 0xD8));
}

}  // namespace penstock::avx2

#endif  // PENSTOCK_X86
