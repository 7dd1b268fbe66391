// The batches of forward push: what matters to each seed, named by places, and the edges looked at.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "build.hpp"
#include "ppr.hpp"
#include "ppr_rank.hpp"
#include "relabel.hpp"

namespace penstock {

// From the seeds to the nodes of one type.
struct PushLinks {
  std::vector<std::int64_t> seeds;  // by place among the seeds
  std::vector<std::int64_t> nodes;  // by place among the nodes of the type
  std::vector<float> attributes;    // a row for each
};

struct PushEdges {
  std::vector<std::int64_t> rows, cols, edge_ids;
};

// The nodes whose rows were looked at, and in which channels.
class OpenedRows {
 public:
  void clear(std::size_t channels) {
    list_.clear();
    marks_.clear();
    channels_ = channels;
  }

  void add(std::int64_t id, std::size_t channel) {
    std::int64_t place = 0;
    list_.relabel({&id, 1, 1}, &place);
    marks_.resize(static_cast<std::size_t>(list_.size()) * channels_, 0);
    marks_[static_cast<std::size_t>(place) * channels_ + channel] = 1;
  }

  // One mark per channel, or null.
  const std::uint8_t* marks(std::int64_t id) const {
    const std::int64_t place = list_.find(id);
    return place < 0 ? nullptr : &marks_[static_cast<std::size_t>(place) * channels_];
  }

 private:
  PlaceList list_;
  std::vector<std::uint8_t> marks_;
  std::size_t channels_ = 1;
};

class PushBatch {
 public:
  explicit PushBatch(PushSpec spec) : spec_(std::move(spec)), lists_(spec_.num_nodes.size()) {
    std::int64_t total = 0;
    for (const std::int64_t count : spec_.num_nodes) total += count;
    if (total <= std::numeric_limits<std::int32_t>::max()) push_.emplace<Push<std::int32_t>>();
    else push_.emplace<Push<std::int64_t>>();
  }

  const PushSpec& spec() const { return spec_; }

  // Reads these rows of a relation from now on, of the same nodes.
  void use(std::size_t relation, const AnyAdjacency& adjacency, std::int64_t num_edges) {
    PushRelation& rows = spec_.relations[relation];
    rows.adjacency = adjacency;
    rows.offsets = offsets_of(adjacency);
    rows.num_edges = num_edges;
  }

  const PlaceList& nodes(std::size_t type) const { return lists_[type]; }
  const PushLinks& links(std::size_t type) const { return links_[type]; }
  const PushEdges& edges(std::size_t relation) const { return edges_[relation]; }

  std::int64_t pushes() const {
    return std::visit([](const auto& push) { return push.pushes(); }, push_);
  }

  std::size_t width() const {
    return Mix::kColumns + (spec_.is_typed ? Mix::kChannelColumns * spec_.channels.size() : 0);
  }

  // `excluded`, by relation, is what is not to be pushed along; null: nothing.
  Outcome run(std::uint64_t batch_key, std::int64_t seed_type,
              const std::vector<std::int64_t>& seeds, std::vector<Exclusion>* excluded = nullptr) {
    clear(batch_key);
    spec_.excluded = excluded;
    const auto type = static_cast<std::size_t>(seed_type);
    const Strided<std::int64_t> span{seeds.data(), static_cast<std::int64_t>(seeds.size()), 1};
    if (first_outside(span, spec_.num_nodes[type]) >= 0) return Outcome::kDamaged;
    lists_[type].add_seeds(span);
    const bool is_sound =
        std::visit([&](auto& push) { return push_all(push, type, span); }, push_);
    if (!is_sound) return Outcome::kDamaged;
    return spec_.with_edges ? collect_edges() : Outcome::kDone;
  }

  // What pushes from these seeds give away in the first channel, in order.
  Outcome record(std::uint64_t batch_key, std::int64_t seed_type,
                 const std::vector<std::int64_t>& seeds, PushRecord& record) {
    clear(batch_key);
    spec_.excluded = nullptr;
    const PushStart start = start_in(0, static_cast<std::size_t>(seed_type));
    const auto nobody = [](std::int64_t) {};
    for (const std::int64_t seed : seeds) {
      if (seed < 0 || seed >= spec_.num_nodes[start.type]) return Outcome::kDamaged;
      const bool is_sound = std::visit(
          [&](auto& push) { return push.run(start, seed, nobody, &record); }, push_);
      if (!is_sound) return Outcome::kDamaged;
    }
    return Outcome::kDone;
  }

 private:
  void clear(std::uint64_t batch_key) {
    // Not before somebody samples: sizes may have to be summed, and who only asks how much room a
    // batch takes needs none.
    if (!thresholds_) thresholds_.emplace(spec_);
    samplers_.clear();
    for (const PushRelation& relation : spec_.relations) {
      samplers_.emplace_back(spec_.max_neighbors, batch_key, relation.name_hash);
    }
    for (PlaceList& list : lists_) list.clear();
    links_.assign(spec_.num_nodes.size(), {});
    edges_.assign(spec_.relations.size(), {});
    ranked_.resize(spec_.channels.size());
    opened_.clear(spec_.channels.size());
  }

  PushStart start_in(std::size_t channel, std::size_t type) {
    return {spec_, *thresholds_, spec_.channels[channel], samplers_, type};
  }

  template <class AnyPush>
  bool push_all(AnyPush& push, std::size_t type, Strided<std::int64_t> seeds) {
    for (std::int64_t place = 0; place < seeds.size; ++place) {
      send_ahead(type, seeds, place);
      for (std::size_t c = 0; c < spec_.channels.size(); ++c) {
        const auto opened = [&](std::int64_t id) {
          if (spec_.with_edges) opened_.add(id, c);
        };
        if (!push.run(start_in(c, type), seeds[place], opened)) return false;
        ranking_.rank(spec_, push.nodes(), ranked_[c]);
      }
      for (std::size_t found = 0; found < lists_.size(); ++found) link(found, place);
    }
    return true;
  }

  // Seeds are anywhere: what the next ones begin with is sent for, offsets first, then rows.
  void send_ahead(std::size_t type, Strided<std::int64_t> seeds, std::int64_t place) const {
    if (place + 2 < seeds.size) {
      send_for_offsets(spec_, type, seeds[place + 2]);
      prefetch_once(thresholds_->sizes(type).at(seeds[place + 2]));
    }
    if (place + 1 >= seeds.size) return;
    for (const std::size_t r : spec_.leaving[type]) {
      const RowRange row = row_of(spec_.relations[r], seeds[place + 1]);
      if (row.is_sound) send_for_row(spec_.relations[r], row.begin, row.degree);
    }
  }

  void link(std::size_t type, std::int64_t place) {
    PushLinks& links = links_[type];
    found_.clear();
    if (spec_.is_typed) {
      by_channel_.clear();
      for (const auto& lists : ranked_) by_channel_.push_back(&lists[type]);
      mix_.mix(spec_, by_channel_, found_, links.attributes);
    } else {
      for (const Ranked& each : ranked_[0][type]) {
        found_.push_back(each.node);
        links.attributes.push_back(static_cast<float>(each.score));
        links.attributes.push_back(Mix::closeness(each.hop));
      }
    }
    const std::size_t before = links.nodes.size();
    links.seeds.resize(before + found_.size(), place);
    links.nodes.resize(before + found_.size());
    lists_[type].relabel({found_.data(), static_cast<std::int64_t>(found_.size()), 1},
                         links.nodes.data() + before);
  }

  // The edges looked at whose both ends are in the batch, by the place of the node they were seen
  // from, each once.
  Outcome collect_edges() {
    for (std::size_t r = 0; r < spec_.relations.size(); ++r) {
      const auto expands = static_cast<std::size_t>(spec_.relations[r].expands);
      const PlaceList& list = lists_[expands];
      for (std::int64_t place = 0; place < list.size(); ++place) {
        const std::int64_t node = list.data()[place];
        if (list.find(node) != place || !is_open(r, expands, node)) continue;
        if (!collect_row(r, node, place)) return Outcome::kDamaged;
      }
    }
    return Outcome::kDone;
  }

  bool is_open(std::size_t relation, std::size_t type, std::int64_t node) const {
    const std::uint8_t* const marks = opened_.marks(spec_.first[type] + node);
    if (marks == nullptr) return false;
    for (std::size_t c = 0; c < spec_.channels.size(); ++c) {
      const std::vector<std::size_t>& leaving = spec_.channels[c].leaving[type];
      if (marks[c] != 0 && std::find(leaving.begin(), leaving.end(), relation) != leaving.end()) {
        return true;
      }
    }
    return false;
  }

  bool collect_row(std::size_t r, std::int64_t node, std::int64_t place) {
    const PushRelation& relation = spec_.relations[r];
    const RowRange row = row_of(relation, node);
    if (!row.is_sound) return false;
    const std::optional<RowLeft> left = left_of(spec_, r, node, row);
    const std::int64_t degree = left ? left->size() : row.degree;
    const bool is_whole = degree <= spec_.max_neighbors;
    const Picks* picks = is_whole ? nullptr
                         : left   ? &samplers_[r].choose(node, *left)
                                  : &samplers_[r].choose(node, row.begin, row.degree);
    const std::int64_t count = is_whole ? degree : picks->size;
    const auto finds = static_cast<std::size_t>(relation.finds);
    return std::visit(
        [&](const auto& view) {
          for (std::int64_t k = 0; k < count; ++k) {
            const std::int64_t at = !is_whole ? picks->at[static_cast<std::size_t>(k)]
                                    : left    ? left->position(k)
                                              : row.begin + k;
            const std::int64_t neighbor = view.neighbor(at);
            if (neighbor < 0 || neighbor >= spec_.num_nodes[finds]) return false;
            const std::int64_t found = lists_[finds].find(neighbor);
            if (found < 0) continue;
            edges_[r].rows.push_back(found);
            edges_[r].cols.push_back(place);
            edges_[r].edge_ids.push_back(view.edge_id(at));
          }
          return true;
        },
        relation.adjacency);
  }

  PushSpec spec_;
  std::optional<Thresholds> thresholds_;
  std::variant<Push<std::int32_t>, Push<std::int64_t>> push_;
  std::vector<RowSampler> samplers_;
  std::vector<PlaceList> lists_;
  std::vector<PushLinks> links_;
  std::vector<PushEdges> edges_;
  std::vector<std::vector<std::vector<Ranked>>> ranked_;  // by channel and node type
  std::vector<const std::vector<Ranked>*> by_channel_;
  std::vector<std::int64_t> found_;
  Ranking ranking_;
  Mix mix_;
  OpenedRows opened_;
};

}  // namespace penstock
