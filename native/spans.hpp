// Views of memory that somebody else owns.
#pragma once

#include <cstdint>

namespace penstock {

// One-dimensional, any stride (counted in elements): a row of an edge_index needs no copy.
template <class T>
struct Strided {
  const T* data;
  std::int64_t size;
  std::int64_t stride;

  T operator[](std::int64_t i) const { return data[i * stride]; }
};

}  // namespace penstock
