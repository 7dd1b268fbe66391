// Which of a node's edges are taken, by weight. Everything that decides a weighted draw is here.
//
// Weights are integers, and come as their running sums within each row: an edge is drawn by a
// number below the row's total and a search for the first sum above it, so an edge of weight 0 is
// never drawn. Without replacement the probabilities are those of successive draws, exactly: an edge
// drawn before is discarded; where that takes too long, because few edges have nearly all the
// weight, those chosen so far are cut out of the row, and drawing goes on in what is left. The
// searches of all nodes of a block run side by side. The time a row takes grows with the logarithm
// of its length.
//
// Any sums are safe: what is not the running sum of weights gives some edges of the row, or none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "choose.hpp"
#include "draws.hpp"
#include "prefetch.hpp"
#include "rng.hpp"
#include "searches.hpp"
#include "simd.hpp"
#include "words.hpp"

namespace penstock {

namespace detail {

// A row without some of its edges: where a draw from the weight that is left lies in the whole row.
// Unsigned, so that sums that are none cannot overflow.
class CutRow {
 public:
  // Cuts these positions out, and no others. Returns the weight that is left.
  std::uint64_t cut(const std::int64_t* sums, std::int64_t begin, std::int64_t degree,
                    const std::int64_t* positions, std::int64_t count) {
    before_.clear();
    skipped_.clear();
    std::uint64_t cut = 0;
    places_.assign(positions, positions + count);
    std::sort(places_.begin(), places_.end());
    for (const std::int64_t place : places_) {
      const std::uint64_t start = place == begin ? 0 : static_cast<std::uint64_t>(sums[place - 1]);
      before_.push_back(start - cut);
      cut += static_cast<std::uint64_t>(sums[place]) - start;
      skipped_.push_back(cut);
    }
    return static_cast<std::uint64_t>(sums[begin + degree - 1]) - cut;
  }

  // Draw `drawn` of what is left, as a number below the total of the whole row.
  std::int64_t in_whole_row(std::int64_t number) const {
    const auto drawn = static_cast<std::uint64_t>(number);
    const auto passed = std::upper_bound(before_.begin(), before_.end(), drawn) - before_.begin();
    const std::uint64_t skipped = passed == 0 ? 0 : skipped_[static_cast<std::size_t>(passed) - 1];
    return static_cast<std::int64_t>(drawn + skipped);
  }

 private:
  std::vector<std::int64_t> places_;
  std::vector<std::uint64_t> before_;   // the weight left before each of them
  std::vector<std::uint64_t> skipped_;  // the weight cut up to and with each of them
};

// Words drawn, and what is read first of the sums to see which edges they stand for: where those
// would be if all edges of a node had the same weight. Draw j of node i of a block is at
// [j * kBlockNodes + i].
struct Draws {
  std::uint64_t word[Searches::kMost];
  std::int64_t window[Searches::kMost];
};

PENSTOCK_INLINE std::int64_t even_window(std::uint64_t word, std::int64_t begin,
                                         std::int64_t degree, std::int64_t lead) {
  // Of over four billion edges it is just any place.
  const std::uint64_t offset = (word >> 32) * static_cast<std::uint64_t>(degree) >> 32;
  const std::int64_t place = begin + static_cast<std::int64_t>(offset);
  return Searches::window(begin, begin + degree - 1, place, lead);
}

// The first draws of all nodes of a block.
template <Simd kSimd, bool kTrees>
PENSTOCK_INLINE void draw_words_body(NodeBlock& block, std::int64_t count, std::uint64_t hop_key,
                                     std::int64_t lead, Draws& draws) {
  make_keys<kSimd, kTrees>(block, hop_key);
  for (std::int64_t j = 0; j < count; ++j) {
    std::uint64_t* const words = draws.word + j * kBlockNodes;
    std::int64_t* const windows = draws.window + j * kBlockNodes;
    for (std::int64_t i = 0; i < kBlockNodes; ++i) {
      words[i] = draw(one_by_one<kSimd>(block.key[i]), static_cast<std::uint64_t>(j));
      windows[i] = even_window(words[i], block.begin[i], block.degree[i], lead);
    }
  }
}

#if PENSTOCK_X86
template <bool kTrees>
PENSTOCK_AVX2 void draw_words_avx2(NodeBlock& block, std::int64_t count, std::uint64_t hop_key,
                                   std::int64_t lead, Draws& draws) {
  using namespace avx2;
  for (std::int64_t i = 0; i < kBlockNodes; i += kWords) {
    FourWords keys = keys_of_four<kTrees>(block, i, hop_key);
    store(block.key + i, keys);
    const FourWords degrees = load(block.degree + i);
    const FourNumbers begins = load<FourNumbers>(block.begin + i);
    const auto lasts = begins + reinterpret_cast<FourNumbers>(degrees) - 1;
    const FourNumbers ends = lasts - Searches::kWindow;
    for (std::int64_t j = 0; j < count; ++j) {
      const FourWords words = mix(keys);
      const FourNumbers places =
          begins + reinterpret_cast<FourNumbers>(times_low(words >> 32, degrees) >> 32);
      const FourNumbers lines = places - ((places + lead) & (Searches::kWindow - 1));
      const FourNumbers windows = lines < ends ? lines : ends;
      store(draws.word + j * kBlockNodes + i, words);
      store(draws.window + j * kBlockNodes + i, windows > begins ? windows : begins);
      keys += kGamma;
    }
  }
}
#endif

template <bool kTrees>
void draw_words(NodeBlock& block, std::int64_t count, std::uint64_t hop_key, std::int64_t lead,
                Draws& draws) {
  with_simd([&]<Simd kSimd>() PENSTOCK_INLINED {
#if PENSTOCK_X86
    if constexpr (kSimd == Simd::kAvx2) {
      return draw_words_avx2<kTrees>(block, count, hop_key, lead, draws);
    }
#endif
    draw_words_body<kSimd, kTrees>(block, count, hop_key, lead, draws);
  });
}

}  // namespace detail

// With `kTrees`, each tree draws for itself.
template <bool kTrees>
class WeightedChooser {
 public:
  WeightedChooser(const std::int64_t* sums, std::int64_t fanout, bool replace,
                  std::uint64_t hop_key)
      : sums_(sums), fanout_(fanout), replace_(replace), hop_key_(hop_key), searches_(sums) {}

  // Appends the chosen positions of every node of the block, in order.
  void choose(NodeBlock& block, Picks& picks) {
    if (fanout_ == 0) return;
    // Draws are made for whole blocks, also where there are fewer nodes.
    std::fill(block.begin + block.size, block.begin + kBlockNodes, 0);
    std::fill(block.degree + block.size, block.degree + kBlockNodes, 0);
    const std::int64_t step = by_block() ? kBlockNodes : 1;
    for (std::int64_t first = 0; first < block.size; first += step) {
      choose_some(block, first, std::min(first + step, block.size), picks);
    }
  }

  // The same for a row without some of its edges: the draws are from the weight that is left.
  void choose_left(const NodeBlock& block, const RowLeft& row, Picks& picks) {
    if (fanout_ == 0 || row.size() == 0) return;
    left_.assign(row.cut.begin(), row.cut.end());
    const std::uint64_t total = cut_left(row);
    if (total == 0) return;
    const std::size_t cut = left_.size();
    if (takes_all(row.size())) take_weighted(row);
    else if (replace_) draw_left(row, key_of(block, row.i), total);
    else draw_apart(row, key_of(block, row.i), total);
    const auto taken = static_cast<std::int64_t>(left_.size() - cut);
    picks.make_room(taken);
    std::copy(left_.begin() + static_cast<std::ptrdiff_t>(cut), left_.end(),
              picks.at.data() + picks.size);
    std::fill_n(picks.owner.data() + picks.size, taken, block.place[row.i]);
    picks.size += taken;
  }

 private:
  // The weight of the row without what is in `left_`: what was cut, then what was taken.
  std::uint64_t cut_left(const RowLeft& row) {
    const auto count = static_cast<std::int64_t>(left_.size());
    return cut_.cut(sums_, row.begin, row.degree, left_.data(), count);
  }

  void take_weighted(const RowLeft& row) {
    auto next = row.cut.begin();
    std::int64_t before = 0;
    for (std::int64_t at = row.begin; at < row.begin + row.degree; ++at) {
      const bool is_cut = next != row.cut.end() && *next == at;
      if (is_cut) ++next;
      else if (sums_[at] > before) left_.push_back(at);
      before = sums_[at];
    }
  }

  std::int64_t find_left(const RowLeft& row, std::uint64_t word, std::uint64_t total) const {
    const std::int64_t drawn = cut_.in_whole_row(static_cast<std::int64_t>(bounded(word, total)));
    const std::int64_t* const sums = sums_ + row.begin;
    const std::int64_t offset = std::upper_bound(sums, sums + row.degree, drawn) - sums;
    return row.begin + std::min(offset, row.degree - 1);
  }

  void draw_left(const RowLeft& row, std::uint64_t key, std::uint64_t total) {
    for (std::int64_t j = 0; j < fanout_; ++j) {
      left_.push_back(find_left(row, draw(key, static_cast<std::uint64_t>(j)), total));
    }
  }

  // Rounds as of a whole row (see `is_done`), which begin with the excluded edges cut out.
  void draw_apart(const RowLeft& row, std::uint64_t key, std::uint64_t total) {
    const std::size_t cut = left_.size(), wanted = cut + static_cast<std::size_t>(fanout_);
    chosen_.clear(fanout_ + static_cast<std::int64_t>(cut));
    for (const std::int64_t at : left_) chosen_.insert(at);
    std::uint64_t next = 0;
    while (total > 0) {
      const std::size_t before = left_.size();
      std::uint64_t words = words_of_a_round(static_cast<std::int64_t>(wanted - before));
      for (; words > 0 && left_.size() < wanted; --words) {
        const std::int64_t at = find_left(row, draw(key, next++), total);
        if (chosen_.insert(at)) left_.push_back(at);
      }
      if (left_.size() == wanted) return;
      total = left_.size() == before ? 0 : cut_left(row);
    }
    std::sort(left_.begin() + static_cast<std::ptrdiff_t>(cut), left_.end());
  }

  // A node that is drawn for.
  struct Row {
    std::int64_t begin;
    std::int64_t degree;
    std::uint64_t key;
    std::uint64_t total;  // the weight that is drawn from
    double slope;         // edges per weight
    std::uint64_t next_draw;
    std::uint64_t words_left;  // in this round
    std::int64_t wave;         // how many of the searches are for it
    std::int64_t taken;
    std::int64_t taken_before;  // this round: those are cut out
  };

  static constexpr std::int64_t kLine = 8;     // sums in a cache line
  static constexpr std::int64_t kAtOnce = 64;  // sums sent for; the machine sees what follows

  // Larger fan-outs are drawn for node by node. Those without limit draw nothing.
  bool by_block() const { return fanout_ <= kBlockTake; }

  bool takes_all(std::int64_t degree) const {
    return fanout_ < 0 || (!replace_ && degree <= fanout_);
  }

  void choose_some(NodeBlock& block, std::int64_t first, std::int64_t end, Picks& picks) {
    drawing_.clear();
    for (std::int64_t i = first; i < end; ++i) {
      if (takes_all(block.degree[i])) send_for(block.begin[i], block.degree[i]);
      else open(block, i, static_cast<std::size_t>(i - first));
    }
    if (!drawing_.empty()) begin_drawing(block);
    while (!drawing_.empty()) draw_wave();
    for (std::int64_t i = first; i < end; ++i) {
      if (takes_all(block.degree[i])) take_all(block, i, picks);
      else take_drawn(static_cast<std::size_t>(i - first), block.place[i], picks);
    }
  }

  void send_for(std::int64_t begin, std::int64_t degree) const {
    const std::int64_t end = begin + std::min(degree, kAtOnce);
    for (std::int64_t at = begin; at < end; at += kLine) prefetch_once(sums_ + at);
    if (degree > 0) prefetch_once(sums_ + end - 1);
  }

  void open(const NodeBlock& block, std::int64_t i, std::size_t number) {
    if (rows_.empty()) make_rows();
    Row& row = rows_[number];
    row = {};
    if (block.degree[i] == 0) return;
    row.begin = block.begin[i];
    row.degree = block.degree[i];
    row.words_left = words_of_a_round(fanout_);
    if (!by_block()) row.key = key_of(block, i);
    drawing_.push_back(number);
  }

  void make_rows() {
    const std::size_t count = by_block() ? kBlockNodes : 1;
    if (static_cast<std::size_t>(fanout_) > drawn_.max_size()) throw std::bad_alloc();
    rows_.resize(count);
    cuts_.resize(count);
    drawn_.resize(count * static_cast<std::size_t>(fanout_));
    draws_ = std::make_unique_for_overwrite<detail::Draws>();
  }

  std::uint64_t key_of(const NodeBlock& block, std::int64_t i) const {
    const std::uint64_t tree = kTrees ? block.tree[i] : 0;
    return node_key(hop_key_, static_cast<std::uint64_t>(block.node[i]), tree);
  }

  static std::uint64_t words_of_a_round(std::int64_t missing) {
    return 2 * static_cast<std::uint64_t>(missing) + 8;
  }

  std::int64_t* drawn(std::size_t number) {
    return drawn_.data() + number * static_cast<std::size_t>(fanout_);
  }

  // The first draws of all nodes, and how much weight each has.
  void begin_drawing(NodeBlock& block) {
    for (const std::size_t number : drawing_) set_wave(rows_[number]);
    if (by_block()) {
      detail::draw_words<kTrees>(block, fanout_, hop_key_, searches_.lead(), *draws_);
      for (const std::size_t number : drawing_) rows_[number].key = block.key[number];
    } else {
      if (!replace_) chosen_.clear(fanout_);
      draw_words(0);
    }
    send_for_draws();
    for (const std::size_t number : drawing_) weigh(rows_[number]);
  }

  // Never more than are missing: the same words are drawn as would be one by one.
  void set_wave(Row& row) const {
    row.wave = std::min(fanout_ - row.taken, Searches::kMost);
    if (!replace_ && static_cast<std::uint64_t>(row.wave) > row.words_left) {
      row.wave = static_cast<std::int64_t>(row.words_left);
    }
  }

  // Where draw j of a node is, among `draws_`.
  std::size_t place(std::size_t number, std::int64_t j) const {
    return static_cast<std::size_t>(by_block() ? j * kBlockNodes : j) + number;
  }

  void draw_words(std::size_t number) {
    const Row& row = rows_[number];
    for (std::int64_t j = 0; j < row.wave; ++j) {
      const std::uint64_t word = draw(row.key, row.next_draw + static_cast<std::uint64_t>(j));
      const std::size_t at = place(number, j);
      draws_->word[at] = word;
      draws_->window[at] = detail::even_window(word, row.begin, row.degree, searches_.lead());
    }
  }

  void send_for_draws() const {
    for (const std::size_t number : drawing_) {
      const std::int64_t wave = rows_[number].wave;
      for (std::int64_t j = 0; j < wave; ++j) searches_.send_for(draws_->window[place(number, j)]);
    }
  }

  void weigh(Row& row) const {
    const std::int64_t total = std::max<std::int64_t>(sums_[row.begin + row.degree - 1], 0);
    row.total = static_cast<std::uint64_t>(total);
    row.slope = static_cast<double>(row.degree) / (static_cast<double>(total) + 1);
  }

  // Finds what was drawn. Nodes that lack some draw again.
  void draw_wave() {
    look_all();
    searches_.finish();
    std::size_t kept = 0;
    for (const std::size_t number : drawing_) {
      if (rows_[number].total == 0) continue;
      accept(rows_[number], drawn(number));
      if (is_done(number)) continue;
      set_wave(rows_[number]);
      draw_words(number);
      drawing_[kept++] = number;
    }
    drawing_.resize(kept);
    send_for_draws();
  }

  void look_all() {
    with_simd([&]<Simd kSimd>() PENSTOCK_INLINED {
      for (const std::size_t number : drawing_) look<kSimd>(number);
    });
  }

  template <Simd kSimd>
  PENSTOCK_INLINE void look(std::size_t number) {
    const Row row = rows_[number];
    const std::int64_t last = row.begin + row.degree - 1;
    std::int64_t* const at = drawn(number) + row.taken;
    for (std::int64_t j = 0; j < row.wave; ++j) {
      const std::size_t drew = place(number, j);
      auto bound = static_cast<std::int64_t>(bounded(draws_->word[drew], row.total));
      if (row.taken_before > 0) bound = cuts_[number].in_whole_row(bound);
      searches_.template look<kSimd>(row.begin, last, draws_->window[drew], bound, row.slope,
                                     at + j);
    }
    rows_[number].next_draw += static_cast<std::uint64_t>(row.wave);
    rows_[number].words_left -= static_cast<std::uint64_t>(row.wave);
  }

  // Without replacement, leaves of what was found only what was not there yet.
  void accept(Row& row, std::int64_t* at) {
    std::int64_t taken = row.taken;
    const std::int64_t end = taken + row.wave;
    if (replace_) taken = end;
    for (std::int64_t j = taken; j < end; ++j) {
      const std::int64_t found = at[j];
      bool is_new = true;
      if (!by_block()) {
        is_new = chosen_.insert(found);
      } else {
        for (std::int64_t i = 0; i < taken; ++i) is_new &= at[i] != found;
      }
      at[taken] = found;  // written whether it is new or not, and only the count tells
      taken += is_new;
    }
    row.taken = taken;
  }

  // A round draws from what was not taken before it, and discards what was taken during it; it ends
  // when half of its words or more were discarded. What is left then has, most likely, less than
  // half of the weight there was: rounds are few.
  bool is_done(std::size_t number) {
    Row& row = rows_[number];
    if (row.taken == fanout_) return true;
    if (replace_ || row.words_left > 0) return false;
    std::int64_t* const at = drawn(number);
    // The first draw of a round is new, unless the sums are none.
    const bool stuck = row.taken == row.taken_before;
    row.taken_before = row.taken;
    row.total = cuts_[number].cut(sums_, row.begin, row.degree, at, row.taken);
    row.words_left = words_of_a_round(fanout_ - row.taken);
    if (row.total > 0 && !stuck) return false;
    std::sort(at, at + row.taken);  // all there are: in storage order
    return true;
  }

  void take_all(const NodeBlock& block, std::int64_t i, Picks& picks) const {
    const std::int64_t begin = block.begin[i], degree = block.degree[i];
    picks.make_room(degree);
    std::int64_t* const at = picks.at.data() + picks.size;
    std::int64_t taken = 0, before = 0;
    for (std::int64_t place = begin; place < begin + degree; ++place) {
      at[taken] = place;  // written whether it has weight or not
      taken += sums_[place] > before;
      before = sums_[place];
    }
    std::fill_n(picks.owner.data() + picks.size, taken, block.place[i]);
    picks.size += taken;
  }

  void take_drawn(std::size_t number, std::int64_t place, Picks& picks) {
    const std::int64_t taken = rows_[number].taken;
    picks.make_room(taken);
    std::copy_n(drawn(number), taken, picks.at.data() + picks.size);
    std::fill_n(picks.owner.data() + picks.size, taken, place);
    picks.size += taken;
  }

  const std::int64_t* sums_;
  std::int64_t fanout_;
  bool replace_;
  std::uint64_t hop_key_;
  Searches searches_;
  std::unique_ptr<detail::Draws> draws_;
  // By place in the block, or, for fan-outs over kBlockTake, of one node at a time:
  std::vector<Row> rows_;
  std::vector<detail::CutRow> cuts_;
  std::vector<std::int64_t> drawn_;   // a stretch of `fanout_` for each
  std::vector<std::size_t> drawing_;  // those that lack some
  OffsetSet chosen_;                  // for fan-outs over kBlockTake
  std::vector<std::int64_t> left_;    // of a row that lost edges: these, then what is taken
  detail::CutRow cut_;                // that row
};

}  // namespace penstock
