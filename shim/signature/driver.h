// The intercepted functions of the CUDA driver by number, and what its results mean; made from driver.def.
#pragma once
#include <cstdint>
#include <iterator>
#include <string_view>

namespace accel {

enum class DriverFunction : std::uint16_t {
  None,
#define CUDA_MEMORY(symbol, ...) symbol,
#define CUDA_WATCHED(symbol, ...) symbol,
#define CUDA_WAIT(symbol, ...) symbol,
#define CUDA_STREAM(symbol, ...) symbol,
#define CUDA_LOOKUP(symbol, ...) symbol,
#include "signature/driver.def"
  Count_
};

/// The exported symbol. Safe for any number.
constexpr std::string_view name_of(DriverFunction function) {
  constexpr std::string_view names[] = {
      "(no call)",
#define CUDA_MEMORY(symbol, ...) #symbol,
#define CUDA_WATCHED(symbol, ...) #symbol,
#define CUDA_WAIT(symbol, ...) #symbol,
#define CUDA_STREAM(symbol, ...) #symbol,
#define CUDA_LOOKUP(symbol, ...) #symbol,
#include "signature/driver.def"
  };
  const auto index = static_cast<std::size_t>(function);
  return names[index < std::size(names) ? index : 0];
}

/// CUresult.
namespace driver {
inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kNoDevice = 100;
inline constexpr int kNotFound = 500;

/// After it the context is of no more use: every later call in it returns the same. Source: "process must be
/// terminated" in cuda.h, and assertions, ECC and NVLink errors.
constexpr bool breaks_context(int result) {
  constexpr int kSticky[] = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911};
  for (const int one : kSticky) {
    if (result == one) return true;
  }
  return false;
}
}  // namespace driver

/// What memory is for.
enum class MemoryKind : std::uint8_t { Device, Pool, Virtual, Array, Managed, Pinned, Count_ };
inline constexpr std::size_t kMemoryKinds = static_cast<std::size_t>(MemoryKind::Count_);
constexpr bool is_device_memory(MemoryKind kind) { return kind < MemoryKind::Managed; }

}  // namespace accel
