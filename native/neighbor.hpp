// One hop: expand a frontier along one edge type, name the neighbours by their place in the batch.
//
// What makes it fast is that no step waits for memory: while the neighbours of one block of nodes
// are named, the entries of the next block are on their way. They are sent for a chunk at a time,
// between two chunks of names: no more than the machine can have on its way at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "choose.hpp"
#include "exclusion.hpp"
#include "node_table.hpp"
#include "prefetch.hpp"
#include "rng.hpp"
#include "rows.hpp"
#include "spans.hpp"

namespace penstock {

enum class Outcome {  // the face knows these numbers
  kDone = 0,
  kTooSmall = 1,  // the memory given may not hold the batch
  kDamaged = 2,   // the topology points outside itself: nothing was read there
};

// A list in memory of the caller's, or, with `spill`, in memory that grows; with both, in the
// caller's while that suffices.
class Column {
 public:
  Column(std::int64_t* data, std::int64_t capacity, std::vector<std::int64_t>* spill = nullptr)
      : data_(data), capacity_(capacity), spill_(spill) {}
  explicit Column(std::vector<std::int64_t>* spill) : Column(nullptr, 0, spill) {}

  std::int64_t* data() const { return data_; }

  bool reserve(std::int64_t wanted) {
    if (wanted <= capacity_) [[likely]] return true;
    if (spill_ == nullptr) return false;
    // What it holds may be of an earlier batch, unless the list lies in it already.
    if (data_ != spill_->data() && capacity_ > 0) spill_->assign(data_, data_ + capacity_);
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
  Column trees = Column(nullptr, 0);  // whose each is, where sampling is disjoint

  // The keys by which a table of trees knows the nodes.
  struct Keys {
    const ByTree& layout;
    const std::int64_t* ids;
    const std::int64_t* trees;

    std::int64_t operator[](std::int64_t i) const { return layout.key(trees[i], ids[i]); }
  };

  // What the table knows them by, in order.
  template <class Table>
  auto keys(const Table& table) const {
    if constexpr (Table::kTrees) return Keys{table.layout(), ids.data(), trees.data()};
    else return static_cast<const std::int64_t*>(ids.data());
  }
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
  const std::uint8_t* repeated = nullptr;  // places that stand for an earlier one; null: none
};

inline constexpr std::int64_t kChunkPicks = 64;  // named at a time; their slots fit the first cache
inline constexpr std::int64_t kNodesAhead = 64;  // how far ahead `indptr` is fetched
inline constexpr std::int64_t kNodesSoon = 32;   // and, where few nodes have rows, what leads there

// Sends for the entries of picks, in a loop of its own: mixed with other work it is slower. Of very
// many only the first: a hub taken whole is read in order, which the hardware sees by itself.
template <class Adjacency>
void send_for(const Adjacency& adjacency, const Picks& picks, std::int64_t begin,
              std::int64_t end) {
  constexpr std::int64_t kMost = 4096;
  const std::int64_t last = std::min({end, picks.size, kMost});
  for (std::int64_t i = begin; i < last; ++i) prefetch_once(adjacency.entry(picks.at[i]));
}
template <class Adjacency>
void send_for(const Adjacency& adjacency, const Picks& picks) {
  send_for(adjacency, picks, 0, picks.size);
}

// A choice that has to search rows looks at several blocks of nodes before it chooses for the first:
// the more searches run side by side, the less any of them is waited for.
inline constexpr std::int64_t kMostBlocksAhead = 4;

template <class Choice>
concept LooksAhead = requires { Choice::kBlocksAhead; };

// What a hop works with, kept from hop to hop: most of what is in it is written before it is read,
// and the rest counts for nothing.
struct Scratch {
  NodeBlock blocks[kMostBlocksAhead]{};
  Picks picks[2];
  std::vector<RowLeft> left[kMostBlocksAhead];  // the rows of a block that lost edges
  Picks whole;                                  // what the other rows of a block give

  // A hub that was taken whole leaves more memory than is worth keeping.
  void shrink() {
    constexpr std::size_t kWorthKeeping = 1 << 16;
    for (Picks* some : {&picks[0], &picks[1], &whole}) {
      if (some->at.size() > kWorthKeeping) *some = Picks();
    }
  }
};

// The first half of a hop: which edges the nodes of a frontier give. With `kTrees`, each tree draws
// for itself; `Choice` decides which edges a node gives.
template <class Adjacency, class Choice, bool kTrees>
class Choosing {
 public:
  // `times` are those of the trees, or, `by_place`, those of the nodes of the frontier; null: none.
  // `excluded` is what is not to be found, or null.
  Choosing(const Adjacency& adjacency, Choice choice, const std::int64_t* times, bool by_place,
           Scratch& scratch, Exclusion* excluded)
      : adjacency_(adjacency),
        choice_(std::move(choice)),
        times_(times),
        by_place_(by_place),
        blocks_(scratch.blocks),
        excluded_(excluded),
        left_(scratch.left),
        whole_(scratch.whole) {
    for (auto& rows : scratch.left) rows.clear();
  }

  // Chooses the edges of the next block of nodes; none where the frontier ends. False where a row
  // is not within the graph.
  bool fill(const Frontier& frontier, std::int64_t& next, Picks& picks) {
    picks.size = 0;
    while (picks.size == 0) {
      if (chosen_ == read_ && !read_blocks(frontier, next)) return false;
      if (chosen_ == read_) break;
      std::vector<RowLeft>& left = left_[chosen_];
      NodeBlock& block = blocks_[chosen_++];
      if constexpr (LooksAhead<Choice>) choice_.draw(block, picks);
      else choice_.choose(block, picks);
      if (!left.empty()) choose_left(block, left, picks);
    }
    return true;
  }

 private:
  static constexpr std::int64_t kBlocksAhead = [] {
    if constexpr (LooksAhead<Choice>) return Choice::kBlocksAhead;
    else return std::int64_t{1};
  }();
  static_assert(kBlocksAhead <= kMostBlocksAhead);

  // Adds what rows give that lost edges, in the order of the nodes.
  void choose_left(const NodeBlock& block, std::vector<RowLeft>& left, Picks& picks) {
    std::swap(picks, whole_);
    picks.size = 0;
    std::int64_t next = 0;
    for (const RowLeft& row : left) {
      copy_until(block.place[row.i], next, picks);
      choice_.choose_left(block, row, picks);
    }
    copy_until(std::numeric_limits<std::int64_t>::max(), next, picks);
    left.clear();
  }

  void copy_until(std::int64_t place, std::int64_t& next, Picks& picks) const {
    std::int64_t end = next;
    while (end < whole_.size && whole_.owner[static_cast<std::size_t>(end)] < place) ++end;
    picks.make_room(end - next);
    std::copy_n(whole_.at.data() + next, end - next, picks.at.data() + picks.size);
    std::copy_n(whole_.owner.data() + next, end - next, picks.owner.data() + picks.size);
    picks.size += end - next;
    next = end;
  }

  // As many blocks as the choice looks at; none where the frontier ends.
  bool read_blocks(const Frontier& frontier, std::int64_t& next) {
    chosen_ = read_ = 0;
    while (next < frontier.end && read_ < kBlocksAhead) {
      NodeBlock& block = blocks_[read_++];
      if (!read_degrees(frontier, next, block)) return false;
      if (excluded_ != nullptr) take_out(block, left_[read_ - 1]);
    }
    if constexpr (LooksAhead<Choice>) choice_.look_ahead(blocks_, read_);
    return true;
  }

  bool read_degrees(const Frontier& frontier, std::int64_t& next, NodeBlock& block) {
    const std::int64_t* const nodes = frontier.nodes->ids.data();
    const std::uint8_t* const repeated = frontier.repeated;
    const std::int64_t last = frontier.end;
    if (adjacency_.some != nullptr) [[unlikely]] return read_some_degrees(frontier, next, block);
    block.size = 0;
    bool damaged = false;
    while (next < last && block.size < kBlockNodes) {
      if (next + kNodesAhead < last) {
        prefetch_once(&adjacency_.indptr[nodes[next + kNodesAhead]]);
      }
      const std::int64_t node = nodes[next], place = next++;
      if (repeated != nullptr && repeated[place] != 0) continue;
      const std::int64_t begin = adjacency_.indptr[node], end = adjacency_.indptr[node + 1];
      const std::int64_t i = block.size++;
      block.node[i] = node;
      block.place[i] = place;
      damaged |= !enter_row(begin, end, block, i);
      if constexpr (kTrees) name_tree(frontier.nodes->trees.data()[place], block, i);
    }
    return !damaged;
  }

  // The same where only some nodes have rows: which row it is says one read of memory, and where it
  // begins another, so a block goes through each of them at once.
  bool read_some_degrees(const Frontier& frontier, std::int64_t& next, NodeBlock& block) {
    const std::int64_t* const nodes = frontier.nodes->ids.data();
    const SomeRows& some = *adjacency_.some;
    block.size = 0;
    while (next < frontier.end && block.size < kBlockNodes) {
      const std::int64_t place = next++, i = block.size;
      if (frontier.repeated != nullptr && frontier.repeated[place] != 0) continue;
      block.node[i] = nodes[place];
      block.place[i] = place;
      if constexpr (kTrees) name_tree(frontier.nodes->trees.data()[place], block, i);
      ++block.size;
    }
    const std::int64_t ahead = std::min(next + kBlockNodes, frontier.end);
    for (std::int64_t place = next; place < ahead; ++place) some.prefetch(nodes[place]);
    std::int64_t rows[kBlockNodes];
    for (std::int64_t i = 0; i < block.size; ++i) {
      rows[i] = some.find(block.node[i]);
      some.prefetch_offsets(adjacency_.indptr, rows[i]);
    }
    bool damaged = false;
    for (std::int64_t i = 0; i < block.size; ++i) {
      const RowBounds row = some.bounds(adjacency_.indptr, rows[i]);
      damaged |= !enter_row(row.begin, row.end, block, i);
    }
    return !damaged;
  }

  // False where the row is not within the graph.
  bool enter_row(std::int64_t begin, std::int64_t end, NodeBlock& block, std::int64_t i) const {
    block.begin[i] = begin;
    // Unsigned: damaged offsets may lie further apart than a signed number can say.
    block.degree[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(end) -
                                                 static_cast<std::uint64_t>(begin));
    return !((begin < 0) | (begin > end) | (end > adjacency_.num_edges));
  }

  // Sets rows aside that lose edges; to the choice they are empty.
  void take_out(NodeBlock& block, std::vector<RowLeft>& left) {
    left.clear();
    RowLeft row{};
    for (std::int64_t i = 0; i < block.size; ++i) {
      const std::int64_t tree = kTrees ? static_cast<std::int64_t>(block.tree[i]) - 1 : 0;
      const std::int64_t begin = block.begin[i], degree = block.degree[i];
      excluded_->take_out(adjacency_, block.node[i], tree, begin, begin + degree, row.cut);
      if (row.cut.empty()) continue;
      row.i = i;
      row.begin = begin;
      row.degree = degree;
      left.push_back(std::move(row));
      row = {};
      block.degree[i] = 0;
    }
  }

  void name_tree(std::int64_t tree, NodeBlock& block, std::int64_t i) const {
    block.tree[i] = static_cast<std::uint64_t>(tree) + 1;
    if (times_ != nullptr) block.time[i] = times_[by_place_ ? block.place[i] : tree];
  }

  const Adjacency& adjacency_;
  Choice choice_;
  const std::int64_t* times_;
  bool by_place_;
  NodeBlock* blocks_;
  std::int64_t read_ = 0;    // of the blocks
  std::int64_t chosen_ = 0;  // of those
  Exclusion* excluded_;
  std::vector<RowLeft>* left_;  // by block
  Picks& whole_;
};

// Chooses block by block, and calls `take` with the edges of one while those of the next are on
// their way: `take` sends for the entries of the edges that follow.
template <class Adjacency, class Choice, bool kTrees, class Take>
Outcome choose_all(Choosing<Adjacency, Choice, kTrees>& choosing, const Adjacency& adjacency,
                   const Frontier& frontier, Picks (&picks)[2], const Take& take) {
  std::int64_t next = frontier.begin;
  Picks* ready = &picks[0];
  Picks* filling = &picks[1];
  if (!choosing.fill(frontier, next, *ready)) return Outcome::kDamaged;
  send_for(adjacency, *ready);
  while (ready->size > 0) {
    if (!choosing.fill(frontier, next, *filling)) return Outcome::kDamaged;
    const Outcome outcome = take(*ready, *filling);
    if (outcome != Outcome::kDone) return outcome;
    std::swap(ready, filling);
  }
  return Outcome::kDone;
}

// The second half of a hop: names neighbours by their places in the batch, a chunk at a time.
// `Table` decides whether a node is one for all (`NodeTable`) or one for each tree (`TreeTable`).
template <class Table>
class Naming {
 public:
  // `most_nodes` limits how long `found` may become; negative: no limit.
  Naming(std::int64_t num_neighbors, Table& table, NodeList& found, EdgeList& edges,
         std::int64_t most_nodes)
      : num_neighbors_(num_neighbors),
        table_(table),
        found_(found),
        edges_(edges),
        most_nodes_(most_nodes) {}

  // Hints that a neighbour will be named, where its key is its id.
  void prefetch(std::int64_t neighbor) const {
    if constexpr (!Table::kTrees) table_.prefetch(neighbor);
  }

  // Names a chunk of edges: edge i belongs to the node of `expanding` at place `owner[i]`, and leads
  // to `neighbor(i)`.
  template <class Neighbor, class EdgeId>
  Outcome name(const NodeList& expanding, const std::int64_t* owner, std::int64_t size,
               const Neighbor& neighbor, const EdgeId& edge_id) {
    if (!make_room(size)) return Outcome::kTooSmall;
    const bool capped = most_nodes_ >= 0;
    const bool in_place = edges_.with_edge_ids && !capped;
    std::int64_t* const ids = in_place ? edges_.edge_id.data() + edges_.size : edge_id_;
    if constexpr (Table::kTrees) {
      const std::int64_t* const trees = expanding.trees.data();
      for (std::int64_t i = 0; i < size; ++i) tree_[i] = trees[owner[i]];
    }
    if (!look_up(size, neighbor, edge_id, ids)) return Outcome::kDamaged;
    if (!capped) {
      name_all(owner, size);
    } else {
      name_up_to_cap(owner, size);
    }
    return Outcome::kDone;
  }

 private:
  bool make_room(std::int64_t more) {
    const std::int64_t wanted = found_.size + more;
    if (!found_.ids.reserve(wanted) || !edges_.reserve(more)) return false;
    if constexpr (Table::kTrees) {
      if (!found_.trees.reserve(wanted)) return false;
    }
    table_.reserve(more, found_.keys(table_), found_.size);
    return true;
  }

  // Reads the edges, and sends for the neighbours' places in the table.
  template <class Neighbor, class EdgeId>
  bool look_up(std::int64_t size, const Neighbor& neighbor_at, const EdgeId& edge_id_at,
               std::int64_t* edge_ids) {
    bool damaged = false;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t neighbor = neighbor_at(i);
      damaged |= static_cast<std::uint64_t>(neighbor) >= static_cast<std::uint64_t>(num_neighbors_);
      neighbor_[i] = neighbor;
      edge_ids[i] = edge_id_at(i);
      table_.prefetch(key(i));
    }
    return !damaged;
  }

  // What the table knows neighbour i of the chunk by.
  std::int64_t key(std::int64_t i) const {
    if constexpr (Table::kTrees) return table_.layout().key(tree_[i], neighbor_[i]);
    else return neighbor_[i];
  }

  // Writes neighbour i of the chunk at `place` of the list.
  void list(std::int64_t i, std::int64_t* nodes, std::int64_t* trees, std::int64_t place) const {
    nodes[place] = neighbor_[i];
    if constexpr (Table::kTrees) trees[place] = tree_[i];
  }

  // Names every neighbour; it is written at the end of the list whether it is new or not, and only
  // the length tells.
  void name_all(const std::int64_t* owner, std::int64_t size) {
    std::int64_t* const row = edges_.row.data() + edges_.size;
    std::int64_t* const nodes = found_.ids.data();
    std::int64_t* const trees = found_.trees.data();
    std::int64_t count = found_.size;
    for (std::int64_t i = 0; i < size; ++i) {
      const auto [local, is_new] = table_.find_or_insert(key(i), count);
      list(i, nodes, trees, count);
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
      std::int64_t local = table_.find(key(i));
      if (local < 0) {
        if (found_.size >= most_nodes_) continue;
        local = found_.size++;
        table_.find_or_insert(key(i), local);
        list(i, found_.ids.data(), found_.trees.data(), local);
      }
      edges_.row.data()[edges_.size] = local;
      edges_.col.data()[edges_.size] = owner[i];
      if (edges_.with_edge_ids) edges_.edge_id.data()[edges_.size] = edge_id_[i];
      ++edges_.size;
    }
  }

  std::int64_t num_neighbors_;
  Table& table_;
  NodeList& found_;
  EdgeList& edges_;
  std::int64_t most_nodes_;
  std::int64_t neighbor_[kChunkPicks];
  std::int64_t tree_[kChunkPicks];  // of each neighbour, where sampling is disjoint
  std::int64_t edge_id_[kChunkPicks];
};

// Both halves.
template <class Adjacency, class Table, class Choice>
class Hop {
 public:
  // `tree_times` has the time of every tree, or is null.
  Hop(const Adjacency& adjacency, std::int64_t num_neighbors, Choice choice, Table& table,
      NodeList& found, EdgeList& edges, std::int64_t most_nodes, const std::int64_t* tree_times,
      Scratch& scratch, Exclusion* excluded = nullptr)
      : adjacency_(adjacency),
        choosing_(adjacency, std::move(choice), tree_times, false, scratch, excluded),
        naming_(num_neighbors, table, found, edges, most_nodes),
        picks_(scratch.picks) {}

  Outcome run(const Frontier& frontier) {
    return choose_all(choosing_, adjacency_, frontier, picks_,
                      [&](const Picks& picks, const Picks& following) {
                        return take(picks, *frontier.nodes, following);
                      });
  }

 private:
  // Names the neighbours, and sends for the entries of those that follow.
  Outcome take(const Picks& picks, const NodeList& expanding, const Picks& following) {
    for (std::int64_t begin = 0; begin < picks.size; begin += kChunkPicks) {
      const std::int64_t size = std::min(kChunkPicks, picks.size - begin);
      const bool is_last = begin + size == picks.size;
      send_for(adjacency_, following, begin, is_last ? following.size : begin + size);
      const std::int64_t* const at = picks.at.data() + begin;
      const Outcome outcome = naming_.name(
          expanding, picks.owner.data() + begin, size,
          [&](std::int64_t i) { return adjacency_.neighbor(at[i]); },
          [&](std::int64_t i) { return adjacency_.edge_id(at[i]); });
      if (outcome != Outcome::kDone) return outcome;
    }
    return Outcome::kDone;
  }

  const Adjacency& adjacency_;
  Choosing<Adjacency, Choice, Table::kTrees> choosing_;
  Naming<Table> naming_;
  Picks (&picks_)[2];
};

}  // namespace penstock
