// Runs a check with all instructions that this machine has, one way after the other.
#pragma once

#include "check.hpp"
#include "simd.hpp"

template <class Check>
void with_each_simd(const Check& check) {
  const penstock::Simd before = penstock::simd_in_use();
  for (const penstock::Simd simd : penstock::available_simd()) {
    CHECK(penstock::use_simd(simd));
    const int failures = testing::failures;
    check();
    if (testing::failures > failures) {
      std::printf("… with %s\n", std::string(penstock::simd_name(simd)).c_str());
    }
  }
  penstock::use_simd(before);
}
