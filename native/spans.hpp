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

// The neighbours of every node of one edge type. `Paired` holds (neighbour, edge id) side by side,
// so that a sampled edge costs one cache line instead of two; `Bare` holds neighbours only, and the
// edge id is the position.
template <class Index>
struct Bare {
  using Id = Index;
  const std::int64_t* indptr;
  const Index* entries;
  std::int64_t num_nodes;
  std::int64_t num_edges;

  const void* entry(std::int64_t at) const { return entries + at; }
  std::int64_t neighbor(std::int64_t at) const { return entries[at]; }
  std::int64_t edge_id(std::int64_t at) const { return at; }
};

template <class Index>
struct Paired {
  using Id = Index;
  const std::int64_t* indptr;
  const Index* entries;
  std::int64_t num_nodes;
  std::int64_t num_edges;

  const void* entry(std::int64_t at) const { return entries + 2 * at; }
  std::int64_t neighbor(std::int64_t at) const { return entries[2 * at]; }
  std::int64_t edge_id(std::int64_t at) const { return entries[2 * at + 1]; }
};

}  // namespace penstock
