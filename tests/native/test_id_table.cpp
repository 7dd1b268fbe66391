// The table of users' ids: keys that are found, damage that leads nowhere, words at the end of the text.
#include <cstdint>
#include <string>
#include <vector>

#include "check.hpp"
#include "id_table.hpp"

namespace {

using namespace penstock;
using Numbers = std::vector<std::int64_t>;

// Text in memory of exactly its size, so that a read past its end is seen.
struct Strings {
  Numbers offsets{0};
  std::vector<unsigned char> text;

  explicit Strings(const std::vector<std::string>& strings) {
    for (const std::string& string : strings) {
      text.insert(text.end(), string.begin(), string.end());
      offsets.push_back(static_cast<std::int64_t>(text.size()));
    }
    text.shrink_to_fit();
  }

  TextKeys keys() const {
    return {offsets.data(), static_cast<std::int64_t>(offsets.size()) - 1, text.data(),
            static_cast<std::int64_t>(text.size())};
  }
};

template <class Slot, class Keys>
void check_found(const Keys& keys, std::int64_t num_slots) {
  std::vector<Slot> slots(static_cast<std::size_t>(num_slots), 77);
  CHECK_EQUAL((IdTable<Keys, Slot>(keys, slots.data(), num_slots).fill()), std::int64_t{-1});
  Numbers positions(static_cast<std::size_t>(keys.size()), -7), expected;
  IdTable<Keys, const Slot>(keys, slots.data(), num_slots).look_up(keys, positions.data());
  for (std::int64_t at = 0; at < keys.size(); ++at) expected.push_back(at);
  CHECK_EQUAL(positions, expected);
}

TEST(numbers_are_found_in_tables_that_are_nearly_full) {
  Numbers keys;
  for (std::int64_t i = 0; i < 127; ++i) keys.push_back(i * i - 1000);
  for (const std::int64_t size : {0, 1, 63, 64, 65, 127}) {
    const NumberKeys some(keys.data(), size);
    check_found<std::int32_t>(some, 128);
    check_found<std::int64_t>(some, 1024);
  }
}

TEST(text_of_every_length_is_found_up_to_the_last_byte) {
  std::vector<std::string> strings;
  for (std::size_t length = 0; length < 40; ++length) strings.push_back(std::string(length, 'x'));
  for (std::size_t last = 1; last < 40; ++last) {
    const Strings some(std::vector<std::string>(strings.begin(), strings.begin() + last));
    check_found<std::int32_t>(some.keys(), 64);
  }
}

TEST(a_table_that_is_extended_is_that_of_all_keys) {
  Numbers keys;
  for (std::int64_t i = 0; i < 200; ++i) keys.push_back(i * i % 151);
  const NumberKeys all(keys.data(), 200);
  std::vector<std::int32_t> whole(512, 77);
  const std::int64_t repeated = IdTable<NumberKeys, std::int32_t>(all, whole.data(), 512).fill();
  for (const std::int64_t first : {0, 1, 64, 150, 200}) {
    std::vector<std::int32_t> slots(512, 77);
    const NumberKeys some(keys.data(), first);
    const std::int64_t before = IdTable<NumberKeys, std::int32_t>(some, slots.data(), 512).fill();
    const std::int64_t after =
        IdTable<NumberKeys, std::int32_t>(all, slots.data(), 512).extend(first);
    CHECK_EQUAL(slots, whole);
    CHECK_EQUAL(before < 0 ? after : before, repeated);
  }
}

TEST(offsets_that_lead_outside_have_no_key) {
  Strings damaged({"a", "b", "c"});
  damaged.offsets = {0, 100, -5, 3};
  CHECK_EQUAL(damaged.keys().first_unsound(), std::int64_t{0});
  const std::vector<std::int32_t> slots{0, 1, 2, -9, 1000, 2, 1, 0};
  const Strings wanted({"a", "b", "c", "", "other"});
  Numbers positions(5, -7);
  IdTable<TextKeys, const std::int32_t>(damaged.keys(), slots.data(), 8)
      .look_up(wanted.keys(), positions.data());
  CHECK_EQUAL(positions, (Numbers{-1, -1, -1, -1, -1}));
}

}  // namespace
