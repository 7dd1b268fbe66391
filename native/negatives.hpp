// Pairs of nodes that stand against edges: drawn, checked and, where luck fails, searched for.
//
// A negative is drawn a bounded number of times. What follows is a search, also bounded, from a
// random place, and then whatever there is: every graph is done with, a complete one too, and what
// is no negative after all is counted. docs/random.md has the rules to the word.
#pragma once

#include <algorithm>
#include <cstdint>

#include "neighbor.hpp"
#include "prefetch.hpp"
#include "rng.hpp"
#include "spans.hpp"

namespace penstock {

inline constexpr std::uint64_t kNegateDomain = 0x6E65676174650001ULL;
inline constexpr std::int64_t kNegativeDraws = 32;    // of each end of a negative
inline constexpr std::int64_t kNegativeScan = 1024;   // nodes looked at one after the other

// The nodes that one end of a negative is drawn from: all alike, or by running sums of weights; with
// times, those not later than a limit are wanted.
struct Candidates {
  std::int64_t num_nodes = 0;
  const std::int64_t* sums = nullptr;
  const std::int64_t* times = nullptr;
  std::int64_t earliest = 0;  // the first of least time, among those that can be drawn

  std::uint64_t total() const {
    return static_cast<std::uint64_t>(sums == nullptr ? num_nodes : sums[num_nodes - 1]);
  }

  std::int64_t pick(std::uint64_t word) const {
    const auto at = static_cast<std::int64_t>(bounded(word, total()));
    return sums == nullptr ? at : holder(at);
  }

  // The node that weight number `at` belongs to. Whatever the sums are, it is one of the nodes.
  std::int64_t holder(std::int64_t at) const {
    std::int64_t base = 0;
    for (std::int64_t size = num_nodes; size > 1;) {
      const std::int64_t half = size / 2;
      base += sums[base + half - 1] <= at ? half : 0;
      size -= half;
    }
    return base;
  }

  // The next node that can be drawn, round and round.
  std::int64_t after(std::int64_t node) const {
    if (sums == nullptr) return node + 1 < num_nodes ? node + 1 : 0;
    const std::int64_t passed = sums[node];
    return holder(passed < sums[num_nodes - 1] ? passed : 0);
  }

  bool can_draw(std::int64_t node) const {
    return sums == nullptr || sums[node] > (node > 0 ? sums[node - 1] : 0);
  }

  bool in_time(std::int64_t node, std::int64_t limit) const {
    return times == nullptr || times[node] <= limit;
  }

  void find_earliest() {
    std::int64_t found = -1;
    for (std::int64_t node = 0; times != nullptr && node < num_nodes; ++node) {
      if (can_draw(node) && (found < 0 || times[node] < times[found])) found = node;
    }
    earliest = std::max<std::int64_t>(found, 0);
  }

  // The first from `start` on that `fits`, or -1.
  template <class Fits>
  std::int64_t search(std::int64_t start, Fits fits) const {
    std::int64_t node = start;
    for (std::int64_t seen = 0; seen < kNegativeScan; ++seen) {
      if (fits(node)) return node;
      node = after(node);
      if (node == start) break;
    }
    return -1;
  }
};

// Who has an edge to whom: the row of a node has its in-neighbours, ascending.
template <class Index>
struct SortedRows {
  Bare<Index> rows{};
  bool are_asked = false;  // else there are none

  bool is_sound(RowBounds row) const {
    return row.begin >= 0 && row.begin <= row.end && row.end <= rows.num_edges;
  }

  bool has(std::int64_t neighbor, RowBounds row) const {
    return std::binary_search(rows.entries + row.begin, rows.entries + row.end, neighbor);
  }
};

// What is asked for. Negative k stands against edge k modulo their number.
struct NegativeSpec {
  std::uint64_t batch_key;
  Candidates source;
  Candidates destination;
  Strided<std::int64_t> sources;       // of the edges given
  Strided<std::int64_t> destinations;
  Strided<std::int64_t> times;         // of the edges given; data is null where there are none
};

struct NegativeCounts {
  std::int64_t are_edges = 0;  // known only where edges are looked up
  std::int64_t are_late = 0;
};

template <class Index>
class NegativeDrawer {
 public:
  NegativeDrawer(const NegativeSpec& spec, const SortedRows<Index>& edges)
      : spec_(spec), edges_(edges), key_(fold(spec.batch_key, kNegateDomain)) {}

  // Writes pairs; or, where `sources` is null, destinations for the sources of the edges given.
  Outcome draw(std::int64_t count, std::int64_t* sources, std::int64_t* destinations) {
    for (std::int64_t begin = 0; begin < count && !is_damaged_; begin += kBlock) {
      const std::int64_t size = std::min(kBlock, count - begin);
      draw_block(begin, size, sources == nullptr ? nullptr : sources + begin, destinations + begin);
    }
    return is_damaged_ ? Outcome::kDamaged : Outcome::kDone;
  }

  const NegativeCounts& counts() const { return counts_; }

 private:
  static constexpr std::int64_t kBlock = 64;

  // One end of one negative: its draws, one after the other.
  struct End {
    const Candidates& nodes;
    std::uint64_t key;
    std::uint64_t side;  // its words are the even ones, or the odd ones
    std::int64_t limit;
    std::int64_t used = 0;

    std::uint64_t word(std::int64_t j) const { return draw_word(key, j, side); }

    // The next one that is early enough, or -1 when all draws are made.
    std::int64_t next() {
      while (used < kNegativeDraws) {
        const std::int64_t node = nodes.pick(word(used++));
        if (nodes.in_time(node, limit)) return node;
      }
      return -1;
    }

    bool fits(std::int64_t node) const { return nodes.in_time(node, limit); }
    std::int64_t anywhere() const { return nodes.pick(word(kNegativeDraws)); }
  };

  static std::uint64_t draw_word(std::uint64_t key, std::int64_t j, std::uint64_t side) {
    return penstock::draw(key, 2 * static_cast<std::uint64_t>(j) + side);
  }

  // First draws of all, so that their reads of memory overlap; the few that will not do go on alone.
  void draw_block(std::int64_t begin, std::int64_t size, std::int64_t* sources,
                  std::int64_t* destinations) {
    std::uint64_t words[kBlock];
    std::int64_t own_sources[kBlock];
    if (sources == nullptr) {
      for (std::int64_t i = 0; i < size; ++i) own_sources[i] = spec_.sources[edge_of(begin + i)];
    } else {
      for (std::int64_t i = 0; i < size; ++i) words[i] = draw_word(key_of(begin + i), 0, 0);
      pick_block(spec_.source, words, size, sources);
    }
    for (std::int64_t i = 0; i < size; ++i) words[i] = draw_word(key_of(begin + i), 0, 1);
    pick_block(spec_.destination, words, size, destinations);
    const bool is_pair = sources != nullptr;
    std::int64_t* const from = is_pair ? sources : own_sources;
    fetch_ahead(from, destinations, size, is_pair);
    for (std::int64_t i = 0; i < size && !is_damaged_; ++i) {
      if (!is_good(begin + i, from[i], destinations[i], is_pair)) {
        settle(begin + i, from[i], destinations[i], is_pair);
      }
    }
  }

  // All searches of a block go down together: one level's reads do not wait for each other.
  static void pick_block(const Candidates& nodes, const std::uint64_t* words, std::int64_t size,
                         std::int64_t* picked) {
    const std::uint64_t total = nodes.total();
    if (nodes.sums == nullptr) {
      for (std::int64_t i = 0; i < size; ++i) {
        picked[i] = static_cast<std::int64_t>(bounded(words[i], total));
      }
      return;
    }
    std::int64_t at[kBlock];
    for (std::int64_t i = 0; i < size; ++i) {
      at[i] = static_cast<std::int64_t>(bounded(words[i], total));
      picked[i] = 0;
    }
    for (std::int64_t left = nodes.num_nodes; left > 1;) {
      const std::int64_t half = left / 2;
      for (std::int64_t i = 0; i < size; ++i) {
        picked[i] += nodes.sums[picked[i] + half - 1] <= at[i] ? half : 0;
      }
      left -= half;
    }
  }

  void fetch_ahead(const std::int64_t* sources, const std::int64_t* destinations, std::int64_t size,
                   bool is_pair) const {
    const RowOffsets offsets = edges_.rows.offsets();
    for (std::int64_t i = 0; i < size; ++i) {
      if (is_pair && spec_.source.times != nullptr) prefetch_once(spec_.source.times + sources[i]);
      if (spec_.destination.times != nullptr) {
        prefetch_once(spec_.destination.times + destinations[i]);
      }
      if (edges_.are_asked) offsets.prefetch(destinations[i]);
    }
    // Where rows are fetched, one that is looked at is one that is asked for, and not all will be.
    if (!edges_.are_asked || offsets.notes_what_is_read()) return;
    for (std::int64_t i = 0; i < size; ++i) {
      const RowBounds row = offsets.row(destinations[i]);
      if (!edges_.is_sound(row)) continue;
      prefetch_once(edges_.rows.entry(row.begin + (row.end - row.begin) / 2));
    }
  }

  bool is_good(std::int64_t k, std::int64_t source, std::int64_t destination, bool is_pair) {
    const std::int64_t limit = limit_of(k);
    return (!is_pair || spec_.source.in_time(source, limit)) &&
           spec_.destination.in_time(destination, limit) && !is_edge(k, source, destination);
  }

  // The rules from the beginning, for a negative whose first draw will not do.
  void settle(std::int64_t k, std::int64_t& source, std::int64_t& destination, bool is_pair) {
    const std::uint64_t key = key_of(k);
    const std::int64_t limit = limit_of(k);
    End from{spec_.source, key, 0, limit}, to{spec_.destination, key, 1, limit};
    std::int64_t u = is_pair ? -1 : source, v = -1;
    while (true) {
      const std::int64_t next_u = is_pair ? from.next() : u, next_v = to.next();
      if (next_u >= 0) u = next_u;
      if (next_v >= 0) v = next_v;
      if (next_u < 0 || next_v < 0) break;
      if (is_edge(k, u, v)) continue;
      source = u;
      destination = v;
      return;
    }
    if (u < 0) u = in_time_anywhere(from);
    const std::int64_t found =
        to.nodes.search(v < 0 ? to.anywhere() : v, [&](std::int64_t node) {
          return is_damaged_ || (to.fits(node) && !is_edge(k, u, node));
        });
    if (found >= 0) v = found;
    if (v < 0) v = to.nodes.earliest;
    source = u;
    destination = v;
    counts_.are_late += (is_pair && !from.fits(u)) || !to.fits(v);
    counts_.are_edges += is_edge(k, u, v);
  }

  static std::int64_t in_time_anywhere(const End& end) {
    const std::int64_t found =
        end.nodes.search(end.anywhere(), [&](std::int64_t node) { return end.fits(node); });
    return found >= 0 ? found : end.nodes.earliest;
  }

  // Whether the graph has this edge, or it is the one that the negative stands against, which need
  // not be in the graph. Never where nobody asks.
  bool is_edge(std::int64_t k, std::int64_t source, std::int64_t destination) {
    if (!edges_.are_asked) return false;
    const std::int64_t own = edge_of(k);
    if (source == spec_.sources[own] && destination == spec_.destinations[own]) return true;
    const RowBounds row = edges_.rows.row(destination);
    if (!edges_.is_sound(row)) {
      is_damaged_ = true;
      return false;
    }
    return edges_.has(source, row);
  }

  std::int64_t edge_of(std::int64_t k) const { return k % spec_.sources.size; }
  std::uint64_t key_of(std::int64_t k) const { return fold(key_, static_cast<std::uint64_t>(k)); }
  std::int64_t limit_of(std::int64_t k) const {
    return spec_.times.data == nullptr ? 0 : spec_.times[edge_of(k)];
  }

  const NegativeSpec& spec_;
  SortedRows<Index> edges_;
  std::uint64_t key_;
  NegativeCounts counts_;
  bool is_damaged_ = false;
};

// The neighbours of every row, ascending. Returns false, with nothing of use written, where the
// topology is damaged.
template <class Adjacency, class Index>
bool sort_rows(const Adjacency& from, Index* out) {
  const std::int64_t size = from.num_edges;
  if (from.indptr[0] != 0 || from.indptr[from.num_rows()] != size) return false;
  for (std::int64_t row = 0; row < from.num_rows(); ++row) {
    const std::int64_t begin = from.indptr[row], end = from.indptr[row + 1];
    if (begin < 0 || begin > end || end > size) return false;
    for (std::int64_t at = begin; at < end; ++at) out[at] = static_cast<Index>(from.neighbor(at));
    if (!std::is_sorted(out + begin, out + end)) std::sort(out + begin, out + end);
  }
  return true;
}

}  // namespace penstock
