// Whole batches out of a workspace, without Python: small graphs whose batches are known.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "batch.hpp"
#include "check.hpp"
#include "khop.hpp"

namespace {

using namespace penstock;
using Numbers = std::vector<std::int64_t>;

// A batch in memory that grows, for one node type and one relation.
struct Batch {
  Numbers spill[4];
  BatchLists lists;

  explicit Batch(const Numbers& seeds) {
    lists.nodes.push_back({Column(&spill[0])});
    lists.edges.push_back({Column(&spill[1]), Column(&spill[2]), Column(&spill[3]), true});
    enter(seeds);
  }

  void enter(const Numbers& seeds) {
    NodeList& list = lists.nodes[0];
    list.size = static_cast<std::int64_t>(seeds.size());
    list.ids.reserve(list.size);
    std::copy(seeds.begin(), seeds.end(), list.ids.data());
  }

  Numbers nodes() const { return cut(lists.nodes[0].ids, lists.nodes[0].size); }
  Numbers rows() const { return cut(lists.edges[0].row, lists.edges[0].size); }
  Numbers cols() const { return cut(lists.edges[0].col, lists.edges[0].size); }
  Numbers ids() const { return cut(lists.edges[0].edge_id, lists.edges[0].size); }

  static Numbers cut(const Column& column, std::int64_t size) {
    return size == 0 ? Numbers{} : Numbers(column.data(), column.data() + size);
  }
};

// 1 → 0, 2 → 0, 3 → 0, 0 → 1, 3 → 1, 4 → 3; nobody points at 2 and 4.
struct Small {
  Numbers indptr{0, 3, 5, 5, 6, 6};
  std::vector<std::int32_t> neighbors{1, 2, 3, 0, 3, 4};

  BatchSpec spec(Numbers fanouts, Numbers caps = {}) const {
    const auto hops = static_cast<std::int64_t>(fanouts.size());
    const Bare<std::int32_t> rows{indptr.data(), neighbors.data(), 5, 6};
    return {{5}, {{rows, 0, 0, 0x90753FD6D65CF605ULL, std::move(fanouts)}}, hops, false, 1, caps};
  }
};

// A ring in which each node has its `degree` predecessors for neighbours.
struct Ring {
  std::int64_t size, degree;
  Numbers indptr;
  std::vector<std::int64_t> entries;

  Ring(std::int64_t size, std::int64_t degree) : size(size), degree(degree) {
    for (std::int64_t node = 0; node <= size; ++node) indptr.push_back(node * degree);
    for (std::int64_t node = 0; node < size; ++node) {
      for (std::int64_t j = 1; j <= degree; ++j) {
        entries.push_back((node + size - j) % size);
        entries.push_back(1000000 + node * degree + j);
      }
    }
  }

  BatchSpec spec(Numbers fanouts, bool replace) const {
    const auto hops = static_cast<std::int64_t>(fanouts.size());
    const Paired<std::int64_t> rows{indptr.data(), entries.data(), size, size * degree};
    return {{size}, {{rows, 0, 0, 5, std::move(fanouts)}}, hops, replace, 9, {}};
  }
};

// Every edge of the batch is the ring's edge of that id.
void check_edges(const Ring& ring, const Batch& batch) {
  const Numbers nodes = batch.nodes(), rows = batch.rows(), cols = batch.cols(), ids = batch.ids();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t owner = nodes[static_cast<std::size_t>(cols[i])];
    const std::int64_t j = ids[i] - 1000000 - owner * ring.degree;
    CHECK(1 <= j && j <= ring.degree);
    CHECK_EQUAL(nodes[static_cast<std::size_t>(rows[i])], (owner + ring.size - j) % ring.size);
  }
}

}  // namespace

TEST(a_small_batch_with_all_neighbours) {
  Workspace workspace;
  Batch batch({1, 0, 1});
  CHECK(workspace.sample(Small{}.spec({-1, -1}), batch.lists) == Outcome::kDone);
  CHECK_EQUAL(batch.nodes(), (Numbers{1, 0, 1, 3, 2, 4}));
  CHECK_EQUAL(batch.rows(), (Numbers{1, 3, 0, 4, 3, 5}));
  CHECK_EQUAL(batch.cols(), (Numbers{0, 0, 1, 1, 1, 3}));
  CHECK_EQUAL(batch.ids(), (Numbers{3, 4, 0, 1, 2, 5}));
  CHECK_EQUAL(batch.lists.hop_nodes[0], (Numbers{3, 2, 1}));
  CHECK_EQUAL(batch.lists.hop_edges[0], (Numbers{5, 1}));
}

TEST(caps_leave_out_edges_to_further_nodes) {
  Workspace workspace;
  const Small small;
  Batch batch({0, 1});
  CHECK(workspace.sample(small.spec({-1, -1}, {1, 5}), batch.lists) == Outcome::kDone);
  CHECK_EQUAL(batch.nodes(), (Numbers{0, 1, 2}));
  CHECK_EQUAL(batch.ids(), (Numbers{0, 1, 3}));
  Batch free({0, 1});
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(workspace.sample(small.spec({-1, -1}, {most, most - 1}), free.lists) == Outcome::kDone);
  CHECK_EQUAL(free.nodes(), (Numbers{0, 1, 2, 3, 4}));
}

TEST(a_workspace_keeps_nothing_from_batch_to_batch) {
  Workspace used;
  const Ring ring(3000, 12);
  for (const bool replace : {false, true}) {
    for (std::int64_t count = 1; count < 3000; count *= 3) {
      Numbers seeds(static_cast<std::size_t>(count));
      std::iota(seeds.begin(), seeds.end(), 3000 - count);
      const BatchSpec spec = ring.spec({7, 3}, replace);
      Batch one(seeds), other(seeds);
      CHECK(used.sample(spec, one.lists) == Outcome::kDone);
      CHECK(Workspace().sample(spec, other.lists) == Outcome::kDone);
      check_edges(ring, one);
      CHECK(one.nodes() == other.nodes() && one.rows() == other.rows());
      CHECK(one.cols() == other.cols() && one.ids() == other.ids());
      CHECK(one.lists.hop_nodes == other.lists.hop_nodes);
      CHECK(one.lists.hop_edges == other.lists.hop_edges);
    }
  }
}

TEST(memory_too_small_is_told_and_not_overrun) {
  const Ring ring(500, 9);
  const BatchSpec spec = ring.spec({8, 8, 8}, false);
  BatchSampler sampler;
  const Numbers seeds{3, 103, 203, 303};
  Batch whole(seeds);
  CHECK(Workspace().sample(spec, whole.lists) == Outcome::kDone);
  check_edges(ring, whole);
  const auto num_nodes = static_cast<std::int64_t>(whole.nodes().size());
  const auto num_edges = static_cast<std::int64_t>(whole.rows().size());
  CHECK(num_edges > 3 * kChunkPicks);
  // Memory of exactly that length, where one number more is a fault.
  const auto fits = [&](std::int64_t node_room, std::int64_t edge_room) {
    Numbers nodes(static_cast<std::size_t>(node_room)), rows(static_cast<std::size_t>(edge_room));
    Numbers cols(rows), ids(rows);
    BatchLists lists;
    lists.nodes.push_back({Column(nodes.data(), node_room)});
    lists.edges.push_back({Column(rows.data(), edge_room), Column(cols.data(), edge_room),
                           Column(ids.data(), edge_room), true});
    const Outcome outcome = sampler.sample(spec, {seeds}, lists);
    CHECK(lists.hop_nodes == whole.lists.hop_nodes);
    CHECK(lists.hop_edges == whole.lists.hop_edges);
    if (outcome != Outcome::kDone) return outcome != Outcome::kTooSmall;
    CHECK(Batch::cut(lists.nodes[0].ids, num_nodes) == whole.nodes());
    CHECK(Batch::cut(lists.edges[0].row, num_edges) == whole.rows());
    CHECK(Batch::cut(lists.edges[0].col, num_edges) == whole.cols());
    CHECK(Batch::cut(lists.edges[0].edge_id, num_edges) == whole.ids());
    return true;
  };
  for (std::int64_t room = 0; room < num_nodes + 2 * kChunkPicks; room += 13) {
    CHECK_EQUAL(fits(room, 10 * num_edges), room >= num_nodes);
  }
  for (std::int64_t room = 0; room < num_edges + 2 * kChunkPicks; room += 37) {
    CHECK_EQUAL(fits(10 * num_nodes, room), room >= num_edges);
  }
  for (const std::int64_t spare : {0, 1}) CHECK(fits(num_nodes + spare, num_edges + spare));
  CHECK(!fits(num_nodes - 1, num_edges));
  CHECK(!fits(num_nodes, num_edges - 1));
}

TEST(seeds_that_are_no_nodes_are_refused) {
  const Ring ring(20, 3);
  BatchSampler sampler;
  for (const std::int64_t seed : {std::int64_t{-1}, std::int64_t{20},
                                  std::numeric_limits<std::int64_t>::max()}) {
    Batch batch({});
    CHECK(sampler.sample(ring.spec({2}, false), {{0, seed}}, batch.lists) == Outcome::kDamaged);
  }
}

TEST(a_batch_without_edge_ids_leaves_their_column_alone) {
  const Ring ring(500, 9);
  Batch without({});
  without.lists.edges[0].edge_id = Column(nullptr, 0);
  without.lists.edges[0].with_edge_ids = false;
  for (const Numbers& caps : {Numbers{}, Numbers{5, 5}}) {
    BatchSpec spec = ring.spec({8, 8}, false);
    spec.node_caps = caps;
    Batch plain({});
    CHECK(BatchSampler().sample(spec, {{3, 4}}, plain.lists) == Outcome::kDone);
    without.lists.edges[0].size = 0;
    CHECK(BatchSampler().sample(spec, {{3, 4}}, without.lists) == Outcome::kDone);
    CHECK(without.nodes() == plain.nodes() && without.rows() == plain.rows());
    CHECK(without.cols() == plain.cols());
  }
}

TEST(damage_is_told_and_the_workspace_survives) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  Workspace workspace;
  const Numbers offsets[] = {{0, 3, 2, 5, 6, 6}, {0, 3, 7, 7, 7, 7},    {0, -1, 5, 5, 6, 6},
                             {0, most, 5, 5, 6, 6}, {0, -most - 1, most, 5, 6, 6}};
  for (const Numbers& indptr : offsets) {
    Small damaged;
    damaged.indptr = indptr;
    Batch batch({4, 1});
    CHECK(workspace.sample(damaged.spec({2, 2}), batch.lists) == Outcome::kDamaged);
    Batch next({1});
    CHECK(workspace.sample(Small{}.spec({-1}), next.lists) == Outcome::kDone);
    CHECK_EQUAL(next.nodes(), (Numbers{1, 0, 3}));
  }
  for (const std::int32_t neighbor : {-1, 5, std::numeric_limits<std::int32_t>::min()}) {
    Small damaged;
    damaged.neighbors[4] = neighbor;
    Batch batch({1});
    CHECK(workspace.sample(damaged.spec({-1}), batch.lists) == Outcome::kDamaged);
  }
}

TEST(two_types_with_ids_beyond_32_bits) {
  constexpr std::int64_t huge = std::int64_t{1} << 41;
  const Numbers indptr{0, 2, 4};
  const Numbers entries{5, 100, huge - 1, 101, 5 + (std::int64_t{1} << 32), 102, 5, 103};
  const Paired<std::int64_t> rows{indptr.data(), entries.data(), 2, 4};
  const BatchSpec spec{{2, huge}, {{rows, 0, 1, 3, {-1}}}, 1, false, 1, {}};
  Numbers spill[5];
  BatchLists lists;
  for (int type = 0; type < 2; ++type) lists.nodes.push_back({Column(&spill[type])});
  lists.edges.push_back({Column(&spill[2]), Column(&spill[3]), Column(&spill[4]), true});
  lists.nodes[0].ids.reserve(2);
  lists.nodes[0].size = 2;
  spill[0][0] = 1;
  spill[0][1] = 0;
  CHECK(Workspace().sample(spec, lists) == Outcome::kDone);
  CHECK_EQUAL(Batch::cut(lists.nodes[1].ids, lists.nodes[1].size),
              (Numbers{5 + (std::int64_t{1} << 32), 5, huge - 1}));
  CHECK_EQUAL(Batch::cut(lists.edges[0].row, lists.edges[0].size), (Numbers{0, 1, 1, 2}));
  CHECK_EQUAL(Batch::cut(lists.edges[0].edge_id, lists.edges[0].size), (Numbers{102, 103, 100, 101}));
}
