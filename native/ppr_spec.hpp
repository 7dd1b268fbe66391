// What to push along and how far: the options of forward push, and the rows it looks at.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "choose.hpp"
#include "exclusion.hpp"
#include "khop.hpp"
#include "ppr_sizes.hpp"
#include "prefetch.hpp"
#include "rng.hpp"

namespace penstock {

// Where the hop stands in keys: no hop has this number, so that the streams are apart.
inline constexpr std::uint64_t kPushWord = 0x7070720000000001ULL;

struct PushRelation {
  AnyAdjacency adjacency;
  RowOffsets offsets;          // the adjacency's, of whichever kind it is
  const std::uint8_t* sizes;   // of the degrees of its rows
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

inline RowOffsets offsets_of(const AnyAdjacency& adjacency) {
  return std::visit([](const auto& rows) { return rows.offsets(); }, adjacency);
}

struct RowRange {
  std::int64_t begin;
  std::int64_t degree;
  bool is_sound;
};

inline RowRange row_of(const RowOffsets& offsets, std::int64_t num_edges, std::int64_t node) {
  const auto [begin, end, is_missing] = offsets.row(node);
  if (begin < 0 || begin > end || end > num_edges) return {0, 0, false};
  return {begin, end - begin, true};
}

inline RowRange row_of(const PushRelation& relation, std::int64_t node) {
  return row_of(relation.offsets, relation.num_edges, node);
}

inline void measure_degrees(const RowOffsets& offsets, std::int64_t num_nodes,
                            std::int64_t num_edges, std::uint8_t* sizes) {
  for (std::int64_t node = 0; node < num_nodes; ++node) {
    const RowRange row = row_of(offsets, num_edges, node);
    sizes[node] = DegreeSize::of(row.is_sound ? row.degree : -1);
  }
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

inline void send_for_entries(const PushRelation& relation, const std::int64_t* at,
                             std::int64_t count) {
  std::visit(
      [&](const auto& view) {
        for (std::int64_t k = 0; k < count; ++k) prefetch_once(view.entry(at[k]));
      },
      relation.adjacency);
}

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
  std::vector<Exclusion>* excluded = nullptr;  // by relation, of a batch; null: nothing is
};

// What is left of a row from which a batch excludes edges; nothing where it has none of them.
inline std::optional<RowLeft> left_of(const PushSpec& spec, std::size_t relation, std::int64_t node,
                                      const RowRange& row) {
  if (spec.excluded == nullptr || (*spec.excluded)[relation].empty()) return std::nullopt;
  RowLeft left{0, row.begin, row.degree, {}};
  std::visit(
      [&](const auto& view) {
        const std::int64_t end = row.begin + row.degree;
        (*spec.excluded)[relation].take_out(view, node, 0, row.begin, end, left.cut);
      },
      spec.relations[relation].adjacency);
  if (left.cut.empty()) return std::nullopt;
  return left;
}

// Along all relations; negative where a row is not within the graph.
inline std::int64_t degree_of(const PushSpec& spec, std::size_t type, std::int64_t node) {
  std::int64_t degree = 0;
  for (const std::size_t r : spec.leaving[type]) {
    const RowRange row = row_of(spec.relations[r], node);
    if (!row.is_sound) return -1;
    degree += row.degree;
  }
  return degree;
}

inline void send_for_offsets(const PushSpec& spec, std::size_t type, std::int64_t node) {
  for (const std::size_t r : spec.leaving[type]) spec.relations[r].offsets.prefetch(node);
}

// What a push compares with, worked out once.
class Thresholds {
 public:
  explicit Thresholds(const PushSpec& spec) : factor_(spec.alpha * spec.eps) {
    for (int size = 0; size < DegreeSize::kCount; ++size) {
      least_[size] = factor_ * DegreeSize::least(size);
    }
    for (std::size_t type = 0; type < spec.num_nodes.size(); ++type) measure(spec, type);
  }

  // It points into itself.
  Thresholds(const Thresholds&) = delete;
  Thresholds& operator=(const Thresholds&) = delete;

  // The threshold of a node with one edge: no node has a lower one.
  double lowest() const { return factor_; }
  double least(std::uint8_t size) const { return least_[size]; }
  double exact(std::int64_t degree) const { return factor_ * static_cast<double>(degree); }
  const DegreeSizes& sizes(std::size_t type) const { return sizes_[type]; }

 private:
  // The sizes of a relation are those of the type, where no other leaves it; of several, sums are
  // kept here, a byte for each node of the type.
  void measure(const PushSpec& spec, std::size_t type) {
    constexpr std::uint64_t kAll = ~std::uint64_t{0};
    const std::vector<std::size_t>& leaving = spec.leaving[type];
    sums_.emplace_back();
    if (leaving.empty()) return sizes_.push_back(DegreeSizes::none());
    const std::uint8_t* const first = spec.relations[leaving[0]].sizes;
    if (leaving.size() == 1) return sizes_.push_back({first, kAll});
    std::vector<std::uint8_t>& sums = sums_.back();
    sums.assign(first, first + spec.num_nodes[type]);
    for (std::size_t i = 1; i < leaving.size(); ++i) {
      const std::uint8_t* const more = spec.relations[leaving[i]].sizes;
      for (std::size_t n = 0; n < sums.size(); ++n) sums[n] = DegreeSize::sum(sums[n], more[n]);
    }
    sizes_.push_back({sums.data(), kAll});
  }

  double factor_;
  double least_[DegreeSize::kCount];
  std::vector<DegreeSizes> sizes_;               // by node type
  std::vector<std::vector<std::uint8_t>> sums_;  // by node type
};

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

  const Picks& choose(std::int64_t node, const RowLeft& left) {
    block_.size = 1;
    block_.node[0] = node;
    picks_.size = 0;
    chooser_.choose_left(block_, left, picks_);
    return picks_;
  }

 private:
  Chooser chooser_;
  NodeBlock block_{};
  Picks picks_;
};

}  // namespace penstock
