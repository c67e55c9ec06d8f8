// Element-wise reductions of NCCL's datatypes.
#pragma once
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace standin {

inline std::size_t size_of(ncclDataType_t type) {
  switch (static_cast<int>(type)) {
    case 2:
    case 3:
    case 7:
      return 4;
    case 4:
    case 5:
    case 8:
      return 8;
    case 6:
    case 9:
      return 2;
    default:
      return 1;
  }
}

struct BFloat16 {
  std::uint16_t bits;
  explicit operator float() const {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  static BFloat16 from(float value) {
    std::uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    return {static_cast<std::uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16)};
  }
};

template <class T>
T combine(T a, T b, int op) {
  switch (op) {
    case 1:
      return static_cast<T>(a * b);
    case 2:
      return a > b ? a : b;
    case 3:
      return a < b ? a : b;
    default:
      return static_cast<T>(a + b);
  }
}
inline BFloat16 combine(BFloat16 a, BFloat16 b, int op) {
  return BFloat16::from(combine(static_cast<float>(a), static_cast<float>(b), op));
}

template <class T>
void reduce_as(void* into, const void* from, std::size_t count, int op) {
  auto* a = static_cast<T*>(into);
  const auto* b = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) a[i] = combine(a[i], b[i], op);
}
template <class T>
void scale_as(void* data, std::size_t count, double factor) {
  auto* a = static_cast<T*>(data);
  for (std::size_t i = 0; i < count; ++i) a[i] = static_cast<T>(static_cast<double>(a[i]) * factor);
}
template <>
inline void scale_as<BFloat16>(void* data, std::size_t count, double factor) {
  auto* a = static_cast<BFloat16*>(data);
  for (std::size_t i = 0; i < count; ++i)
    a[i] = BFloat16::from(static_cast<float>(static_cast<double>(static_cast<float>(a[i])) * factor));
}

#define STANDIN_BY_TYPE(type, call) \
  switch (static_cast<int>(type)) { \
    case 0:                         \
      return call<std::int8_t>;     \
    case 2:                         \
      return call<std::int32_t>;    \
    case 3:                         \
      return call<std::uint32_t>;   \
    case 4:                         \
      return call<std::int64_t>;    \
    case 5:                         \
      return call<std::uint64_t>;   \
    case 6:                         \
      return call<_Float16>;        \
    case 7:                         \
      return call<float>;           \
    case 8:                         \
      return call<double>;          \
    case 9:                         \
      return call<BFloat16>;        \
    default:                        \
      return call<std::uint8_t>;    \
  }
inline auto reducer(ncclDataType_t type) -> void (*)(void*, const void*, std::size_t, int) {
  STANDIN_BY_TYPE(type, reduce_as)
}
inline auto scaler(ncclDataType_t type) -> void (*)(void*, std::size_t, double) {
  STANDIN_BY_TYPE(type, scale_as)
}

}  // namespace standin
