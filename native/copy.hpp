// Copies bytes into memory that nobody reads soon.
//
// An ordinary store reads a line into the caches before it changes it. For megabytes that is wasted
// twice: what is overwritten is fetched, and what others need is pushed out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <emmintrin.h>
#define PENSTOCK_HAS_STREAMS 1
#else
#define PENSTOCK_HAS_STREAMS 0
#endif

namespace penstock {

// Less than this is soon read, and fits into the caches beside everything else.
inline constexpr std::size_t kLargeCopy = 512 << 10;

#if PENSTOCK_HAS_STREAMS

namespace detail {

// `to` begins a line, and `size` is a number of whole lines.
inline void stream_lines(char* to, const char* from, std::size_t size) {
  constexpr std::size_t kLine = 64, kWord = sizeof(__m128i);
  for (std::size_t at = 0; at < size; at += kLine) {
    __m128i line[kLine / kWord];
    for (std::size_t i = 0; i < kLine / kWord; ++i) {
      line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + i * kWord));
    }
    for (std::size_t i = 0; i < kLine / kWord; ++i) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + i * kWord), line[i]);
    }
  }
}

// Whoever is told that streamed bytes are there must find them.
inline void end_stream() { _mm_sfence(); }

// Copies `size` bytes, at least a line of them, around the cache but for what shares its line with
// other bytes: such a line would be written to memory in parts.
inline void stream(char* to, const char* from, std::size_t size) {
  constexpr std::size_t kLine = 64;
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kLine;
  const std::size_t lines = (size - head) / kLine * kLine;
  std::memcpy(to, from, head);
  stream_lines(to + head, from + head, lines);
  const std::size_t done = head + lines;
  std::memcpy(to + done, from + done, size - done);
}

}  // namespace detail

inline void copy_bytes(char* to, const char* from, std::size_t size) {
  if (size >= kLargeCopy) {
    detail::stream(to, from, size);
    detail::end_stream();
  } else if (size > 0) {
    std::memcpy(to, from, size);
  }
}

#else

namespace detail {

inline void stream(char* to, const char* from, std::size_t size) { std::memcpy(to, from, size); }
inline void end_stream() {}

}  // namespace detail

inline void copy_bytes(char* to, const char* from, std::size_t size) {
  if (size > 0) std::memcpy(to, from, size);
}

#endif

}  // namespace penstock
