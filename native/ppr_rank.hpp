// Which of the nodes that a push has reached are taken, and what is said of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "ppr_nodes.hpp"
#include "ppr_spec.hpp"

namespace penstock {

// A node and how much it matters to a seed. `found` tells nodes of equal scores apart: the one
// reached first comes first.
struct Ranked {
  std::int64_t node;
  double score;
  std::int64_t found;
  std::int32_t hop;
};

// Nodes found one after the other that have the same score, but for those with one of the marks.
struct Run {
  double score;
  std::uint32_t begin;
  std::uint32_t end;
  std::uint16_t but = 0;
};

inline bool ranks_before(const Run& a, const Run& b) {
  return a.score != b.score ? a.score > b.score : a.begin < b.begin;
}

// The best nodes of a finished push, best first, by node type.
class Ranking {
 public:
  template <class Id>
  void rank(const PushSpec& spec, const PushNodes<Id>& nodes, std::vector<std::vector<Ranked>>& lists) {
    lists.resize(spec.num_nodes.size());
    for (std::size_t type = 0; type < lists.size(); ++type) {
      const auto most = static_cast<std::size_t>(spec.max_nodes);
      take_scored(nodes, type, most);
      rest_.clear();
      if (spec.has_topup) {
        for (Run& each : scored_) each.score += nodes.reached(each.begin).residual;
        std::sort(scored_.begin(), scored_.end(), ranks_before);
        if (scored_.size() < most) take_rest(nodes, type, most - scored_.size());
      }
      lists[type].clear();
      tell(spec.first[type], nodes, lists[type]);
    }
  }

 private:
  // The best of those that have a score, best first.
  template <class Id>
  void take_scored(const PushNodes<Id>& nodes, std::size_t type, std::size_t most) {
    scored_.clear();
    for (const std::uint32_t local : nodes.scored()) {
      if (nodes.reached(local).type != type) continue;
      scored_.push_back({nodes.score(local), local, local + 1});
    }
    if (scored_.size() > most) {
      std::nth_element(scored_.begin(), scored_.begin() + static_cast<std::ptrdiff_t>(most),
                       scored_.end(), ranks_before);
      scored_.resize(most);
    }
    std::sort(scored_.begin(), scored_.end(), ranks_before);
  }

  // The best of those that have a residual only. Most have still that with which they were found
  // along a row: so rows are ranked, and one by one only those that have not.
  template <class Id>
  void take_rest(const PushNodes<Id>& nodes, std::size_t type, std::size_t room) {
    constexpr std::uint16_t kElsewhere = kScored | kChanged;
    runs_.clear();
    for (const Found& each : nodes.found()) {
      if (each.type != type || each.residual == 0.0) continue;
      runs_.push_back({each.residual, each.begin, each.end, kElsewhere});
    }
    std::sort(runs_.begin(), runs_.end(), ranks_before);
    const double bar = keep_enough(room + nodes.changed().size() + nodes.scored().size());
    for (const std::uint32_t local : nodes.changed()) {
      const Reached& node = nodes.reached(local);
      if (node.residual < bar || node.type != type || (node.marks & kScored) != 0) continue;
      runs_.push_back({node.residual, local, local + 1});
    }
    std::sort(runs_.begin(), runs_.end(), ranks_before);
    pick(nodes, room);
  }

  // Drops the runs after the first so many nodes. Returns the score of the last run that is left.
  double keep_enough(std::size_t nodes) {
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const std::size_t count = runs_[i].end - runs_[i].begin;
      if (count >= nodes) {
        runs_.resize(i + 1);
        return runs_[i].score;
      }
      nodes -= count;
    }
    return 0.0;
  }

  template <class Id>
  void pick(const PushNodes<Id>& nodes, std::size_t room) {
    for (const Run& run : runs_) {
      for (std::uint32_t local = run.begin; local < run.end; ++local) {
        if ((nodes.reached(local).marks & run.but) != 0) continue;
        if (rest_.size() == room) return;
        rest_.push_back({run.score, local, local + 1});
      }
    }
  }

  // Both lists are in order.
  template <class Id>
  void tell(std::int64_t first, const PushNodes<Id>& nodes, std::vector<Ranked>& list) {
    merged_.resize(scored_.size() + rest_.size());
    std::merge(scored_.begin(), scored_.end(), rest_.begin(), rest_.end(), merged_.begin(),
               ranks_before);
    for (const Run& each : merged_) {
      const std::uint32_t local = each.begin;
      list.push_back({nodes.id(local) - first, each.score, local, nodes.reached(local).hop});
    }
  }

  std::vector<Run> scored_, runs_, rest_, merged_;
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
