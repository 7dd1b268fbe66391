// How large the degree of every node is, roughly, in a byte: what a push asks of nearly all nodes
// it reaches is whether their threshold is out of reach, and their offsets are far apart.
//
// The bytes of an edge type are made once and shared. A size stands for the least degree that has
// it: it only spares reading offsets, and a size that is too small costs time, no more.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace penstock {

struct DegreeSize {
  static constexpr std::uint8_t kNone = 0;       // nothing leads on
  static constexpr std::uint8_t kLargest = 63;
  static constexpr std::uint8_t kUnknown = 254;  // its row is to be looked at when it is reached
  static constexpr std::uint8_t kUnsound = 255;  // its row is not within the graph
  static constexpr int kCount = 256;

  static std::uint8_t of(std::int64_t degree) {
    if (degree < 0) return kUnsound;
    return static_cast<std::uint8_t>(std::bit_width(static_cast<std::uint64_t>(degree)));
  }

  // The least degree of a size.
  static double least(int size) {
    if (size == kNone) return std::numeric_limits<double>::infinity();
    return size > kLargest ? 0.0 : static_cast<double>(std::uint64_t{1} << (size - 1));
  }

  // Whether a node of this size is no matter of thresholds alone.
  static bool is_special(std::uint8_t size) { return static_cast<std::uint8_t>(size - 1) >= 253; }

  // The size of the sum of two degrees, at least.
  static std::uint8_t sum(std::uint8_t one, std::uint8_t other) {
    if (one > kLargest || other > kLargest) return std::max(one, other);
    const auto least_of = [](std::uint8_t size) { return (std::uint64_t{1} << size) >> 1; };
    return static_cast<std::uint8_t>(std::bit_width(least_of(one) + least_of(other)));
  }
};

// The sizes of all nodes of a type.
struct DegreeSizes {
  const std::uint8_t* sizes;
  std::uint64_t mask;  // 0 where nothing leaves the type: one byte stands for all its nodes

  static DegreeSizes none() {
    static constexpr std::uint8_t kNothing = DegreeSize::kNone;
    return {&kNothing, 0};
  }

  const std::uint8_t* at(std::int64_t node) const {
    return sizes + (static_cast<std::uint64_t>(node) & mask);
  }
};

}  // namespace penstock
