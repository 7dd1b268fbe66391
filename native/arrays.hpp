// NumPy arrays as the kernels want them: the types accepted, and what is checked of their memory.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "spans.hpp"

namespace penstock {

namespace nb = nanobind;

using Input = nb::ndarray<nb::numpy, nb::ro>;
using Ids = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>>;
using Bytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>, nb::c_contig>;
using Words = nb::ndarray<nb::numpy, const std::uint64_t, nb::ndim<1>, nb::c_contig>;
using Output = nb::ndarray<nb::numpy, nb::c_contig>;
using IdOutput = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>, nb::c_contig>;
using ByteOutput = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig>;

// Kernels read whole numbers: at an odd address that is undefined, and vectors may trap on it.
inline void check_aligned(const void* data, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(data) % bytes != 0) {
    throw nb::value_error("arrays must be aligned to the size of their elements");
  }
}

template <class Array>
void check_aligned(const Array& array) {
  check_aligned(array.data(), array.itemsize());
}

// The addresses from an array's first byte to its last.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
};

template <class Array>
Extent extent(const Array& array) {
  std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(array.data()), end = begin;
  const auto bytes = static_cast<std::int64_t>(array.itemsize());
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    if (array.shape(axis) == 0) return {begin, begin};
    const auto last = (static_cast<std::int64_t>(array.shape(axis)) - 1) * array.stride(axis);
    if (last < 0) begin -= static_cast<std::uintptr_t>(-last * bytes);
    else end += static_cast<std::uintptr_t>(last * bytes);
  }
  return {begin, end + static_cast<std::uintptr_t>(bytes)};
}

// What a kernel writes must overlap nothing else it works with: ids are checked before it runs, and
// would be other ids afterwards.
inline void check_apart(std::vector<Extent> written, const std::vector<Extent>& read) {
  std::erase_if(written, [](const Extent& e) { return e.begin == e.end; });
  std::sort(written.begin(), written.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  bool overlap = false;
  for (std::size_t i = 1; i < written.size(); ++i) {
    overlap |= written[i].begin < written[i - 1].end;
  }
  for (const Extent& e : read) {
    const auto after = std::lower_bound(written.begin(), written.end(), e.end,
                                        [](const Extent& a, std::uintptr_t at) { return a.begin < at; });
    overlap |= e.begin != e.end && after != written.begin() && std::prev(after)->end > e.begin;
  }
  if (overlap) throw nb::value_error("output must not share memory with other arrays");
}

template <class T>
Strided<T> strided(const Input& array) {
  check_aligned(array);
  return {static_cast<const T*>(array.data()), static_cast<std::int64_t>(array.shape(0)),
          array.stride(0)};
}

inline Strided<std::int64_t> strided(const Ids& array) {
  check_aligned(array);
  return {array.data(), static_cast<std::int64_t>(array.shape(0)), array.stride(0)};
}

// Calls `body` with a null pointer of the array's integer type.
template <class Body>
auto with_index_type(nb::dlpack::dtype dtype, Body body) {
  if (dtype == nb::dtype<std::int32_t>()) return body(static_cast<std::int32_t*>(nullptr));
  if (dtype == nb::dtype<std::int64_t>()) return body(static_cast<std::int64_t*>(nullptr));
  throw nb::type_error("ids must be int32 or int64");
}

inline std::size_t length(const Input& ids) {
  if (ids.ndim() != 1) throw nb::value_error("ids must have one dimension");
  return ids.shape(0);
}

template <class Body>
auto with_ids(const Input& ids, Body body) {
  length(ids);
  return with_index_type(ids.dtype(), [&]<class T>(T*) { return body(strided<T>(ids)); });
}

// A copy of ids that a kernel reads more than once: others might write to them meanwhile.
inline std::vector<std::int64_t> copied(const Input& ids) {
  return with_ids(ids, [](auto span) {
    std::vector<std::int64_t> copy(static_cast<std::size_t>(span.size));
    for (std::int64_t i = 0; i < span.size; ++i) copy[static_cast<std::size_t>(i)] = span[i];
    return copy;
  });
}

}  // namespace penstock
