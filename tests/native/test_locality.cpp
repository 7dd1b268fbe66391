// Nodes placed by their neighbours, votes, and the undirected graph of all edges.
#include <cstdint>
#include <variant>
#include <vector>

#include "check.hpp"
#include "rng.hpp"
#include "rows.hpp"
#include "streaming.hpp"
#include "undirected.hpp"

namespace {

using namespace penstock;
using Numbers = std::vector<std::int64_t>;
using Rows = std::variant<Bare<std::int32_t>, Paired<std::int32_t>>;

constexpr std::int64_t kNodes = 300;
constexpr std::int64_t kParts = 4;

// Nodes of four communities, by their number modulo four; most edges stay in one.
struct Communities {
  Numbers indptr{0};
  std::vector<std::int32_t> neighbors;

  Communities() {
    for (std::int64_t node = 0; node < kNodes; ++node) {
      for (std::uint64_t edge = 0; edge < 8; ++edge) {
        const std::uint64_t any = mix(static_cast<std::uint64_t>(node) * 8 + edge);
        const std::int64_t other = static_cast<std::int64_t>(any % kNodes);
        const bool stays = edge < 7;
        neighbors.push_back(static_cast<std::int32_t>(
            stays ? (other / kParts * kParts + node % kParts) % kNodes : other));
      }
      indptr.push_back(static_cast<std::int64_t>(neighbors.size()));
    }
  }

  Bare<std::int32_t> view() const {
    return {indptr.data(), neighbors.data(), kNodes, indptr.back(), nullptr};
  }
};

std::int64_t cut(const Communities& graph, const std::vector<std::uint8_t>& parts) {
  std::int64_t found = 0;
  for (std::size_t node = 0; node < kNodes; ++node) {
    for (auto at = graph.indptr[node]; at < graph.indptr[node + 1]; ++at) {
      found += parts[node] != parts[static_cast<std::size_t>(graph.neighbors[static_cast<std::size_t>(at)])];
    }
  }
  return found;
}

void check_placed(bool with_votes) {
  const Communities graph;
  const Rows rows = graph.view();
  const std::vector<RowsOfType<Rows>> relations{{&rows, 0, kNodes}};
  std::vector<std::uint8_t> parts(kNodes, kParts);
  Numbers sizes(kParts, 0);
  const std::int64_t capacity = kNodes / kParts + 3;
  for (int pass = 0; pass < 20; ++pass) {
    std::vector<std::int32_t> votes(kNodes * kParts, 0);
    if (with_votes) {
      CHECK(count_votes(graph.view(), 0, 0, kNodes, 0, kNodes, parts.data(), kParts, votes.data()));
    }
    const std::int64_t moved =
        place_nodes(relations, 0, 0, kNodes, with_votes ? votes.data() : nullptr, capacity, kParts,
                    sizes.data(), parts.data());
    CHECK(moved >= 0 && moved <= kNodes);
  }
  Numbers counted(kParts, 0);
  for (const std::uint8_t part : parts) ++counted[part];
  CHECK_EQUAL(counted, sizes);
  for (const std::int64_t size : sizes) CHECK(size <= capacity);
  CHECK(cut(graph, parts) < kNodes * 8 / 2);  // three quarters by chance
}

void check_undirected() {
  const Communities graph;
  Numbers indptr(kNodes + 1, 0);
  CHECK(count_ends(graph.view(), 0, 0, kNodes, true, indptr.data() + 1));
  for (std::size_t node = 0; node < kNodes; ++node) indptr[node + 1] += indptr[node];
  Numbers cursors(indptr.begin(), indptr.end() - 1);
  std::vector<std::int32_t> ends(static_cast<std::size_t>(indptr.back())), weights(ends.size());
  CHECK(place_ends(graph.view(), 0, 0, kNodes, true, cursors.data(), indptr.back(), ends.data()));
  CHECK_EQUAL(cursors, Numbers(indptr.begin() + 1, indptr.end()));
  std::int64_t before = indptr.back(), total = 0;
  const std::int64_t left =
      merge_ends(indptr.data(), kNodes, before, ends.data(), weights.data());
  CHECK(left > 0 && left <= before);
  CHECK_EQUAL(left, indptr.back());
  for (std::int64_t at = 0; at < left; ++at) total += weights[static_cast<std::size_t>(at)];
  CHECK_EQUAL(total, before);
  for (std::size_t node = 0; node < kNodes; ++node) {
    for (auto at = indptr[node] + 1; at < indptr[node + 1]; ++at) {
      CHECK(ends[static_cast<std::size_t>(at) - 1] < ends[static_cast<std::size_t>(at)]);
    }
  }
}

void check_directions() {
  const Communities graph;
  std::uint64_t sums[2] = {0, 0};
  CHECK(add_both_directions(graph.view(), 0, 0, kNodes, sums));
  CHECK(sums[0] != sums[1]);
}

TEST(nodes_are_placed_beside_their_neighbours) {
  check_placed(false);
  check_placed(true);
}
TEST(the_undirected_graph_has_each_neighbour_once) { check_undirected(); }
TEST(edges_in_one_direction_are_told_from_those_in_both) { check_directions(); }

}  // namespace
