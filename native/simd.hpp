// One loop, compiled once for any machine and once for those with AVX-512; chosen when it runs.
//
// The loops are plain C++ and integer only, so both give the same bits; a distributed build needs
// no -march. `PENSTOCK_WIDE` marks the second compilation of an always-inlined body.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define PENSTOCK_HAS_WIDE 1
#define PENSTOCK_WIDE [[gnu::target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")]]
#else
#define PENSTOCK_HAS_WIDE 0
#endif

#define PENSTOCK_INLINE [[gnu::always_inline]] inline

namespace penstock {

inline bool machine_is_wide() {
#if PENSTOCK_HAS_WIDE
  static const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  return wide;
#else
  return false;
#endif
}

}  // namespace penstock
