// One hop: expand a frontier along one edge type, name the neighbours by their place in the batch.
//
// What makes it fast is that no step waits for memory: while the neighbours of one block of nodes
// are named, the entries of the next block are on their way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "choose.hpp"
#include "node_table.hpp"
#include "prefetch.hpp"
#include "rng.hpp"
#include "spans.hpp"

namespace penstock {

enum class Outcome {  // the face knows these numbers
  kDone = 0,
  kTooSmall = 1,  // the memory given may not hold the batch
  kDamaged = 2,   // the topology points outside itself: nothing was read there
};

// A list in memory of the caller's, or, with `spill`, in memory that grows.
class Column {
 public:
  Column(std::int64_t* data, std::int64_t capacity) : data_(data), capacity_(capacity) {}
  explicit Column(std::vector<std::int64_t>* spill) : data_(nullptr), capacity_(0), spill_(spill) {}

  std::int64_t* data() const { return data_; }

  bool reserve(std::int64_t wanted) {
    if (wanted <= capacity_) [[likely]] return true;
    if (spill_ == nullptr) return false;
    spill_->resize(static_cast<std::size_t>(std::max(wanted, 2 * capacity_)));
    data_ = spill_->data();
    capacity_ = static_cast<std::int64_t>(spill_->size());
    return true;
  }

 private:
  std::int64_t* data_;
  std::int64_t capacity_;
  std::vector<std::int64_t>* spill_ = nullptr;
};

struct NodeList {
  Column ids;
  std::int64_t size = 0;
};

struct EdgeList {
  Column row;      // place of the neighbour
  Column col;      // place of the node that was expanded
  Column edge_id;  // left alone unless `with_edge_ids`
  bool with_edge_ids = true;
  std::int64_t size = 0;

  bool reserve(std::int64_t more) {
    const std::int64_t wanted = size + more;
    return row.reserve(wanted) && col.reserve(wanted) &&
           (!with_edge_ids || edge_id.reserve(wanted));
  }
};

// The part of a node list that one hop expands.
struct Frontier {
  const NodeList* nodes;
  std::int64_t begin;
  std::int64_t end;
};

inline constexpr std::int64_t kChunkPicks = 128;  // named at a time; their slots fit the first cache
inline constexpr std::int64_t kNodesAhead = 64;  // how far ahead `indptr` is fetched

// Sends for the entries of all picks, in a loop of its own: mixed with other work it is slower. A
// hub taken whole is read in order, which the hardware sees by itself.
template <class Adjacency>
void send_for(const Adjacency& adjacency, const Picks& picks) {
  constexpr std::int64_t kMost = 4096;
  const std::int64_t last = std::min(picks.size, kMost);
  for (std::int64_t i = 0; i < last; ++i) prefetch_once(adjacency.entry(picks.at[i]));
}

template <class Adjacency, class Table>
class Hop {
 public:
  // `most_nodes` limits how long `found` may become in this hop; negative: no limit.
  Hop(const Adjacency& adjacency, std::int64_t num_neighbors, Chooser chooser, Table& table,
      NodeList& found, EdgeList& edges, std::int64_t most_nodes)
      : adjacency_(adjacency),
        num_neighbors_(num_neighbors),
        chooser_(std::move(chooser)),
        table_(table),
        found_(found),
        edges_(edges),
        most_nodes_(most_nodes) {}

  // `repeated` is the table of the expanding nodes where some may stand twice (only the first of
  // equal seeds is expanded), else null.
  template <class SeedTable>
  Outcome run(const Frontier& frontier, const SeedTable* repeated) {
    std::int64_t next = frontier.begin;
    Picks* ready = &picks_[0];
    Picks* filling = &picks_[1];
    if (!fill(frontier, repeated, next, *ready)) return Outcome::kDamaged;
    while (ready->size > 0) {
      if (!fill(frontier, repeated, next, *filling)) return Outcome::kDamaged;
      const Outcome outcome = take(*ready);
      if (outcome != Outcome::kDone) return outcome;
      std::swap(ready, filling);
    }
    return Outcome::kDone;
  }

 private:
  // Chooses the edges of the next block of nodes, and sends for their entries.
  template <class SeedTable>
  bool fill(const Frontier& frontier, const SeedTable* repeated, std::int64_t& next, Picks& picks) {
    picks.size = 0;
    while (next < frontier.end && picks.size == 0) {
      if (!read_degrees(frontier, repeated, next)) return false;
      chooser_.choose(block_, picks);
    }
    send_for(adjacency_, picks);
    return true;
  }

  template <class SeedTable>
  bool read_degrees(const Frontier& frontier, const SeedTable* repeated, std::int64_t& next) {
    const std::int64_t* const nodes = frontier.nodes->ids.data();
    block_.size = 0;
    bool damaged = false;
    while (next < frontier.end && block_.size < kBlockNodes) {
      if (next + kNodesAhead < frontier.end) {
        prefetch_once(&adjacency_.indptr[nodes[next + kNodesAhead]]);
      }
      const std::int64_t node = nodes[next], place = next++;
      if (repeated != nullptr && repeated->find(node) != place) continue;
      const std::int64_t begin = adjacency_.indptr[node], end = adjacency_.indptr[node + 1];
      damaged |= (begin < 0) | (begin > end) | (end > adjacency_.num_edges);
      const std::int64_t i = block_.size++;
      block_.node[i] = node;
      block_.place[i] = place;
      block_.begin[i] = begin;
      // Unsigned: damaged offsets may lie further apart than a signed number can say.
      block_.degree[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(end) -
                                                   static_cast<std::uint64_t>(begin));
    }
    return !damaged;
  }

  Outcome take(const Picks& picks) {
    for (std::int64_t begin = 0; begin < picks.size; begin += kChunkPicks) {
      const std::int64_t size = std::min(kChunkPicks, picks.size - begin);
      if (!found_.ids.reserve(found_.size + size) || !edges_.reserve(size)) {
        return Outcome::kTooSmall;
      }
      table_.reserve(size, found_.ids.data(), found_.size);
      const bool capped = most_nodes_ >= 0;
      const bool in_place = edges_.with_edge_ids && !capped;
      std::int64_t* const ids = in_place ? edges_.edge_id.data() + edges_.size : edge_id_;
      if (!look_up(picks.at.data() + begin, size, ids)) return Outcome::kDamaged;
      if (!capped) {
        name(picks.owner.data() + begin, size);
      } else {
        name_up_to_cap(picks.owner.data() + begin, size);
      }
    }
    return Outcome::kDone;
  }

  // Reads the entries, and sends for the neighbours' places in the table.
  bool look_up(const std::int64_t* at, std::int64_t size, std::int64_t* edge_ids) {
    bool damaged = false;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t neighbor = adjacency_.neighbor(at[i]);
      damaged |= static_cast<std::uint64_t>(neighbor) >= static_cast<std::uint64_t>(num_neighbors_);
      neighbor_[i] = neighbor;
      edge_ids[i] = adjacency_.edge_id(at[i]);
      table_.prefetch(neighbor);
    }
    return !damaged;
  }

  // Names every neighbour; it is written at the end of the list whether it is new or not, and only
  // the length tells.
  void name(const std::int64_t* owner, std::int64_t size) {
    std::int64_t* const row = edges_.row.data() + edges_.size;
    std::int64_t* const nodes = found_.ids.data();
    std::int64_t count = found_.size;
    for (std::int64_t i = 0; i < size; ++i) {
      const auto [local, is_new] = table_.find_or_insert(neighbor_[i], count);
      nodes[count] = neighbor_[i];
      count += is_new;
      row[i] = local;
    }
    found_.size = count;
    std::memcpy(edges_.col.data() + edges_.size, owner,
                static_cast<std::size_t>(size) * sizeof(std::int64_t));
    edges_.size += size;
  }

  // Once the cap is reached, edges to nodes not in the batch are left out.
  void name_up_to_cap(const std::int64_t* owner, std::int64_t size) {
    for (std::int64_t i = 0; i < size; ++i) {
      std::int64_t local = table_.find(neighbor_[i]);
      if (local < 0) {
        if (found_.size >= most_nodes_) continue;
        local = found_.size++;
        table_.find_or_insert(neighbor_[i], local);
        found_.ids.data()[local] = neighbor_[i];
      }
      edges_.row.data()[edges_.size] = local;
      edges_.col.data()[edges_.size] = owner[i];
      if (edges_.with_edge_ids) edges_.edge_id.data()[edges_.size] = edge_id_[i];
      ++edges_.size;
    }
  }

  const Adjacency& adjacency_;
  std::int64_t num_neighbors_;
  Chooser chooser_;
  Table& table_;
  NodeList& found_;
  EdgeList& edges_;
  std::int64_t most_nodes_;
  NodeBlock block_{};
  Picks picks_[2];
  std::int64_t neighbor_[kChunkPicks];
  std::int64_t edge_id_[kChunkPicks];
};

}  // namespace penstock
