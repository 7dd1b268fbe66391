// Values that compilers do not look into: what follows from them is computed as it is written.
#pragma once

namespace penstock {

// The same value, in a general register.
template <class T>
[[gnu::always_inline]] inline T opaque(T value) {
  asm("" : "+r"(value));
  return value;
}

}  // namespace penstock
