// What to push along and how far: the options of forward push, and the rows it looks at.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <variant>
#include <vector>

#include "choose.hpp"
#include "khop.hpp"
#include "prefetch.hpp"
#include "rng.hpp"

namespace penstock {

// Where the hop stands in keys: no hop has this number, so that the streams are apart.
inline constexpr std::uint64_t kPushWord = 0x7070720000000001ULL;

struct PushRelation {
  AnyAdjacency adjacency;
  const std::int64_t* indptr;  // the adjacency's, of whichever kind it is
  std::int64_t num_edges;
  std::int64_t expands;
  std::int64_t finds;
  std::uint64_t name_hash;
};

// A walk along some of the relations. `share` counts the nodes it may claim of each type.
struct PushChannel {
  std::vector<std::vector<std::size_t>> leaving;  // by node type, the relations it may follow
  std::int64_t share;
};

struct RowRange {
  std::int64_t begin;
  std::int64_t degree;
  bool is_sound;
};

inline RowRange row_of(const PushRelation& relation, std::int64_t node) {
  const std::int64_t begin = relation.indptr[node], end = relation.indptr[node + 1];
  if (begin < 0 || begin > end || end > relation.num_edges) return {0, 0, false};
  return {begin, end - begin, true};
}

// The hardware sees by itself how the row of a hub goes on.
inline void send_for_row(const PushRelation& relation, std::int64_t begin, std::int64_t degree) {
  constexpr std::int64_t kMost = 256, kLine = 64;
  std::visit(
      [&](const auto& view) {
        const auto* const at = static_cast<const char*>(view.entry(begin));
        const auto* const end =
            static_cast<const char*>(view.entry(begin + std::min(degree, kMost)));
        for (std::int64_t byte = 0; byte < end - at; byte += kLine) prefetch_once(at + byte);
      },
      relation.adjacency);
}

struct PushSpec;
std::int64_t degree_of(const PushSpec& spec, std::size_t type, std::int64_t id);

// How large the degree of every node is, roughly, in a byte: what a push asks of nearly all nodes
// it reaches is whether their threshold is out of reach, and their offsets are far apart.
class DegreeSizes {
 public:
  static constexpr std::uint8_t kNone = 0;       // nothing leads on
  static constexpr std::uint8_t kUnsound = 255;  // its row is not within the graph
  static constexpr int kCount = 256;

  // The least degree of a size.
  static double least(int size) {
    if (size == kNone) return std::numeric_limits<double>::infinity();
    return size > 64 ? 0.0 : static_cast<double>(std::uint64_t{1} << (size - 1));
  }

  void measure(const PushSpec& spec);
  const std::uint8_t* data() const { return sizes_.data(); }

 private:
  std::vector<std::uint8_t> sizes_;
};

struct PushSpec {
  std::vector<std::int64_t> num_nodes;
  std::vector<std::int64_t> first;  // by node type, the number of its node 0 among all nodes
  std::vector<PushRelation> relations;
  std::vector<std::vector<std::size_t>> leaving;  // by node type, all relations that leave it
  std::vector<PushChannel> channels;
  double alpha;
  double eps;
  std::int64_t max_nodes;
  std::int64_t max_neighbors;
  std::int64_t max_openings;  // rounds that may look at rows not seen before; negative: no limit
  bool is_typed;
  bool has_topup;
  bool with_edges;
  DegreeSizes sizes = {};
};

// Along all relations; negative where a row is not within the graph.
inline std::int64_t degree_of(const PushSpec& spec, std::size_t type, std::int64_t id) {
  std::int64_t degree = 0;
  for (const std::size_t r : spec.leaving[type]) {
    const RowRange row = row_of(spec.relations[r], id - spec.first[type]);
    if (!row.is_sound) return -1;
    degree += row.degree;
  }
  return degree;
}

inline void send_for_offsets(const PushSpec& spec, std::size_t type, std::int64_t id) {
  for (const std::size_t r : spec.leaving[type]) {
    prefetch_once(spec.relations[r].indptr + (id - spec.first[type]));
  }
}

inline void DegreeSizes::measure(const PushSpec& spec) {
  sizes_.resize(static_cast<std::size_t>(spec.first.back() + spec.num_nodes.back()));
  for (std::size_t type = 0; type < spec.num_nodes.size(); ++type) {
    const std::int64_t first = spec.first[type], end = first + spec.num_nodes[type];
    for (std::int64_t id = first; id < end; ++id) {
      const std::int64_t degree = degree_of(spec, type, id);
      const int size = std::bit_width(static_cast<std::uint64_t>(degree));
      sizes_[static_cast<std::size_t>(id)] =
          degree < 0 ? kUnsound : static_cast<std::uint8_t>(size);
    }
  }
}

// Which neighbours of a node with too many of them are looked at: the same for all seeds of a batch.
class RowSampler {
 public:
  RowSampler(std::int64_t most, std::uint64_t batch_key, std::uint64_t name_hash)
      : chooser_(most, false, hop_key(batch_key, kPushWord, name_hash)) {}

  const Picks& choose(std::int64_t node, std::int64_t begin, std::int64_t degree) {
    block_.size = 1;
    block_.node[0] = node;
    block_.begin[0] = begin;
    block_.degree[0] = degree;
    picks_.size = 0;
    chooser_.choose(block_, picks_);
    return picks_;
  }

 private:
  Chooser chooser_;
  NodeBlock block_{};
  Picks picks_;
};

}  // namespace penstock
