// Text in a place of a fixed size, up to a NUL; what does not fit is cut off. Signal-safe but for text_of
// (allocates).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace accel {

template <std::size_t N>
void set_text(char (&target)[N], std::string_view text) {
  const std::size_t bytes = std::min(text.size(), N - 1);
  std::memcpy(target, text.data(), bytes);
  std::memset(target + bytes, 0, N - bytes);
}

template <std::size_t N>
std::string text_of(const char (&bytes)[N]) {
  return std::string(bytes, strnlen(bytes, N));
}

}  // namespace accel
