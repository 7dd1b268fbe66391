// Words, keys, permutations, digests: the vectors of docs/random.md and docs/digest.md.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"
#include "digest.hpp"
#include "permute.hpp"
#include "rng.hpp"

namespace {

using namespace penstock;

constexpr std::uint64_t kWordMax = ~std::uint64_t{0};
constexpr std::uint64_t kEdge = 0x90753FD6D65CF605ULL;  // the name hash of ("", "", "")

// Known when compiling: whoever breaks them cannot even build.
static_assert(mix(0) == 0);
static_assert(mix(1) == 0x5692161D100B05E5ULL);
static_assert(mix(kWordMax) == 0xB4D055FCF2CBBD7BULL);
static_assert(fold(0x0123456789ABCDEFULL, 0xFEDCBA9876543210ULL) == 0x729FAB7EA7D788C6ULL);
static_assert(batch_key(0, 0, 0) == 0xF2F14DFBB4FBCBC2ULL);
static_assert(batch_key(42, 3, 1000) == 0xD0F70AF093BA680FULL);
static_assert(hop_key(0xF2F14DFBB4FBCBC2ULL, 0, kEdge) == 0x2055E62596D4C7CAULL);
static_assert(hop_key(0xF2F14DFBB4FBCBC2ULL, 1, kEdge) == 0xAF6B28B630CC0727ULL);
static_assert(node_key(0x2055E62596D4C7CAULL, 0, 0) == 0x735A472F1217FFC3ULL);
static_assert(node_key(0x2055E62596D4C7CAULL, std::uint64_t{1} << 40, 0) == 0x59E1137174D8C1EEULL);
static_assert(node_key(0x2055E62596D4C7CAULL, 0, 1) == 0xF0A9A2B36C2EA4BFULL);
static_assert(draw(0x735A472F1217FFC3ULL, 0) == 0x8CAAFE08295A7DEFULL);
static_assert(draw(0x735A472F1217FFC3ULL, 1000) == 0x05526FA6F0EBF22DULL);
static_assert(bounded(0, 10) == 0);
static_assert(bounded(kWordMax, 10) == 9);
static_assert(bounded(kWordMax, 1) == 0);
static_assert(bounded(0x8CAAFE08295A7DEFULL, 4294967301ULL) == 2360016394ULL);
static_assert(bounded(0x8DAD59CF145C90B6ULL, std::uint64_t{1} << 63) == 5104457338126747739ULL);

std::vector<std::uint64_t> window(std::uint64_t seed, std::uint64_t epoch, std::uint64_t size,
                                  std::uint64_t start, std::uint64_t stop) {
  const Permutation permutation(seed, epoch, size);
  std::vector<std::uint64_t> places;
  for (std::uint64_t i = start; i < stop; ++i) places.push_back(permutation(i));
  return places;
}

std::string hex(const Digest& digest) {
  std::string words;
  for (const std::uint64_t half : {digest.low, digest.high}) {
    for (int byte = 0; byte < 8; ++byte) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(half >> (8 * byte) & 0xFF));
      words += digits;
    }
  }
  return words;
}

std::vector<unsigned char> counting(std::size_t size) {
  std::vector<unsigned char> bytes(size);
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  return bytes;
}

}  // namespace

TEST(mix_is_a_bijection_as_far_as_one_looks) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t word = 0; word < 5000; ++word) {
    seen.insert(mix(word));
    seen.insert(mix(kWordMax - word));
    seen.insert(mix(word << 32 | 0x80000000U));
  }
  CHECK_EQUAL(seen.size(), std::size_t{15000});
}

TEST(fold_depends_on_the_order_of_words) {
  for (std::uint64_t a = 0; a < 50; ++a) {
    for (std::uint64_t b = 0; b < a; ++b) CHECK(fold(fold(7, a), b) != fold(fold(7, b), a));
  }
}

TEST(bounded_draws_stay_below_their_bound) {
  for (std::uint64_t j = 0; j < 2000; ++j) {
    const std::uint64_t word = draw(3, j);
    for (const std::uint64_t bound : {1ULL, 2ULL, 3ULL, 1000ULL, 1ULL << 32, 1ULL << 63, ~0ULL}) {
      CHECK(bounded(word, bound) < bound);
    }
  }
}

TEST(permutations_are_those_of_the_documentation) {
  using Places = std::vector<std::uint64_t>;
  CHECK_EQUAL(window(0, 0, 1000, 0, 8), (Places{292, 596, 278, 826, 985, 690, 257, 411}));
  CHECK_EQUAL(window(0, 0, 1000000000, 0, 4), (Places{91924325, 312118255, 773414098, 967696055}));
  CHECK_EQUAL(window(kWordMax, kWordMax, 1ULL << 63, 1ULL << 62, (1ULL << 62) + 2),
              (Places{8995300502726267969ULL, 1139562882270007778ULL}));
}

TEST(permutations_are_bijective_for_every_size) {
  for (std::uint64_t size = 0; size <= 300; ++size) {
    std::vector<std::uint64_t> places = window(size, 2, size, 0, size);
    std::sort(places.begin(), places.end());
    for (std::uint64_t i = 0; i < size; ++i) CHECK_EQUAL(places[i], i);
  }
  for (const std::uint64_t size : {4095ULL, 4096ULL, 4097ULL, 20000ULL}) {
    const std::vector<std::uint64_t> places = window(1, 1, size, 0, size);
    CHECK_EQUAL((std::set<std::uint64_t>(places.begin(), places.end()).size()), size);
    CHECK(*std::max_element(places.begin(), places.end()) == size - 1);
  }
}

TEST(permutations_of_the_largest_sizes_stay_inside) {
  for (const std::uint64_t size : {(1ULL << 63) - 1, 1ULL << 63, (1ULL << 63) + 1, ~0ULL}) {
    const Permutation permutation(5, 6, size);
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 200; ++i) {
      CHECK(permutation(i) < size);
      seen.insert(permutation(i));
      seen.insert(permutation(size - 1 - i));
    }
    CHECK_EQUAL(seen.size(), std::size_t{400});
  }
}

TEST(digests_are_those_of_the_documentation) {
  CHECK_EQUAL(hex(digest(nullptr, 0)), "7c972ef310017f96c5555c3009598564");
  CHECK_EQUAL(hex(digest(counting(63).data(), 63)), "2b530a2f9519d2abc166d1aa36d8995d");
  CHECK_EQUAL(hex(digest(counting(64).data(), 64)), "51e4b99a5c6e54895d67af56ad7dbc04");
  CHECK_EQUAL(hex(digest(counting(65).data(), 65)), "57d5cc5351cf1ae9286b9b799d141f1a");
  CHECK_EQUAL(hex(digest(counting(1000).data(), 1000)), "8da745d19d4a7debde940960f315c4e3");
}

TEST(digests_read_no_byte_beyond_the_end) {
  // Each length in memory of exactly that length, where one byte more is a fault.
  std::set<std::string> seen;
  for (std::size_t size = 0; size < 200; ++size) {
    std::vector<unsigned char> bytes(size, 0);
    bytes.shrink_to_fit();
    seen.insert(hex(digest(bytes.data(), size)));
  }
  CHECK_EQUAL(seen.size(), std::size_t{200});
}
