// What to push along and how far: the options of forward push, and the rows it looks at.
#pragma once

#include <cstdint>
#include <vector>

#include "choose.hpp"
#include "khop.hpp"
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
