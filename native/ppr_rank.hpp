// Which of the nodes that a push has reached are taken, and what is said of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ppr.hpp"

namespace penstock {

// A node and how much it matters to a seed. `found` tells nodes of equal scores apart: the one
// reached first comes first.
struct Ranked {
  std::int64_t node;
  double score;
  std::int64_t found;
  std::int32_t hop;
};

inline bool ranks_before(const Ranked& a, const Ranked& b) {
  return a.score != b.score ? a.score > b.score : a.found < b.found;
}

// The best `most` come to the front, in no order.
inline void keep_best(std::vector<Ranked>& list, std::int64_t most) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(most, 0));
  if (list.size() <= count) return;
  std::nth_element(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count), list.end(),
                   ranks_before);
  list.resize(count);
}

// The best nodes of a finished push, best first, by node type.
class Ranking {
 public:
  template <class Id>
  void rank(const PushSpec& spec, const Push<Id>& push, std::vector<std::vector<Ranked>>& lists) {
    lists.resize(spec.num_nodes.size());
    for (auto& list : lists) list.clear();
    for (const std::int64_t local : push.scored()) {
      lists[push.reached(local).type].push_back(ranked(spec, push, local));
    }
    for (auto& list : lists) keep_best(list, spec.max_nodes);
    if (spec.has_topup) top_up(spec, push, lists);
    for (auto& list : lists) std::sort(list.begin(), list.end(), ranks_before);
  }

 private:
  template <class Id>
  static Ranked ranked(const PushSpec& spec, const Push<Id>& push, std::int64_t local) {
    const Reached& node = push.reached(local);
    return {push.id(local) - spec.first[node.type], node.score, local, node.hop};
  }

  // Scores with the residuals that were left; where fewer than asked for have a score, those come
  // too that have a residual only. None of them takes the place of one with a score.
  template <class Id>
  void top_up(const PushSpec& spec, const Push<Id>& push, std::vector<std::vector<Ranked>>& lists) {
    const auto most = static_cast<std::size_t>(spec.max_nodes);
    bool is_short = false;
    more_.resize(lists.size());
    for (std::size_t type = 0; type < lists.size(); ++type) {
      more_[type].clear();
      is_short |= lists[type].size() < most;
      for (Ranked& each : lists[type]) each.score += push.reached(each.found).residual;
    }
    if (!is_short) return;
    for (std::int64_t local = 0; local < push.size(); ++local) {
      const Reached& node = push.reached(local);
      if (node.score != 0.0 || node.residual == 0.0 || lists[node.type].size() >= most) continue;
      more_[node.type].push_back(ranked(spec, push, local));
      more_[node.type].back().score = node.residual;
    }
    for (std::size_t type = 0; type < lists.size(); ++type) {
      keep_best(more_[type], spec.max_nodes - static_cast<std::int64_t>(lists[type].size()));
      lists[type].insert(lists[type].end(), more_[type].begin(), more_[type].end());
    }
  }

  std::vector<std::vector<Ranked>> more_;
};

// The lists of all channels made one. A node belongs to the channel that rates it highest (the
// first of several); each channel has its share of the places, best first; what places are left go
// to the best of the rest.
class Mix {
 public:
  static constexpr std::size_t kColumns = 2;         // the best score, the least hop
  static constexpr std::size_t kChannelColumns = 3;  // score, hop, whether there at all

  // `lists[c]` is what channel c says of one node type. The nodes are appended to `nodes`, and a
  // row for each to `attributes`.
  void mix(const PushSpec& spec, const std::vector<const std::vector<Ranked>*>& lists,
           std::vector<std::int64_t>& nodes, std::vector<float>& attributes) {
    gather(lists);
    attribute();
    choose(spec);
    for (const Candidate& each : candidates_) {
      if (!each.is_chosen) continue;
      nodes.push_back(each.best.node);
      describe(each, lists.size(), attributes);
    }
  }

  static float closeness(std::int32_t hop) {
    return static_cast<float>(1.0 / (1.0 + static_cast<double>(hop)));
  }

 private:
  struct Entry {
    Ranked ranked;
    std::size_t channel;
  };
  struct Candidate {
    Ranked best;
    std::size_t channel;
    std::size_t begin;  // its entries
    std::size_t end;
    bool is_chosen;
  };

  // All entries, those of one node side by side, the best of them first.
  void gather(const std::vector<const std::vector<Ranked>*>& lists) {
    entries_.clear();
    for (std::size_t channel = 0; channel < lists.size(); ++channel) {
      for (const Ranked& each : *lists[channel]) entries_.push_back({each, channel});
    }
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      if (a.ranked.node != b.ranked.node) return a.ranked.node < b.ranked.node;
      if (a.ranked.score != b.ranked.score) return a.ranked.score > b.ranked.score;
      return a.channel < b.channel;
    });
  }

  void attribute() {
    candidates_.clear();
    for (std::size_t at = 0; at < entries_.size();) {
      std::size_t end = at + 1;
      while (end < entries_.size() && entries_[end].ranked.node == entries_[at].ranked.node) ++end;
      candidates_.push_back({entries_[at].ranked, entries_[at].channel, at, end, false});
      at = end;
    }
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
      if (a.best.score != b.best.score) return a.best.score > b.best.score;
      if (a.channel != b.channel) return a.channel < b.channel;
      return a.best.found < b.best.found;
    });
  }

  void choose(const PushSpec& spec) {
    std::int64_t left = spec.max_nodes;
    room_.clear();
    for (const PushChannel& channel : spec.channels) room_.push_back(channel.share);
    for (Candidate& each : candidates_) {
      if (left == 0 || room_[each.channel] == 0) continue;
      each.is_chosen = true;
      --room_[each.channel];
      --left;
    }
    for (Candidate& each : candidates_) {
      if (left == 0) return;
      if (each.is_chosen) continue;
      each.is_chosen = true;
      --left;
    }
  }

  void describe(const Candidate& each, std::size_t channels, std::vector<float>& attributes) const {
    const std::size_t at = attributes.size();
    attributes.resize(at + kColumns + kChannelColumns * channels, 0.0F);
    float* const row = attributes.data() + at;
    std::int32_t hop = each.best.hop;
    for (std::size_t i = each.begin; i < each.end; ++i) {
      const Entry& entry = entries_[i];
      float* const columns = row + kColumns + kChannelColumns * entry.channel;
      columns[0] = static_cast<float>(entry.ranked.score);
      columns[1] = closeness(entry.ranked.hop);
      columns[2] = 1.0F;
      hop = std::min(hop, entry.ranked.hop);
    }
    row[0] = static_cast<float>(each.best.score);
    row[1] = closeness(hop);
  }

  std::vector<Entry> entries_;
  std::vector<Candidate> candidates_;
  std::vector<std::int64_t> room_;
};

}  // namespace penstock
