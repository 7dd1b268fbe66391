// Personalised PageRank of one node by forward push (Andersen, Chung and Lang).
//
// The seed begins with a residual of alpha. In each round every node whose residual has reached its
// threshold, alpha * eps * degree, adds the residual to its score and passes (1 - alpha) of it on,
// in equal parts, to its neighbours. All nodes of a round give up their residuals before any is
// passed on: so their rows are one long stream of edges, which are gathered first and then added.
// Of nearly all nodes a byte tells that their threshold is out of reach; few degrees are read.
//
// What is added to what, in which order, is part of the result: kernels/twins/ppr.py does the same
// additions and gets the same bits. Nodes of all types have one numbering here, type by type.
#pragma once

#include <cstdint>
#include <vector>

#include "ppr_nodes.hpp"
#include "ppr_rows.hpp"
#include "ppr_spec.hpp"

namespace penstock {

// Where a push starts, and along what.
struct PushStart {
  const PushSpec& spec;
  const Thresholds& thresholds;
  const PushChannel& channel;
  std::vector<RowSampler>& samplers;
  std::size_t type;
};

template <class Id>
class Push {
 public:
  // False where the graph is damaged. `opened(id)` is called once for every node whose row is looked
  // at. What is given away is written into `record`, if there is one.
  template <class Opened>
  bool run(const PushStart& start, std::int64_t seed, Opened opened, PushRecord* record = nullptr) {
    begin(start, record);
    if (!nodes_.enter_seed(start.type, seed)) return false;
    queue_.push_back(0);  // whatever its degree
    while (!queue_.empty()) {
      if (!take(opened)) return false;
      while (!rows_.are_spent()) {
        rows_.send();
        if (!rows_.gather()) return false;
        nodes_.send(rows_);
        nodes_.add(rows_);
        pushes_ += static_cast<std::int64_t>(rows_.num_edges());
      }
      queue_.clear();
      nodes_.take_noticed(queue_);
      if (!keep_queued()) return false;
    }
    nodes_.keep_what_came();
    return true;
  }

  // How many residuals have been passed along an edge, in all runs so far.
  std::int64_t pushes() const { return pushes_; }
  const PushNodes<Id>& nodes() const { return nodes_; }

 private:
  void begin(const PushStart& start, PushRecord* record) {
    spec_ = &start.spec;
    thresholds_ = &start.thresholds;
    channel_ = &start.channel;
    openings_ = 0;
    queue_.clear();
    nodes_.begin(*spec_, *thresholds_);
    rows_.begin(*spec_, start.samplers, record);
  }

  // Of those that may be at their threshold, those that are: the next to push.
  bool keep_queued() {
    for (const std::uint32_t local : queue_) {
      send_for_offsets(*spec_, nodes_.reached(local).type, nodes_.number(local));
    }
    std::size_t kept = 0;
    for (const std::uint32_t local : queue_) {
      const Reached& node = nodes_.reached(local);
      const std::int64_t degree = degree_of(*spec_, node.type, nodes_.number(local));
      if (degree < 0) return false;
      if (node.residual >= thresholds_->exact(degree)) queue_[kept++] = local;
    }
    queue_.resize(kept);
    return true;
  }

  // All that is queued gives up its residual; what it passes on waits in `rows_`.
  template <class Opened>
  bool take(Opened& opened) {
    rows_.clear();
    const bool may_open = spec_->max_openings < 0 || openings_ < spec_->max_openings;
    const double keep = 1.0 - spec_->alpha;
    bool has_opened = false;
    for (const std::uint32_t local : queue_) {
      const double residual = nodes_.settle(local);
      Reached& node = nodes_.reached(local);
      const std::vector<std::size_t>& leaving = channel_->leaving[node.type];
      const bool is_open = (node.marks & kOpen) != 0;
      if (leaving.empty() || (!is_open && !may_open)) continue;
      if (!is_open) {
        node.marks |= kOpen;
        has_opened = true;
        opened(nodes_.id(local));
      }
      if (!rows_.give(nodes_.number(local), leaving, keep * residual, node.hop + 1)) return false;
    }
    openings_ += has_opened;
    return true;
  }

  const PushSpec* spec_ = nullptr;
  const Thresholds* thresholds_ = nullptr;
  const PushChannel* channel_ = nullptr;
  std::int64_t openings_ = 0;  // rounds that looked at rows not seen before
  std::int64_t pushes_ = 0;
  std::vector<std::uint32_t> queue_;  // nodes to push in this round
  PushNodes<Id> nodes_;
  PushRows<Id> rows_;
};

}  // namespace penstock
