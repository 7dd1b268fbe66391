// What weighted and temporal choices need once per graph: running sums of integer weights, and rows
// in the order of time. No memory beyond the result, but for one row of pairs while it is sorted.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "neighbor.hpp"
#include "prefetch.hpp"
#include "spans.hpp"

namespace penstock {

inline constexpr int kWeightBits = 60;  // a row is scaled to a total just below 2^60

namespace detail {

inline constexpr std::int64_t kValuesAhead = 32;  // how far ahead values by id are fetched

// Whether the rows lie one after the other and fill the entries: all results are by position.
template <class Adjacency>
bool rows_are_whole(const Adjacency& adjacency) {
  if (adjacency.indptr[0] != 0) return false;
  for (std::int64_t row = 0; row < adjacency.num_rows(); ++row) {
    if (adjacency.indptr[row] > adjacency.indptr[row + 1]) return false;
  }
  return adjacency.indptr[adjacency.num_rows()] == adjacency.num_edges;
}

template <class T>
void send_for_value(Strided<T> values, std::int64_t id) {
  // Ids are checked when they are used; this is a hint, but pointers may not point just anywhere.
  if (static_cast<std::uint64_t>(id) >= static_cast<std::uint64_t>(values.size)) return;
  prefetch_once(values.data + id * values.stride);
}

// x * 2^power for many x. Where the factor is a number, multiplying by it rounds as ldexp does.
class PowerOfTwo {
 public:
  explicit PowerOfTwo(int power)
      : power_(power),
        is_factor_(power >= -1022 && power <= 1023),
        factor_(std::ldexp(1.0, power)) {}

  double operator()(double x) const { return is_factor_ ? x * factor_ : std::ldexp(x, power_); }

 private:
  int power_;
  bool is_factor_;
  double factor_;
};

template <class T>
bool is_weight(T value) {
  const auto weight = static_cast<double>(value);
  return weight >= 0.0 && weight <= std::numeric_limits<double>::max();
}

// Turns the weights of one row, kept in `out` as the bits of doubles, into running sums. Scaled by
// a power of two, rounded down, at least 1 where there is any: a total that is not 0 is about 2^60.
inline void sum_row(std::int64_t* out, std::int64_t degree) {
  double largest = 0.0, total = 0.0;
  const auto weight_of = [&](std::int64_t i) { return std::bit_cast<double>(out[i]); };
  for (std::int64_t i = 0; i < degree; ++i) largest = std::max(largest, weight_of(i));
  int high = 0, above = 0;
  std::frexp(largest, &high);
  const PowerOfTwo relative(-high);  // to the largest, so that the total does not overflow
  for (std::int64_t i = 0; i < degree; ++i) total += relative(weight_of(i));
  std::frexp(total, &above);
  const PowerOfTwo scaled(kWeightBits - high - above);
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < degree; ++i) {
    const double weight = weight_of(i);
    const auto units = static_cast<std::int64_t>(scaled(weight));
    sum += weight > 0.0 ? std::max<std::int64_t>(units, 1) : 0;
    out[i] = sum;
  }
}

}  // namespace detail

// The first weight that is none: negative, infinite or no number; -1 where all are weights.
template <class T>
std::int64_t first_no_weight(Strided<T> weights) {
  for (std::int64_t i = 0; i < weights.size; ++i) {
    if (!detail::is_weight(weights[i])) return i;
  }
  return -1;
}

// `weights` are by edge id, `out` is by position. kTooSmall: one of them is no weight.
template <class Adjacency, class T>
Outcome weight_sums(const Adjacency& adjacency, Strided<T> weights, std::int64_t* out) {
  if (!detail::rows_are_whole(adjacency)) return Outcome::kDamaged;
  for (std::int64_t at = 0; at < adjacency.num_edges; ++at) {
    if (at + detail::kValuesAhead < adjacency.num_edges) {
      detail::send_for_value(weights, adjacency.edge_id(at + detail::kValuesAhead));
    }
    const std::int64_t edge = adjacency.edge_id(at);
    if (edge < 0 || edge >= weights.size) return Outcome::kDamaged;
    const T weight = weights[edge];  // read once: others may write to it
    if (!detail::is_weight(weight)) return Outcome::kTooSmall;
    out[at] = std::bit_cast<std::int64_t>(static_cast<double>(weight));
  }
  for (std::int64_t row = 0; row < adjacency.num_rows(); ++row) {
    const std::int64_t begin = adjacency.indptr[row];
    detail::sum_row(out + begin, adjacency.indptr[row + 1] - begin);
  }
  return Outcome::kDone;
}

// `times` are by edge id, or by neighbour; entries and times of the result are by position, each
// row in the order of time, equal times as they stood. kTooSmall: an id does not fit the entries.
template <class Adjacency, class T, class Index>
Outcome order_by_time(const Adjacency& adjacency, Strided<T> times, bool of_nodes, Index* entries,
                      std::int64_t* out_times) {
  if (!detail::rows_are_whole(adjacency)) return Outcome::kDamaged;
  const auto owner_of_time = [&](std::int64_t at) {
    return of_nodes ? adjacency.neighbor(at) : adjacency.edge_id(at);
  };
  for (std::int64_t at = 0; at < adjacency.num_edges; ++at) {
    if (at + detail::kValuesAhead < adjacency.num_edges) {
      detail::send_for_value(times, owner_of_time(at + detail::kValuesAhead));
    }
    const std::int64_t owner = owner_of_time(at);
    if (owner < 0 || owner >= times.size) return Outcome::kDamaged;
    const std::int64_t neighbor = adjacency.neighbor(at), edge = adjacency.edge_id(at);
    if (!std::in_range<Index>(neighbor) || !std::in_range<Index>(edge)) return Outcome::kTooSmall;
    out_times[at] = times[owner];
    entries[2 * at] = static_cast<Index>(neighbor);
    entries[2 * at + 1] = static_cast<Index>(edge);
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> order;  // (time, position): all different
  for (std::int64_t row = 0; row < adjacency.num_rows(); ++row) {
    const std::int64_t begin = adjacency.indptr[row], end = adjacency.indptr[row + 1];
    if (std::is_sorted(out_times + begin, out_times + end)) continue;
    order.clear();
    for (std::int64_t at = begin; at < end; ++at) order.emplace_back(out_times[at], at);
    std::sort(order.begin(), order.end());
    for (std::int64_t at = begin; at < end; ++at) {
      const auto [time, from] = order[static_cast<std::size_t>(at - begin)];
      out_times[at] = time;
      entries[2 * at] = static_cast<Index>(adjacency.neighbor(from));
      entries[2 * at + 1] = static_cast<Index>(adjacency.edge_id(from));
    }
  }
  return Outcome::kDone;
}

}  // namespace penstock
