// A table that finds the position of a user's id: a number of 64 bits, or text. docs/id-table.md is the
// specification, kernels/twins/id_table.py the NumPy twin.
//
// Open addressing with linear probing. A slot holds the position of a key, the keys lie elsewhere:
// so a search takes two reads from anywhere in memory, and for text a third. Keys are searched by
// the block, so that the reads of a block are under way together.
//
// Slots, offsets and text may come from a file. A damaged one gives wrong positions, or none, but
// nothing is read outside of the arrays.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "digest.hpp"
#include "prefetch.hpp"
#include "rng.hpp"

namespace penstock {

inline constexpr std::uint64_t kIdDomain = 0x6964746162000001ULL;
inline constexpr std::int64_t kNoPosition = -1;

class NumberKeys {
 public:
  NumberKeys(const std::int64_t* keys, std::int64_t size) : keys_(keys), size_(size) {}

  std::int64_t size() const { return size_; }
  std::uint64_t hash(std::int64_t at) const {
    return mix(static_cast<std::uint64_t>(keys_[at]) + kIdDomain);
  }
  bool equal(std::int64_t at, const NumberKeys& other, std::int64_t other_at) const {
    return keys_[at] == other.keys_[other_at];
  }
  void prefetch(std::int64_t at) const { prefetch_once(keys_ + at); }
  void prefetch_text(std::int64_t) const {}

 private:
  const std::int64_t* keys_;
  std::int64_t size_;
};

// UTF-8: key i is the bytes from offsets[i] to offsets[i + 1].
class TextKeys {
 public:
  TextKeys(const std::int64_t* offsets, std::int64_t size, const unsigned char* text,
           std::int64_t num_bytes)
      : offsets_(offsets), size_(size), text_(text), num_bytes_(num_bytes) {}

  std::int64_t size() const { return size_; }

  std::uint64_t hash(std::int64_t at) const {
    const auto [begin, length] = span(at);
    std::uint64_t state = kIdDomain + static_cast<std::uint64_t>(length) * kGamma;
    std::int64_t done = 0;
    for (; done + kWord <= length; done += kWord) state = absorb(state, word(begin + done, kWord));
    if (done < length) state = absorb(state, word(begin + done, length - done));
    return mix(state);
  }

  bool equal(std::int64_t at, const TextKeys& other, std::int64_t other_at) const {
    const Span mine = span(at), theirs = other.span(other_at);
    if (mine.length != theirs.length || mine.length < 0) return false;
    return mine.length == 0 || std::memcmp(text_ + mine.begin, other.text_ + theirs.begin,
                                           static_cast<std::size_t>(mine.length)) == 0;
  }
  void prefetch(std::int64_t at) const { prefetch_once(offsets_ + at); }
  void prefetch_text(std::int64_t at) const {
    const Span here = span(at);
    if (here.length > 0) prefetch_once(text_ + here.begin);
  }

  // The first key whose offsets fall, or lead outside of the text; -1 where there is none.
  std::int64_t first_unsound() const {
    for (std::int64_t at = 0; at < size_; ++at) {
      if (span(at).length < 0) return at;
    }
    return -1;
  }

 private:
  static constexpr std::int64_t kWord = 8;

  struct Span {
    std::int64_t begin;
    std::int64_t length;  // below 0 where the offsets are damaged
  };

  Span span(std::int64_t at) const {
    const std::int64_t begin = offsets_[at], end = offsets_[at + 1];
    if (begin < 0 || begin > end || end > num_bytes_) [[unlikely]] return {0, -1};
    return {begin, end - begin};
  }

  // Up to 8 bytes, filled up with zeros.
  std::uint64_t word(std::int64_t begin, std::int64_t length) const {
    std::uint64_t value = 0;
    if (begin + kWord <= num_bytes_) [[likely]] {
      std::memcpy(&value, text_ + begin, sizeof value);
      return value & (~std::uint64_t{0} >> (8 * (kWord - length)));
    }
    std::memcpy(&value, text_ + begin, static_cast<std::size_t>(length));
    return value;
  }

  static std::uint64_t absorb(std::uint64_t state, std::uint64_t word) {
    const Wide product = static_cast<Wide>(state ^ word) * kDigestFactor;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }

  const std::int64_t* offsets_;
  std::int64_t size_;
  const unsigned char* text_;
  std::int64_t num_bytes_;
};

// `Slot` is int32 or int64, const where the table is only read. The number of slots is a power of
// two, and at least two.
template <class Keys, class Slot>
class IdTable {
 public:
  IdTable(const Keys& keys, Slot* slots, std::int64_t num_slots)
      : keys_(keys), slots_(slots), num_slots_(static_cast<std::uint64_t>(num_slots)),
        shift_(64 - std::countr_zero(num_slots_)) {}

  // Enters all keys, of which there are fewer than slots. Of equal ones the first has the slot.
  // Returns the position of the first key that was there before, or -1.
  std::int64_t fill() {
    std::fill(slots_, slots_ + num_slots_, static_cast<Slot>(kNoPosition));
    return extend(0);
  }

  // Enters the keys from `first` on; those before it have been entered. Returns what `fill` does.
  std::int64_t extend(std::int64_t first) {
    std::int64_t repeated = kNoPosition;
    Homes homes;
    for (std::int64_t begin = first; begin < keys_.size(); begin += kBlock) {
      const std::int64_t end = std::min(begin + kBlock, keys_.size());
      fetch(begin, end, homes);
      for (std::int64_t at = begin; at < end; ++at) {
        const bool is_new = enter(homes[static_cast<std::size_t>(at - begin)], at);
        if (!is_new && repeated == kNoPosition) repeated = at;
      }
    }
    return repeated;
  }

  // Writes the position of each wanted key, or -1.
  void look_up(const Keys& wanted, std::int64_t* positions) const {
    for (std::int64_t begin = 0; begin < wanted.size(); begin += kBlock) {
      look_up_block(wanted, begin, std::min(begin + kBlock, wanted.size()), positions);
    }
  }

 private:
  static constexpr std::int64_t kBlock = 64;
  using Homes = std::array<std::uint64_t, kBlock>;

  // The keys of a block that are still looked for: which, and the slot to look into next.
  struct Search {
    std::array<std::uint64_t, kBlock> slots;
    std::array<std::int64_t, kBlock> at;
    std::size_t count = 0;
  };

  // All keys of a block take a step, then those that were not found the next one: so what a step
  // reads of the keys is under way for all of them together.
  void look_up_block(const Keys& wanted, std::int64_t begin, std::int64_t end,
                     std::int64_t* positions) const {
    Search search;
    for (std::int64_t at = begin; at < end; ++at) {
      positions[at] = kNoPosition;
      search.at[search.count] = at;
      search.slots[search.count] = wanted.hash(at) >> shift_;
      prefetch_once(slots_ + search.slots[search.count++]);
    }
    for (std::uint64_t step = 0; step < num_slots_ && search.count > 0; ++step) {
      step_all(search, wanted, positions);
    }
  }

  void step_all(Search& search, const Keys& wanted, std::int64_t* positions) const {
    std::array<std::int64_t, kBlock> found;
    for (std::size_t i = 0; i < search.count; ++i) {
      found[i] = slots_[search.slots[i]];
      if (is_key(found[i])) keys_.prefetch(found[i]);
    }
    for (std::size_t i = 0; i < search.count; ++i) {
      if (is_key(found[i])) keys_.prefetch_text(found[i]);
    }
    std::size_t left = 0;
    for (std::size_t i = 0; i < search.count; ++i) {
      if (found[i] == kNoPosition) continue;
      if (is_key(found[i]) && keys_.equal(found[i], wanted, search.at[i])) {
        positions[search.at[i]] = found[i];
        continue;
      }
      search.slots[left] = (search.slots[i] + 1) & (num_slots_ - 1);
      search.at[left++] = search.at[i];
    }
    search.count = left;
  }

  // Finds the slots where keys `begin` to `end` belong, and has what is there brought nearer.
  void fetch(std::int64_t begin, std::int64_t end, Homes& homes) const {
    const auto count = static_cast<std::size_t>(end - begin);
    for (std::size_t i = 0; i < count; ++i) {
      homes[i] = keys_.hash(begin + static_cast<std::int64_t>(i)) >> shift_;
      prefetch_write(slots_ + homes[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t position = slots_[homes[i]];
      if (is_key(position)) keys_.prefetch(position);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t position = slots_[homes[i]];
      if (is_key(position)) keys_.prefetch_text(position);
    }
  }

  bool enter(std::uint64_t home, std::int64_t at) {
    for (std::uint64_t step = 0; step < num_slots_; ++step) {
      Slot& slot = slots_[(home + step) & (num_slots_ - 1)];
      const std::int64_t position = slot;
      if (position == kNoPosition) {
        slot = static_cast<Slot>(at);
        return true;
      }
      if (is_key(position) && keys_.equal(position, keys_, at)) return false;
    }
    return true;  // only where somebody else writes to the slots
  }

  bool is_key(std::int64_t position) const {
    return static_cast<std::uint64_t>(position) < static_cast<std::uint64_t>(keys_.size());
  }

  const Keys& keys_;
  Slot* slots_;
  std::uint64_t num_slots_;
  int shift_;
};

}  // namespace penstock
