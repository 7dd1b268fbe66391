// Edges shared out to buckets by a key, and the rows of a bucket: sorts more edges than memory holds.
//
// A bucket is a stream of records, in the order of edge ids. A record has the low bits of its id
// alone: a mark before it, where the source is `kMark`, has the rest of this and the following ones.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "members.hpp"
#include "prefetch.hpp"
#include "spans.hpp"

namespace penstock {

struct NarrowRecord {
  using Source = std::uint32_t;
  using Low = std::uint16_t;
  static constexpr int kBits = 16;
  Source source;
  Low row, id;
};

struct WideRecord {
  using Source = std::uint64_t;
  using Low = std::uint32_t;
  static constexpr int kBits = 32;
  Source source;
  Low row, id;
};

static_assert(sizeof(NarrowRecord) == 8 && sizeof(WideRecord) == 16);

template <class Record>
inline constexpr typename Record::Source kMark = static_cast<typename Record::Source>(-1);

// Where the next records of a bucket go, which ids its last mark was for, and how many edges it has.
struct Bucket {
  std::int64_t at, end;
  std::int64_t mark;
  std::int64_t edges;
};

// Keys from `first` on, `size` of them, 2^shift in each bucket.
struct KeyRange {
  std::int64_t first, size;
  int shift;
};

namespace detail {

template <class Record>
Record marked(std::int64_t mark) {
  using Low = typename Record::Low;
  return {kMark<Record>, static_cast<Low>(mark >> Record::kBits), static_cast<Low>(mark)};
}

// What the records after a mark have in front of their ids' low bits.
template <class Record>
std::int64_t upper_bits(const Record& mark) {
  const auto word = static_cast<std::uint64_t>(mark.row) << Record::kBits | mark.id;
  return static_cast<std::int64_t>(word << Record::kBits);
}

}  // namespace detail

// Appends edges to their buckets until one is full. Returns how many were appended, or, where one
// cannot be: -1 minus its position.
template <class Record, class T, class IdOf>
std::int64_t spread_edges(Strided<T> sources, Strided<T> keys, IdOf id_of, const KeyRange& range,
                          Record* pool, Bucket* buckets) {
  const std::uint64_t low_keys = (std::uint64_t{1} << range.shift) - 1;
  for (std::int64_t i = 0; i < keys.size; ++i) {
    const auto key = static_cast<std::uint64_t>(static_cast<std::int64_t>(keys[i])) -
                     static_cast<std::uint64_t>(range.first);
    const auto source = static_cast<std::uint64_t>(static_cast<std::int64_t>(sources[i]));
    const std::int64_t id = id_of(i);
    if (key >= static_cast<std::uint64_t>(range.size) || source >= kMark<Record> || id < 0) {
      return -1 - i;
    }
    Bucket& bucket = buckets[key >> range.shift];
    if (bucket.end - bucket.at < 2) return i;  // a mark may be needed, too
    const std::int64_t mark = id >> Record::kBits;
    if (mark != bucket.mark) {
      pool[bucket.at++] = detail::marked<Record>(mark);
      bucket.mark = mark;
    }
    using Low = typename Record::Low;
    pool[bucket.at++] = {static_cast<typename Record::Source>(source),
                         static_cast<Low>(key & low_keys), static_cast<Low>(id)};
    ++bucket.edges;
  }
  return keys.size;
}

// Writes the ends, rows and ids of records one below the other; `upper` is what the last mark said,
// and goes on to the records that follow. Returns how many edges there are, or -1 without room.
template <class Record>
std::int64_t unpack_records(const Record* records, std::int64_t size, std::int64_t& upper,
                            std::int64_t* sources, std::int64_t* rows, std::int64_t* ids,
                            std::int64_t room) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const Record record = records[i];
    if (record.source == kMark<Record>) {
      upper = detail::upper_bits(record);
      continue;
    }
    if (count == room) return -1;
    sources[count] = static_cast<std::int64_t>(record.source);
    rows[count] = static_cast<std::int64_t>(record.row);
    ids[count++] = upper | static_cast<std::int64_t>(record.id);
  }
  return count;
}

// Which edges count, and as which ids: all, or those that are members, by their ranks.
struct AllEdges {
  std::int64_t operator()(std::int64_t id) const { return id; }
};
struct SomeEdges {
  const MemberWord* words;
  std::int64_t size;
  std::int64_t operator()(std::int64_t id) const {
    return id >= 0 && id < size ? words[id / MemberWord::kBits].row(id) : MemberWord::kNoRow;
  }
};

namespace detail {

template <class Record, class Each>
bool each_edge(const Record* records, std::int64_t size, std::int64_t num_rows, Each each) {
  std::int64_t upper = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const Record record = records[i];
    if (record.source == kMark<Record>) {
      upper = upper_bits(record);
      continue;
    }
    if (static_cast<std::int64_t>(record.row) >= num_rows) return false;
    if (!each(record, upper | static_cast<std::int64_t>(record.id), i)) return false;
  }
  return true;
}

}  // namespace detail

// Writes where each row ends, if the first begins at `begin`. False where a record is damaged.
template <class Record, class Numbers>
bool count_records(const Record* records, std::int64_t size, std::int64_t begin, Numbers number,
                   std::int64_t* ends, std::int64_t num_rows) {
  std::fill(ends, ends + num_rows, 0);
  const bool sound = detail::each_edge(
      records, size, num_rows, [&](const Record& record, std::int64_t id, std::int64_t) {
        ends[record.row] += number(id) >= 0;
        return true;
      });
  std::int64_t end = begin;
  for (std::int64_t row = 0; row < num_rows; ++row) ends[row] = end += ends[row];
  return sound;
}

// Sorts the records of a bucket by row, stably, into `entries`, `room` of them. False where a record
// is damaged, or there are other than `room` edges.
template <bool kPairs, class Record, class Index, class Numbers>
bool sort_records(const Record* records, std::int64_t size, std::int64_t begin, Numbers number,
                  std::int64_t num_sources, std::int64_t* ends, std::int64_t num_rows,
                  Index* entries, std::int64_t room) {
  constexpr std::int64_t kAhead = 24;
  if (!count_records(records, size, begin, number, ends, num_rows)) return false;
  if ((num_rows == 0 ? begin : ends[num_rows - 1]) != begin + room) return false;
  // Each row's end becomes its beginning, and its end again as entries are placed.
  for (std::int64_t row = num_rows; row-- > 0;) ends[row] = row == 0 ? begin : ends[row - 1];
  return detail::each_edge(
      records, size, num_rows, [&](const Record& record, std::int64_t id, std::int64_t i) {
        if (i + kAhead < size && static_cast<std::int64_t>(records[i + kAhead].row) < num_rows) {
          prefetch_write(entries + (kPairs ? 2 : 1) * (ends[records[i + kAhead].row] - begin));
        }
        const std::int64_t edge = number(id);
        if (edge < 0) return true;
        const auto source = static_cast<std::uint64_t>(record.source);
        if (source >= static_cast<std::uint64_t>(num_sources)) return false;
        const std::int64_t at = ends[record.row]++ - begin;
        if (at >= room) return false;  // others write to the records meanwhile
        if constexpr (kPairs) {
          entries[2 * at] = static_cast<Index>(source);
          entries[2 * at + 1] = static_cast<Index>(edge);
        } else {
          entries[at] = static_cast<Index>(source);
        }
        return true;
      });
}

// An edge that repeats an earlier one: the one of the lowest id, if there is any.
struct Repeats {
  std::int64_t count = 0, id = -1, source = -1, row = -1;
};

// Finds edges of a row whose source stands in it before, and clears their bits where `words` are
// given. Rows are sorted in place. Other threads may clear other bits at the same time.
template <class Index>
Repeats find_repeats(const std::int64_t* ends, std::int64_t num_rows, Index* entries,
                     std::int64_t size, std::int64_t begin, MemberWord* words,
                     std::int64_t num_ids) {
  struct Pair {
    Index source, id;
    bool operator<(const Pair& other) const {
      return source != other.source ? source < other.source : id < other.id;
    }
  };
  Repeats found;
  auto* const pairs = reinterpret_cast<Pair*>(entries);
  std::int64_t first = 0;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t last = std::clamp(ends[row] - begin, first, size);
    std::sort(pairs + first, pairs + last);
    for (std::int64_t at = first + 1; at < last; ++at) {
      if (pairs[at].source != pairs[at - 1].source) continue;
      const auto id = static_cast<std::int64_t>(pairs[at].id);
      if (found.count++ == 0 || id < found.id) {
        found.id = id;
        found.source = static_cast<std::int64_t>(pairs[at].source);
        found.row = row;
      }
      if (words != nullptr && id >= 0 && id < num_ids) {
        std::atomic_ref<std::uint64_t>(words[id / MemberWord::kBits].bits)
            .fetch_and(~(std::uint64_t{1} << (id % MemberWord::kBits)), std::memory_order_relaxed);
      }
    }
    first = last;
  }
  return found;
}

// Writes the ranks that the bits say, and returns how many ids are here.
inline std::int64_t rank_members(MemberWord* words, std::int64_t num_words) {
  std::uint64_t before = 0;
  for (std::int64_t word = 0; word < num_words; ++word) {
    words[word].before = before;
    before += static_cast<std::uint64_t>(set_bits(words[word].bits));
  }
  return static_cast<std::int64_t>(before);
}

}  // namespace penstock
