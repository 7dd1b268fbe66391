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
#include <new>
#include <vector>

#include "choose.hpp"
#include "prefetch.hpp"
#include "rng.hpp"
#include "searches.hpp"

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

}  // namespace detail

class WeightedChooser {
 public:
  WeightedChooser(const std::int64_t* sums, std::int64_t fanout, bool replace,
                  std::uint64_t hop_key)
      : sums_(sums), fanout_(fanout), replace_(replace), hop_key_(hop_key), searches_(sums) {}

  // Appends the chosen positions of every node of the block, in order.
  void choose(NodeBlock& block, Picks& picks) {
    if (fanout_ == 0) return;
    for (std::int64_t i = 0; i < block.size; ++i) send_for(block.begin[i], block.degree[i]);
    const std::int64_t step = fanout_ <= kBlockTake ? kBlockNodes : 1;
    for (std::int64_t first = 0; first < block.size; first += step) {
      choose_some(block, first, std::min(first + step, block.size), picks);
    }
  }

 private:
  // A node that is drawn for.
  struct Row {
    std::int64_t begin;
    std::int64_t degree;
    std::uint64_t total;  // the weight that is drawn from
    std::uint64_t key;
    std::uint64_t next_draw;
    std::uint64_t words_left;  // in this round
    std::int64_t wave;         // how many of the searches are for it
    std::int64_t taken;
    std::int64_t taken_before;  // this round: those are cut out
  };

  static constexpr std::int64_t kLine = 8;        // sums in a cache line
  static constexpr std::int64_t kReadWhole = 64;  // rows up to this are fetched at once

  // Sends for a row, or for its total, with which a draw begins.
  void send_for(std::int64_t begin, std::int64_t degree) const {
    if (degree == 0) return;
    const std::int64_t last = begin + degree - 1;
    if (degree <= kReadWhole) {
      for (std::int64_t at = begin; at < last; at += kLine) prefetch_once(sums_ + at);
    }
    prefetch_once(sums_ + last);
  }

  bool takes_all(std::int64_t degree) const {
    return fanout_ < 0 || (!replace_ && degree <= fanout_);
  }

  void choose_some(const NodeBlock& block, std::int64_t first, std::int64_t end, Picks& picks) {
    drawing_.clear();
    for (std::int64_t i = first; i < end; ++i) {
      if (takes_all(block.degree[i])) continue;
      if (rows_.empty()) make_rows();
      const auto number = static_cast<std::size_t>(i - first);
      rows_[number] = open(block, i);
      if (rows_[number].total > 0) drawing_.push_back(number);
    }
    while (!drawing_.empty()) draw_wave();
    for (std::int64_t i = first; i < end; ++i) {
      if (takes_all(block.degree[i])) take_all(block, i, picks);
      else take_drawn(static_cast<std::size_t>(i - first), block.place[i], picks);
    }
  }

  void make_rows() {
    const std::size_t count = fanout_ <= kBlockTake ? kBlockNodes : 1;
    if (static_cast<std::size_t>(fanout_) > drawn_.max_size()) throw std::bad_alloc();
    rows_.resize(count);
    cuts_.resize(count);
    drawn_.resize(count * static_cast<std::size_t>(fanout_));
  }

  Row open(const NodeBlock& block, std::int64_t i) {
    const std::int64_t begin = block.begin[i], degree = block.degree[i];
    const std::int64_t total = degree > 0 ? sums_[begin + degree - 1] : 0;
    if (total <= 0) return {};
    if (fanout_ > kBlockTake && !replace_) chosen_.clear(fanout_);
    const auto node = static_cast<std::uint64_t>(block.node[i]);
    return {begin, degree, static_cast<std::uint64_t>(total),
            node_key(hop_key_, node, block.tree[i]), 0, words_of_a_round(fanout_), 0, 0, 0};
  }

  static std::uint64_t words_of_a_round(std::int64_t missing) {
    return 2 * static_cast<std::uint64_t>(missing) + 8;
  }

  std::int64_t* drawn(std::size_t number) {
    return drawn_.data() + number * static_cast<std::size_t>(fanout_);
  }

  // Draws for every node that lacks some; those that then have all are done.
  void draw_wave() {
    searches_.clear();
    for (const std::size_t number : drawing_) add_draws(rows_[number], cuts_[number]);
    searches_.run();
    const std::int64_t* found = searches_.found();
    std::size_t kept = 0;
    for (const std::size_t number : drawing_) {
      accept(rows_[number], found, drawn(number));
      found += rows_[number].wave;
      drawing_[kept] = number;
      kept += !is_done(number);
    }
    drawing_.resize(kept);
  }

  // Never more than are missing: the same words are drawn as would be one by one.
  void add_draws(Row& row, const detail::CutRow& cut) {
    row.wave = std::min(fanout_ - row.taken, Searches::kMost);
    if (!replace_ && static_cast<std::uint64_t>(row.wave) > row.words_left) {
      row.wave = static_cast<std::int64_t>(row.words_left);
    }
    std::int64_t* const bound = searches_.add(row.begin, row.degree, row.wave);
    for (std::int64_t j = 0; j < row.wave; ++j) {
      const std::uint64_t word = draw(row.key, row.next_draw + static_cast<std::uint64_t>(j));
      bound[j] = static_cast<std::int64_t>(bounded(word, row.total));
    }
    if (row.taken_before > 0) {
      for (std::int64_t j = 0; j < row.wave; ++j) bound[j] = cut.in_whole_row(bound[j]);
    }
    row.next_draw += static_cast<std::uint64_t>(row.wave);
    row.words_left -= static_cast<std::uint64_t>(row.wave);
  }

  // Appends to `at` what was found; without replacement only what is not in it yet.
  void accept(Row& row, const std::int64_t* found, std::int64_t* at) {
    if (replace_) {
      std::copy_n(found, row.wave, at + row.taken);
      row.taken += row.wave;
      return;
    }
    std::int64_t taken = row.taken;
    for (std::int64_t j = 0; j < row.wave; ++j) {
      bool is_new = true;
      if (fanout_ > kBlockTake) {
        is_new = chosen_.insert(found[j]);
      } else {
        for (std::int64_t i = 0; i < taken; ++i) is_new &= at[i] != found[j];
      }
      at[taken] = found[j];  // written whether it is new or not, and only the count tells
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
  // By place in the block, or, for fan-outs over kBlockTake, of one node at a time:
  std::vector<Row> rows_;
  std::vector<detail::CutRow> cuts_;
  std::vector<std::int64_t> drawn_;   // a stretch of `fanout_` for each
  std::vector<std::size_t> drawing_;  // those that lack some
  OffsetSet chosen_;                  // for fan-outs over kBlockTake
};

}  // namespace penstock
