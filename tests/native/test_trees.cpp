// Trees: the table that knows nodes by tree, and whole batches of them, by weight and by time too.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "check.hpp"
#include "khop.hpp"

namespace {

using namespace penstock;
using Numbers = std::vector<std::int64_t>;

// A list of nodes with its table, and a map that cannot be wrong.
template <class Table>
struct Listed {
  Table table;
  Numbers ids, trees;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> known;

  std::int64_t size() const { return static_cast<std::int64_t>(ids.size()); }

  void add(std::int64_t tree, std::int64_t node) {
    const NodeList::Keys keys{table.layout(), ids.data(), trees.data()};
    table.reserve(1, keys, size());
    const auto found = table.find_or_insert(table.layout().key(tree, node), size());
    const auto [place, is_new] = known.try_emplace({tree, node}, size());
    CHECK_EQUAL(found.local, place->second);
    CHECK_EQUAL(found.is_new, is_new);
    if (!found.is_new) return;
    ids.push_back(node);
    trees.push_back(tree);
  }

  void check_all() const {
    for (const auto& [who, place] : known) {
      CHECK_EQUAL(table.find(table.layout().key(who.first, who.second)), place);
    }
  }

  void clear() {
    table.clear(size());
    ids.clear();
    trees.clear();
    known.clear();
  }
};

// A batch in memory that grows, for one node type and one relation.
struct Batch {
  Numbers spill[5];
  BatchLists lists;

  explicit Batch(const Numbers& seeds) {
    lists.nodes.push_back({Column(&spill[0]), 0, Column(&spill[4])});
    lists.edges.push_back({Column(&spill[1]), Column(&spill[2]), Column(&spill[3]), true});
    NodeList& list = lists.nodes[0];
    list.size = static_cast<std::int64_t>(seeds.size());
    list.ids.reserve(list.size);
    std::copy(seeds.begin(), seeds.end(), list.ids.data());
  }

  static Numbers cut(const Column& column, std::int64_t size) {
    return Numbers(column.data(), column.data() + size);
  }
  Numbers nodes() const { return cut(lists.nodes[0].ids, lists.nodes[0].size); }
  Numbers trees() const { return cut(lists.nodes[0].trees, lists.nodes[0].size); }
  Numbers rows() const { return cut(lists.edges[0].row, lists.edges[0].size); }
  Numbers ids() const { return cut(lists.edges[0].edge_id, lists.edges[0].size); }
};

// 0 has the neighbours 1, 2, 3; 1 has 0 and 3; 2 has none; 3 has 4; 4 has none.
struct Small {
  Numbers indptr{0, 3, 5, 5, 6, 6};
  Numbers neighbors{1, 2, 3, 0, 3, 4};

  BatchSpec spec(Numbers fanouts) const {
    const auto hops = static_cast<std::int64_t>(fanouts.size());
    const Bare<std::int64_t> rows{indptr.data(), neighbors.data(), 5, 6};
    BatchSpec spec{{5}, {{rows, 0, 0, 5, std::move(fanouts)}}, hops, false, 9, {}};
    spec.disjoint = true;
    return spec;
  }
};

}  // namespace

template <class Table>
void check_two_trees() {
  Listed<Table> list;
  for (const auto& [nodes, trees] : {std::pair{1, 1}, {7, 3}, {1000, 1}, {1000, 1000}, {3, 5000}}) {
    CHECK(list.table.layout().arrange(nodes, trees));
    for (std::int64_t i = 0; i < 20000; ++i) {
      const std::uint64_t word = draw(3, static_cast<std::uint64_t>(i / 2 * 2));
      list.add(static_cast<std::int64_t>(word % static_cast<std::uint64_t>(trees)),
               static_cast<std::int64_t>((word >> 32) % static_cast<std::uint64_t>(nodes)));
    }
    list.check_all();
    list.clear();
    CHECK_EQUAL(list.table.find(0), -1);
  }
}

template <class Table>
void check_large_tree() {
  // All but one of many trees are of one node: the corner of the large one is soon full.
  Listed<Table> list;
  CHECK(list.table.layout().arrange(1 << 19, 5000));
  for (std::int64_t tree = 0; tree < 5000; ++tree) list.add(tree, 1);
  for (std::int64_t node = 0; node < 50000; ++node) list.add(4321, node * 7);
  for (std::int64_t node = 0; node < 3000; ++node) list.add(4999, node);
  list.check_all();
}

TEST(a_node_of_two_trees_is_two_nodes) {
  check_two_trees<TreeTable>();
  check_two_trees<NarrowTreeTable>();
}

TEST(a_tree_far_larger_than_the_others_finds_room) {
  check_large_tree<TreeTable>();
  check_large_tree<NarrowTreeTable>();
}

TEST(keys_of_all_32_bits_are_told_apart) {
  Listed<NarrowTreeTable> list;
  CHECK(list.table.layout().arrange(1 << 22, 1 << 10));
  CHECK_EQUAL(list.table.layout().key_bits(), 32);
  for (std::int64_t tree = 0; tree < 1 << 10; tree += 3) {
    for (const std::int64_t node : {0, 1, 1 << 21, (1 << 22) - 1}) list.add(tree, node);
  }
  list.check_all();
}

TEST(keys_that_cannot_tell_trees_apart_are_told) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  ByTree layout;
  CHECK(layout.arrange(0, 0));
  CHECK(layout.arrange(most, 1));
  CHECK(!layout.arrange(most, 2));
  CHECK(layout.arrange(1, most));
  CHECK(layout.arrange(std::int64_t{1} << 31, std::int64_t{1} << 32));
  CHECK(!layout.arrange((std::int64_t{1} << 31) + 1, std::int64_t{1} << 32));
  CHECK(layout.arrange(std::int64_t{1} << 41, 1 << 22));
  CHECK(layout.key((1 << 22) - 1, (std::int64_t{1} << 41) - 1) == most);
}

TEST(every_seed_has_a_tree) {
  Workspace workspace;
  const Small small;
  Batch batch({1, 0, 1});
  CHECK(workspace.sample(small.spec({-1}), batch.lists) == Outcome::kDone);
  CHECK_EQUAL(batch.nodes(), (Numbers{1, 0, 1, 0, 3, 1, 2, 3, 0, 3}));
  CHECK_EQUAL(batch.trees(), (Numbers{0, 1, 2, 0, 0, 1, 1, 1, 2, 2}));
  CHECK_EQUAL(batch.rows(), (Numbers{3, 4, 5, 6, 7, 8, 9}));
  CHECK_EQUAL(batch.ids(), (Numbers{3, 4, 0, 1, 2, 3, 4}));
}

TEST(trees_of_a_graph_too_large_for_narrow_keys_are_the_same) {
  Workspace workspace;
  const Small small;
  for (const std::int64_t num_nodes : {std::int64_t{5}, std::int64_t{1} << 40, std::int64_t{5}}) {
    BatchSpec spec = small.spec({-1, -1});
    spec.num_nodes = {num_nodes};
    Batch batch({1, 0, 1});
    CHECK(workspace.sample(spec, batch.lists) == Outcome::kDone);
    CHECK_EQUAL(batch.nodes(), (Numbers{1, 0, 1, 0, 3, 1, 2, 3, 0, 3, 2, 4, 4, 2, 4}));
    CHECK_EQUAL(batch.trees(), (Numbers{0, 1, 2, 0, 0, 1, 1, 1, 2, 2, 0, 0, 1, 2, 2}));
  }
}

TEST(a_workspace_turns_from_trees_to_none_and_back) {
  Workspace workspace;
  const Small small;
  for (int turn = 0; turn < 3; ++turn) {
    Batch trees({1, 1});
    CHECK(workspace.sample(small.spec({-1}), trees.lists) == Outcome::kDone);
    CHECK_EQUAL(trees.nodes(), (Numbers{1, 1, 0, 3, 0, 3}));
    Batch one({1, 1});
    BatchSpec spec = small.spec({-1});
    spec.disjoint = false;
    CHECK(workspace.sample(spec, one.lists) == Outcome::kDone);
    CHECK_EQUAL(one.nodes(), (Numbers{1, 1, 0, 3}));
  }
}

TEST(a_tree_takes_nothing_later_than_its_time) {
  Workspace workspace;
  const Numbers times{10, 20, 30, 5, 15, 40};
  const Small small;
  BatchSpec spec = small.spec({-1, -1});
  spec.relations[0].times = times.data();
  spec.tree_times = {9, 20, 40};
  Batch batch({0, 0, 0});
  CHECK(workspace.sample(spec, batch.lists) == Outcome::kDone);
  CHECK_EQUAL(batch.ids(), (Numbers{0, 1, 0, 1, 2, 3, 4, 3, 4, 5}));
  CHECK_EQUAL(batch.trees(), (Numbers{0, 1, 2, 1, 1, 2, 2, 2, 1, 2}));
}

TEST(an_edge_without_weight_is_not_taken) {
  Workspace workspace;
  const Small small;
  const Numbers sums{0, 1, 1, 0, 0, 7};
  for (const bool disjoint : {false, true}) {
    BatchSpec spec = small.spec({2});
    spec.disjoint = disjoint;
    spec.relations[0].weights = sums.data();
    Batch batch({0, 1, 3});
    CHECK(workspace.sample(spec, batch.lists) == Outcome::kDone);
    CHECK_EQUAL(batch.ids(), (Numbers{1, 5}));
  }
}

TEST(weighted_draws_without_trees_do_not_depend_on_those_with) {
  const Small small;
  const Numbers sums{1, 2, 3, 1, 2, 7};
  Workspace fresh, used;
  BatchSpec spec = small.spec({1});
  spec.relations[0].weights = sums.data();
  for (std::uint64_t key = 0; key < 50; ++key) {
    spec.batch_key = key;
    spec.disjoint = true;
    Batch trees({0, 1, 0});
    CHECK(used.sample(spec, trees.lists) == Outcome::kDone);
    spec.disjoint = false;
    Batch one({1, 0}), other({1, 0});
    CHECK(used.sample(spec, one.lists) == Outcome::kDone);
    CHECK(fresh.sample(spec, other.lists) == Outcome::kDone);
    CHECK_EQUAL(one.ids(), other.ids());
  }
}

TEST(a_batch_whose_seeds_lack_times_or_keys_is_not_begun) {
  BatchSampler sampler;
  const Small small;
  const Numbers times(6, 0);
  BatchSpec spec = small.spec({1});
  spec.relations[0].times = times.data();
  Batch batch({});
  CHECK(sampler.sample(spec, {{0, 1}}, batch.lists) == Outcome::kDamaged);
  spec.tree_times = {1, 2};
  spec.disjoint = false;
  CHECK(sampler.sample(spec, {{0, 1}}, batch.lists) == Outcome::kDamaged);
  spec.disjoint = true;
  CHECK(sampler.sample(spec, {{0, 1}}, batch.lists) == Outcome::kDone);
}

TEST(trees_that_do_not_fit_are_counted_and_those_that_do_are_written) {
  BatchSampler sampler;
  const Small small;
  for (std::int64_t room = 0; room < 10; ++room) {
    Numbers memory[5];
    for (Numbers& part : memory) part.resize(static_cast<std::size_t>(room) + 10, -7);
    BatchLists lists;
    lists.nodes.push_back({Column(memory[0].data(), 10), 0, Column(memory[4].data(), room)});
    lists.edges.push_back({Column(memory[1].data(), 7), Column(memory[2].data(), 7),
                           Column(memory[3].data(), 7), true});
    const Outcome outcome = sampler.sample(small.spec({-1}), {{1, 0, 1}}, lists);
    CHECK(outcome == Outcome::kTooSmall);
    CHECK_EQUAL(lists.hop_nodes[0], (Numbers{3, 7}));
    CHECK_EQUAL(memory[4][static_cast<std::size_t>(room)], -7);
  }
  Numbers memory[5];
  for (Numbers& part : memory) part.resize(10, -7);
  BatchLists lists;
  lists.nodes.push_back({Column(memory[0].data(), 10), 0, Column(memory[4].data(), 10)});
  lists.edges.push_back({Column(memory[1].data(), 7), Column(memory[2].data(), 7),
                         Column(memory[3].data(), 7), true});
  CHECK(sampler.sample(small.spec({-1}), {{1, 0, 1}}, lists) == Outcome::kDone);
  CHECK_EQUAL(memory[4], (Numbers{0, 1, 2, 0, 0, 1, 1, 1, 2, 2}));
}
