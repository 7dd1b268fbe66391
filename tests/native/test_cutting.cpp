// Rows of some nodes copied, their edges marked, and cut edges counted.
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "cutting.hpp"
#include "rng.hpp"
#include "rows.hpp"
#include "spans.hpp"

namespace {

using namespace penstock;
using Numbers = std::vector<std::int64_t>;

Strided<std::int64_t> span(const Numbers& ids) {
  return {ids.data(), static_cast<std::int64_t>(ids.size()), 1};
}

// Rows of 0 to 4 edges; the edge ids fall, so that none is its position.
struct Graph {
  Numbers indptr{0};
  std::vector<std::int32_t> entries;

  explicit Graph(std::int64_t num_nodes) {
    for (std::int64_t node = 0; node < num_nodes; ++node) {
      const auto degree = static_cast<std::int64_t>(mix(static_cast<std::uint64_t>(node)) % 5);
      indptr.push_back(indptr.back() + degree);
    }
    for (std::int64_t at = 0; at < indptr.back(); ++at) {
      entries.push_back(static_cast<std::int32_t>(mix(static_cast<std::uint64_t>(at)) % 50));
      entries.push_back(static_cast<std::int32_t>(indptr.back() - 1 - at));
    }
  }

  Paired<std::int32_t> view() const {
    const auto num_nodes = static_cast<std::int64_t>(indptr.size()) - 1;
    return {indptr.data(), entries.data(), num_nodes, indptr.back(), nullptr};
  }
};

template <class Index>
void check_copies() {
  const Graph graph(50);
  const Numbers nodes{1, 2, 7, 30, 31, 49};
  Numbers indptr{0};
  std::vector<Index> expected;
  for (const std::int64_t node : nodes) {
    const auto at = static_cast<std::size_t>(node);
    for (std::int64_t entry = 2 * graph.indptr[at]; entry < 2 * graph.indptr[at + 1]; ++entry) {
      expected.push_back(static_cast<Index>(graph.entries[static_cast<std::size_t>(entry)]));
    }
    indptr.push_back(static_cast<std::int64_t>(expected.size()) / 2);
  }
  for (std::int64_t begin = 0; begin <= indptr.back(); ++begin) {
    for (std::int64_t size = 0; size <= indptr.back() - begin; ++size) {
      std::vector<Index> out(2 * static_cast<std::size_t>(size), -7);
      CHECK(copy_rows<true>(graph.view(), span(nodes), indptr.data(), begin, size, out.data()));
      const auto from = expected.begin() + 2 * begin;
      CHECK_EQUAL(out, std::vector<Index>(from, from + 2 * size));
      std::vector<Index> neighbors(static_cast<std::size_t>(size), -7);
      CHECK(copy_rows<false>(graph.view(), span(nodes), indptr.data(), begin, size,
                             neighbors.data()));
      for (std::size_t i = 0; i < neighbors.size(); ++i) CHECK_EQUAL(neighbors[i], out[2 * i]);
    }
  }
}

TEST(any_piece_of_the_rows_of_some_nodes_is_copied) {
  check_copies<std::int32_t>();
  check_copies<std::int64_t>();
}

TEST(rows_of_another_length_are_not_copied) {
  const Graph graph(50);
  const Numbers nodes{1, 2}, indptr{0, 90, 91};
  std::vector<std::int32_t> out(2 * 91);
  CHECK(!copy_rows<true>(graph.view(), span(nodes), indptr.data(), 0, 91, out.data()));
  CHECK(!copy_rows<false>(graph.view(), span(nodes), indptr.data(), 0, 91, out.data()));
}

TEST(edges_of_some_nodes_are_marked_once) {
  const Graph graph(50);
  const Numbers nodes{0, 3, 4, 44};
  const std::int64_t size = graph.indptr.back();
  std::vector<MemberWord> words(static_cast<std::size_t>(size + 63) / 64, MemberWord{0, 0});
  CHECK(mark_edges(graph.view(), span(nodes), words.data(), size));
  std::int64_t row = 0;
  for (std::int64_t edge = 0; edge < size; ++edge) {
    bool is_here = false;
    for (const std::int64_t node : nodes) {
      const auto at = static_cast<std::size_t>(node);
      const std::int64_t position = size - 1 - edge;
      is_here |= position >= graph.indptr[at] && position < graph.indptr[at + 1];
    }
    CHECK_EQUAL(words[static_cast<std::size_t>(edge / 64)].row(edge), is_here ? row++ : -1);
  }
  const Numbers twice{0, 3, 3};
  std::vector<MemberWord> again(words.size(), MemberWord{0, 0});
  CHECK(!mark_edges(graph.view(), span(twice), again.data(), size));
}

TEST(edges_to_other_parts_are_counted_by_the_part_of_the_row) {
  const Graph graph(50);
  std::vector<std::uint8_t> parts(50);
  for (std::size_t node = 0; node < parts.size(); ++node) {
    parts[node] = static_cast<std::uint8_t>(node % 3);
  }
  Numbers expected(3, 0), cut(3, -7);
  for (std::size_t node = 0; node < parts.size(); ++node) {
    for (std::int64_t at = graph.indptr[node]; at < graph.indptr[node + 1]; ++at) {
      const auto other = static_cast<std::size_t>(graph.entries[static_cast<std::size_t>(2 * at)]);
      expected[parts[node]] += parts[other] != parts[node];
    }
  }
  CHECK(count_cut(graph.view(), parts.data(), parts.data(), 50, 3, cut.data()));
  CHECK_EQUAL(cut, expected);
  CHECK(!count_cut(graph.view(), parts.data(), parts.data(), 50, 2, cut.data()));
  CHECK(!count_cut(graph.view(), parts.data(), parts.data(), 10, 3, cut.data()));
}

}  // namespace
