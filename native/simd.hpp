// Loops that are compiled once for any machine and once more for each set of vector instructions
// that pays; which of them runs is decided when the module is loaded.
//
// Every way gives the same bits: what decides a draw is integer arithmetic. A distributed build
// needs no -march.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__)
#define PENSTOCK_X86 1
#define PENSTOCK_AVX2 [[gnu::target("avx2,bmi,bmi2,popcnt,prefer-vector-width=256")]]
#define PENSTOCK_AVX512 \
  [[gnu::target("avx512f,avx512dq,avx512vl,avx512bw,bmi,bmi2,popcnt,prefer-vector-width=512")]]
#else
#define PENSTOCK_X86 0
#endif

#if defined(__aarch64__) && defined(__GNUC__)
#define PENSTOCK_ARM 1
#else
#define PENSTOCK_ARM 0
#endif

// A body that is compiled for each way has to be inlined where it is called. The second form is for
// lambdas, between their parameters and their braces.
#define PENSTOCK_INLINE [[gnu::always_inline]] inline
#define PENSTOCK_INLINED __attribute__((always_inline))

namespace penstock {

// The best first. NEON is a part of every 64-bit ARM, so that compilers use it for kPlain, too;
// kNeon adds what has to be written for it.
enum class Simd { kAvx512, kAvx2, kNeon, kPlain };

inline constexpr std::array kAllSimd{Simd::kAvx512, Simd::kAvx2, Simd::kNeon, Simd::kPlain};

constexpr std::string_view simd_name(Simd simd) {
  constexpr std::string_view names[] = {"avx512", "avx2", "neon", "plain"};
  return names[static_cast<std::size_t>(simd)];
}

// Whether this build has it and this machine can run it.
inline bool has_simd(Simd simd) {
  switch (simd) {
#if PENSTOCK_X86
    case Simd::kAvx512:
      return has_simd(Simd::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512bw");
    case Simd::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
             __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
#endif
    case Simd::kNeon: return PENSTOCK_ARM != 0;
    case Simd::kPlain: return true;
    default: return false;
  }
}

// The best first.
inline std::vector<Simd> available_simd() {
  std::vector<Simd> available;
  for (const Simd simd : kAllSimd) {
    if (has_simd(simd)) available.push_back(simd);
  }
  return available;
}

namespace detail {

inline std::atomic<Simd>& chosen_simd() {
  static std::atomic<Simd> chosen = available_simd().front();
  return chosen;
}

}  // namespace detail

inline Simd simd_in_use() { return detail::chosen_simd().load(std::memory_order_relaxed); }

// False where there is no such way here. May be called while kernels run: each of their steps runs
// one way or the other, and all give the same.
inline bool use_simd(Simd simd) {
  if (!has_simd(simd)) return false;
  detail::chosen_simd().store(simd, std::memory_order_relaxed);
  return true;
}

namespace detail {

#if PENSTOCK_X86
template <class Body>
PENSTOCK_AVX512 void run_avx512(const Body& body) {
  body.template operator()<Simd::kAvx512>();
}

template <class Body>
PENSTOCK_AVX2 void run_avx2(const Body& body) {
  body.template operator()<Simd::kAvx2>();
}
#endif

}  // namespace detail

// Calls `body`, a lambda with a `Simd` as its template parameter, compiled for the way in use.
template <class Body>
void with_simd(const Body& body) {
  switch (simd_in_use()) {
#if PENSTOCK_X86
    case Simd::kAvx512: return detail::run_avx512(body);
    case Simd::kAvx2: return detail::run_avx2(body);
#endif
#if PENSTOCK_ARM
    case Simd::kNeon: return body.template operator()<Simd::kNeon>();
#endif
    default: return body.template operator()<Simd::kPlain>();
  }
}

}  // namespace penstock
