// Which ids are here, and which row each has: a bitmap with ranks, one cache line for an id.
#pragma once

#include <cstdint>

#include "prefetch.hpp"
#include "spans.hpp"

namespace penstock {

// By sums of halves: the instruction that counts bits is not on every machine.
inline std::int64_t set_bits(std::uint64_t word) {
  word -= (word >> 1) & 0x5555555555555555ULL;
  word = (word & 0x3333333333333333ULL) + ((word >> 2) & 0x3333333333333333ULL);
  word = (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0FULL;
  return static_cast<std::int64_t>((word * 0x0101010101010101ULL) >> 56);
}

// Which of 64 ids are here, and how many are before them.
struct MemberWord {
  static constexpr std::int64_t kBits = 64;
  static constexpr std::int64_t kNoRow = -1;
  std::uint64_t bits;
  std::uint64_t before;

  // The row of an id of this word, or kNoRow. Damaged ranks give any number.
  std::int64_t row(std::int64_t id) const {
    const int bit = static_cast<int>(id % kBits);
    if ((bits >> bit & 1) == 0) return kNoRow;
    const std::uint64_t below = bits & ((std::uint64_t{1} << bit) - 1);
    return static_cast<std::int64_t>(before + static_cast<std::uint64_t>(set_bits(below)));
  }
};

// Sets the bits of `ids`, which rise and are in range, and the ranks. `words` hold zeros.
inline void fill_members(Strided<std::int64_t> ids, MemberWord* words, std::int64_t num_words) {
  for (std::int64_t i = 0; i < ids.size; ++i) {
    words[ids[i] / MemberWord::kBits].bits |= std::uint64_t{1} << (ids[i] % MemberWord::kBits);
  }
  std::uint64_t before = 0;
  for (std::int64_t word = 0; word < num_words; ++word) {
    words[word].before = before;
    before += static_cast<std::uint64_t>(set_bits(words[word].bits));
  }
}

// The first position whose id is not larger than the one before it, or -1.
template <class T>
std::int64_t first_fall(Strided<T> ids) {
  for (std::int64_t i = 1; i < ids.size; ++i) {
    if (ids[i - 1] >= ids[i]) return i;
  }
  return -1;
}

// Writes the row of every id, -1 where it is not here. The ids were checked to be in range.
template <class T>
void find_rows(const MemberWord* words, Strided<T> ids, std::int64_t* rows) {
  constexpr std::int64_t kAhead = 32;
  for (std::int64_t i = 0; i < ids.size; ++i) {
    if (i + kAhead < ids.size) prefetch_once(words + ids[i + kAhead] / MemberWord::kBits);
    const std::int64_t id = ids[i];
    rows[i] = words[id / MemberWord::kBits].row(id);
  }
}

// Writes the ids that are here, rising; false where there are other than `count` of them.
inline bool list_members(const MemberWord* words, std::int64_t num_words, std::int64_t* ids,
                         std::int64_t count) {
  std::int64_t listed = 0;
  for (std::int64_t word = 0; word < num_words; ++word) {
    std::uint64_t bits = words[word].bits;
    if (set_bits(bits) > count - listed) return false;
    for (; bits != 0; bits &= bits - 1) {
      const std::uint64_t lowest = bits & (0 - bits);
      ids[listed++] = word * MemberWord::kBits + set_bits(lowest - 1);
    }
  }
  return listed == count;
}

// Whether the ranks are those of the bits, and no bit lies beyond the last id.
inline bool members_are_sound(const MemberWord* words, std::int64_t size) {
  const std::int64_t num_words = (size + MemberWord::kBits - 1) / MemberWord::kBits;
  std::uint64_t before = 0;
  bool sound = true;
  for (std::int64_t word = 0; word < num_words; ++word) {
    sound &= words[word].before == before;
    before += static_cast<std::uint64_t>(set_bits(words[word].bits));
  }
  const std::int64_t used = size % MemberWord::kBits;
  return sound && (used == 0 || words[num_words - 1].bits >> used == 0);
}

}  // namespace penstock
