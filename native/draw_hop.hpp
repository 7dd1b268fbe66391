// The first half of a hop by itself: what nodes give, in ids of the whole graph. For graphs that are
// not all here, whose hops are put together from several places (assembly.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "khop.hpp"
#include "neighbor.hpp"

namespace penstock {

// A list in memory that grows, whose elements are not written before they are there.
template <class T>
class Grown {
 public:
  T* data() { return data_.get(); }
  std::int64_t capacity() const { return capacity_; }

  void reserve(std::int64_t wanted) {
    if (wanted <= capacity_) [[likely]] return;
    const std::int64_t size = std::max({wanted, 2 * capacity_, std::int64_t{64}});
    if (static_cast<std::uint64_t>(size) > std::numeric_limits<std::size_t>::max() / sizeof(T) / 2) {
      throw std::bad_alloc();
    }
    void* const moved = std::realloc(data_.get(), static_cast<std::size_t>(size) * sizeof(T));
    if (moved == nullptr) throw std::bad_alloc();
    data_.release();
    data_.reset(static_cast<T*>(moved));
    capacity_ = size;
  }

  // Gives the memory away; who has it frees it by `std::free`.
  T* release() {
    capacity_ = 0;
    return data_.release();
  }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t capacity_ = 0;
};

// What nodes give, one after the other. Edge ids that a narrow type cannot hold are wide.
template <class Id>
struct DrawnEdges {
  Grown<Id> neighbors;
  Grown<Id> edge_ids;
  Grown<std::int64_t> wide_ids;  // instead of `edge_ids`, where `are_wide`
  bool are_wide = false;
  std::int64_t size = 0;

  void reserve(std::int64_t more) {
    neighbors.reserve(size + more);
    if (are_wide) wide_ids.reserve(size + more);
    else edge_ids.reserve(size + more);
  }
};

struct DrawSpec {
  ChoiceSpec choice;
  const NodeList* nodes;          // with trees, where sampling is disjoint
  const std::int64_t* times;      // of the trees of these nodes, where there are times
  Exclusion* excluded = nullptr;  // null: nothing is
};

// What one thread keeps from draw to draw.
class HopDrawer {
 public:
  // Nodes were checked to be in range. Writes how many edges each gives, and the edges.
  template <bool kTrees, class Adjacency>
  Outcome draw(const Adjacency& adjacency, const DrawSpec& spec, std::uint32_t* counts,
               DrawnEdges<typename Adjacency::Id>& out) {
    const std::int64_t num_nodes = spec.nodes->size;
    std::fill_n(counts, num_nodes, 0);
    if (spec.choice.times != nullptr) punctual_.assign(kTreesSeen, {});
    const std::int64_t fanout = spec.choice.fanout;
    if (fanout >= 0 && num_nodes > 0) {
      out.reserve(num_nodes <= kMostReserved / std::max<std::int64_t>(fanout, 1)
                      ? num_nodes * fanout
                      : kMostReserved);
    }
    const Frontier frontier{spec.nodes, 0, num_nodes};
    const auto body = [&]<class Choice>(Choice choice) {
      Choosing<Adjacency, Choice, kTrees> choosing(adjacency, std::move(choice), spec.times, true,
                                                   scratch_, spec.excluded);
      return choose_all(choosing, adjacency, frontier, scratch_.picks,
                        [&](const Picks& picks, const Picks& following) {
                          write(adjacency, picks, following, counts, out);
                          return Outcome::kDone;
                        });
    };
    const Outcome outcome =
        choose_by<kTrees>(spec.choice, TreesSeen{punctual_.data(), kTreesSeen - 1}, body);
    scratch_.shrink();
    return outcome;
  }

 private:
  static constexpr std::size_t kTreesSeen = 1024;
  static constexpr std::int64_t kMostReserved = 1 << 22;

  // Reads the entries of edges, and sends for those of the edges that follow.
  template <class Adjacency>
  static void write(const Adjacency& adjacency, const Picks& picks, const Picks& following,
                    std::uint32_t* counts, DrawnEdges<typename Adjacency::Id>& out) {
    out.reserve(picks.size);
    for (std::int64_t begin = 0; begin < picks.size; begin += kChunkPicks) {
      const std::int64_t size = std::min(kChunkPicks, picks.size - begin);
      const bool is_last = begin + size == picks.size;
      send_for(adjacency, following, begin, is_last ? following.size : begin + size);
      const std::int64_t* const at = picks.at.data() + begin;
      const std::int64_t* const owner = picks.owner.data() + begin;
      if (out.are_wide) write_chunk(adjacency, at, size, out, out.wide_ids.data() + out.size);
      else write_chunk(adjacency, at, size, out, out.edge_ids.data() + out.size);
      for (std::int64_t i = 0; i < size; ++i) ++counts[owner[i]];
      out.size += size;
    }
  }

  template <class Adjacency, class EdgeId>
  static void write_chunk(const Adjacency& adjacency, const std::int64_t* at, std::int64_t size,
                          DrawnEdges<typename Adjacency::Id>& out, EdgeId* edge_ids) {
    using Id = typename Adjacency::Id;
    Id* const neighbors = out.neighbors.data() + out.size;
    for (std::int64_t i = 0; i < size; ++i) {
      neighbors[i] = static_cast<Id>(adjacency.neighbor(at[i]));
      edge_ids[i] = static_cast<EdgeId>(adjacency.edge_id(at[i]));
    }
  }

  Scratch scratch_;
  std::vector<Punctual> punctual_;
};

}  // namespace penstock
