// The words that a block of nodes draws by weight, and where each is looked for first: the same
// with each kind of vector instructions.
#include <cstdint>
#include <memory>

#include "check.hpp"
#include "each_simd.hpp"
#include "weighted.hpp"

namespace {

using namespace penstock;

constexpr std::int64_t kLead = 5;

NodeBlock some_block(std::uint64_t salt) {
  constexpr std::int64_t degrees[] = {0, 1, 7, 8, 9, 1000, (1LL << 31) + 3, (1LL << 32) - 1};
  NodeBlock block{};
  block.size = kBlockNodes;
  for (std::int64_t i = 0; i < kBlockNodes; ++i) {
    const std::uint64_t word = draw(salt, static_cast<std::uint64_t>(i));
    block.node[i] = static_cast<std::int64_t>(word >> (salt % 2 == 0 ? 1 : 40));
    block.begin[i] = static_cast<std::int64_t>(word >> (i % 2 == 0 ? 3 : 50));
    block.degree[i] = degrees[word % 8];
    block.tree[i] = word % 5;
  }
  return block;
}

template <bool kTrees>
void check_words(std::int64_t count) {
  const auto draws = std::make_unique<detail::Draws>();
  for (std::uint64_t salt = 0; salt < 6; ++salt) {
    NodeBlock block = some_block(salt);
    detail::draw_words<kTrees>(block, count, salt, kLead, *draws);
    for (std::int64_t i = 0; i < kBlockNodes; ++i) {
      const auto node = static_cast<std::uint64_t>(block.node[i]);
      const std::uint64_t key = node_key(salt, node, kTrees ? block.tree[i] : 0);
      CHECK_EQUAL(block.key[i], key);
      for (std::int64_t j = 0; j < count; ++j) {
        const std::uint64_t word = draw(key, static_cast<std::uint64_t>(j));
        const std::int64_t window =
            detail::even_window(word, block.begin[i], block.degree[i], kLead);
        CHECK_EQUAL(draws->word[j * kBlockNodes + i], word);
        CHECK_EQUAL(draws->window[j * kBlockNodes + i], window);
      }
    }
  }
}

}  // namespace

TEST(words_of_a_block_are_those_of_its_nodes) {
  with_each_simd([] {
    for (const std::int64_t count : {1, 2, 15, 32}) {
      check_words<true>(count);
      check_words<false>(count);
    }
  });
}

TEST(instructions_that_are_there_can_be_used_and_others_cannot) {
  const Simd before = simd_in_use();
  CHECK(available_simd().back() == Simd::kPlain);
  for (const Simd simd : kAllSimd) {
    CHECK_EQUAL(use_simd(simd), has_simd(simd));
    CHECK_EQUAL(simd_in_use() == simd, has_simd(simd));
  }
  use_simd(before);
}
