// The two hash primitives that everything comparable is built from.
//
// Not cryptographic: they compare ranks of one job with each other. 64 bits: a missed difference has a chance
// of about 5e-20 a comparison.
#pragma once
#include <cstdint>

namespace accel {

/// Folds `value` into `seed`; order matters. Multiply-and-fold of 64 x 64 -> 128 bits, about 4 cycles.
constexpr std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  const unsigned __int128 product =
      static_cast<unsigned __int128>(seed ^ 0x9e3779b97f4a7c15u) * ((value ^ 0xd1b54a32d192ed03u) | 1u << 31);
  const std::uint64_t folded =
      static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  return folded + 0x2545f4914f6cdd1du * value;
}

/// Folds the bytes of a text into `seed`.
constexpr std::uint64_t mix_text(std::uint64_t seed, const char* text) {
  for (; *text != '\0'; ++text) seed = mix(seed, static_cast<unsigned char>(*text));
  return seed;
}

}  // namespace accel
