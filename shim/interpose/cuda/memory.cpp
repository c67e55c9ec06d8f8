// Every way to get memory from the driver and to give it back.
#include "interpose/cuda/ledger.h"
#include "interpose/cuda/real.h"
#include "interpose/cuda/streams.h"
#include "interpose/export.h"

namespace accel::cuda {
namespace {

/// CUdeviceptr.
using Address = std::uint64_t;
/// CUDA_ARRAY3D_DESCRIPTOR; without `depth`, CUDA_ARRAY_DESCRIPTOR.
struct ArrayShape {
  std::size_t width, height, depth;
  int format;
  unsigned channels;
};

std::uint64_t bytes_of(std::size_t width, std::size_t height, std::size_t depth, int format,
                       unsigned channels) {
  const auto at_least_one = [](std::size_t length) { return length == 0 ? 1 : length; };
  const std::size_t element = format == 0x02 || format == 0x09 || format == 0x10   ? 2
                              : format == 0x03 || format == 0x0a || format == 0x20 ? 4
                                                                                   : 1;
  return width * at_least_one(height) * at_least_one(depth) * element * channels;
}

std::uint64_t array3d_bytes(const ArrayShape* shape) {
  return shape == nullptr
             ? 0
             : bytes_of(shape->width, shape->height, shape->depth, shape->format, shape->channels);
}
/// CUDA_ARRAY_DESCRIPTOR has no depth.
std::uint64_t array_bytes(const ArrayShape* shape) {
  if (shape == nullptr) return 0;
  const auto* rest = reinterpret_cast<const int*>(&shape->depth);
  return bytes_of(shape->width, shape->height, 1, rest[0], static_cast<unsigned>(rest[1]));
}

/// Each level is half as long, wide and deep as the one before.
std::uint64_t mipmap_bytes(const ArrayShape* shape, unsigned levels) {
  if (shape == nullptr) return 0;
  ArrayShape level = *shape;
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < levels && i < 64; ++i) {
    bytes += array3d_bytes(&level);
    level.width = level.width > 1 ? level.width / 2 : level.width;
    level.height = level.height > 1 ? level.height / 2 : level.height;
    level.depth = level.depth > 1 ? level.depth / 2 : level.depth;
  }
  return bytes;
}

/// `where` answers the address of what was given: asked only after success, as the driver has written it only
/// then.
template <class Call, class Where>
int allocate(const Origin& origin, MemoryKind kind, std::uint64_t bytes, Call&& really, Where&& where) {
  Ledger* const ledger = driver_state.nested == 0 ? Ledger::get() : nullptr;
  if (ledger == nullptr) return really();
  const DepthGuard guard(driver_state.nested);
  const int result = really();
  if (result == driver::kSuccess) [[likely]] {
    const auto [address, given] = where();
    ledger->add(address, {given != 0 ? given : bytes, Ledger::current_device(), kind});
  } else if (result == driver::kOutOfMemory) {
    ledger->failed(origin, kind, bytes, Ledger::current_device());
  } else if (driver::breaks_context(result)) {
    ledger->broke(origin, result);
  }
  return result;
}

template <class Call>
int release(std::uint64_t address, Call&& really) {
  Ledger* const ledger = driver_state.nested == 0 && address != 0 ? Ledger::get() : nullptr;
  if (ledger == nullptr) return really();
  const DepthGuard guard(driver_state.nested);
  const Block block = ledger->take(address);
  const int result = really();
  if (result == driver::kSuccess) {
    ledger->freed(block);
  } else {
    ledger->put_back(address, block);
  }
  return result;
}

struct Given {
  std::uint64_t address;
  std::uint64_t bytes;  ///< 0: what was asked for
};

template <class Pointer>
std::uint64_t address_of(Pointer pointer) {
  return (std::uint64_t)pointer;
}

}  // namespace
}  // namespace accel::cuda

using namespace accel;
using cuda::Address;

#define ORIGIN(symbol) \
  cuda::Origin { DriverFunction::symbol, __builtin_return_address(0), __builtin_frame_address(0) }

/// symbol, parameters, arguments, kind, bytes asked for, address given, bytes given (0: as asked)
#define ACCEL_ALLOCATION(symbol, parameters, arguments, kind, bytes, address, given)        \
  ACCEL_EXPORT int symbol parameters {                                                      \
    static constinit cuda::Real real(#symbol);                                              \
    auto* const next = real.get<int parameters>();                                          \
    if (next == nullptr) return driver::kNoDevice;                                          \
    return cuda::allocate(                                                                  \
        ORIGIN(symbol), MemoryKind::kind, bytes, [&] { return next arguments; },            \
        [&] {                                                                               \
          return cuda::Given{cuda::address_of(address), static_cast<std::uint64_t>(given)}; \
        });                                                                                 \
  }
/// In stream order. Captured into a graph it allocates nothing yet.
#define ACCEL_POOL_ALLOCATION(symbol, parameters, arguments)                  \
  ACCEL_EXPORT int symbol parameters {                                        \
    static constinit cuda::Real real(#symbol);                                \
    auto* const next = real.get<int parameters>();                            \
    if (next == nullptr) return driver::kNoDevice;                            \
    if (cuda::is_capturing(reinterpret_cast<std::uintptr_t>(s))) [[unlikely]] \
      return next arguments;                                                  \
    return cuda::allocate(                                                    \
        ORIGIN(symbol), MemoryKind::Pool, n, [&] { return next arguments; },  \
        [&] {                                                                 \
          return cuda::Given{*p, 0};                                          \
        });                                                                   \
  }
#define ACCEL_RELEASE(symbol, parameters, arguments, address)                        \
  ACCEL_EXPORT int symbol parameters {                                               \
    static constinit cuda::Real real(#symbol);                                       \
    auto* const next = real.get<int parameters>();                                   \
    if (next == nullptr) return driver::kNoDevice;                                   \
    return cuda::release(cuda::address_of(address), [&] { return next arguments; }); \
  }

// clang-format off
ACCEL_ALLOCATION(cuMemAlloc_v2, (Address* p, std::size_t n), (p, n), Device, n, *p, 0)
ACCEL_ALLOCATION(cuMemAllocPitch_v2, (Address* p, std::size_t* pitch, std::size_t w, std::size_t h, unsigned e), (p, pitch, w, h, e), Device, w * h, *p, *pitch * h)
ACCEL_ALLOCATION(cuMemAllocManaged, (Address* p, std::size_t n, unsigned f), (p, n, f), Managed, n, *p, 0)
ACCEL_POOL_ALLOCATION(cuMemAllocAsync, (Address* p, std::size_t n, void* s), (p, n, s))
ACCEL_POOL_ALLOCATION(cuMemAllocAsync_ptsz, (Address* p, std::size_t n, void* s), (p, n, s))
ACCEL_POOL_ALLOCATION(cuMemAllocFromPoolAsync, (Address* p, std::size_t n, void* q, void* s), (p, n, q, s))
ACCEL_POOL_ALLOCATION(cuMemAllocFromPoolAsync_ptsz, (Address* p, std::size_t n, void* q, void* s), (p, n, q, s))
ACCEL_ALLOCATION(cuMemAllocHost_v2, (void** p, std::size_t n), (p, n), Pinned, n, *p, 0)
ACCEL_ALLOCATION(cuMemHostAlloc, (void** p, std::size_t n, unsigned f), (p, n, f), Pinned, n, *p, 0)
ACCEL_ALLOCATION(cuMemHostRegister_v2, (void* p, std::size_t n, unsigned f), (p, n, f), Pinned, n, p, 0)
ACCEL_ALLOCATION(cuArrayCreate_v2, (void** p, const cuda::ArrayShape* a), (p, a), Array, 0, *p, cuda::array_bytes(a))
ACCEL_ALLOCATION(cuArray3DCreate_v2, (void** p, const cuda::ArrayShape* a), (p, a), Array, 0, *p, cuda::array3d_bytes(a))
ACCEL_ALLOCATION(cuMipmappedArrayCreate, (void** p, const cuda::ArrayShape* a, unsigned l), (p, a, l), Array, 0, *p, cuda::mipmap_bytes(a, l))
ACCEL_RELEASE(cuMemFree_v2, (Address p), (p), p)
ACCEL_RELEASE(cuMemFreeAsync, (Address p, void* s), (p, s), p)
ACCEL_RELEASE(cuMemFreeAsync_ptsz, (Address p, void* s), (p, s), p)
ACCEL_RELEASE(cuMemFreeHost, (void* p), (p), p)
ACCEL_RELEASE(cuMemHostUnregister, (void* p), (p), p)
ACCEL_RELEASE(cuArrayDestroy, (void* p), (p), p)
ACCEL_RELEASE(cuMipmappedArrayDestroy, (void* p), (p), p)
// clang-format on

/// `next`: the real function; `ledger`: null where the call only passes through.
#define REAL(symbol, ...)                                                                      \
  static constinit cuda::Real real(#symbol);                                                   \
  auto* const next = real.get<int(__VA_ARGS__)>();                                             \
  if (next == nullptr) return driver::kNoDevice;                                               \
  cuda::Ledger* const ledger = cuda::driver_state.nested == 0 ? cuda::Ledger::get() : nullptr; \
  const DepthGuard guard(cuda::driver_state.nested)

namespace {
/// CUmemAllocationProp, as far as it says where the memory is.
struct AllocationProperties {
  int type;
  int handle_types;
  int location_type;
  int location;
};
constexpr int kLocationDevice = 1;
}  // namespace

ACCEL_EXPORT int cuMemCreate(std::uint64_t* handle, std::size_t bytes, const void* properties,
                             unsigned long long flags) {
  REAL(cuMemCreate, std::uint64_t*, std::size_t, const void*, unsigned long long);
  const int result = next(handle, bytes, properties, flags);
  const auto* where = static_cast<const AllocationProperties*>(properties);
  if (ledger == nullptr || where == nullptr || where->location_type != kLocationDevice) return result;
  if (result == driver::kSuccess) ledger->created(*handle, bytes, where->location);
  if (result == driver::kOutOfMemory)
    ledger->failed(ORIGIN(cuMemCreate), MemoryKind::Virtual, bytes, where->location);
  return result;
}

namespace {
/// CUipcMemHandle, passed by value.
struct IpcHandle {
  char bytes[64];
};

/// Another process's memory: it is not counted as ours, but opening it can fail for want of ours.
int open_memory(const cuda::Origin& origin, cuda::Real& real, Address* address, IpcHandle handle,
                unsigned flags) {
  auto* const next = real.get<int(Address*, IpcHandle, unsigned)>();
  if (next == nullptr) return driver::kNoDevice;
  cuda::Ledger* const ledger = cuda::driver_state.nested == 0 ? cuda::Ledger::get() : nullptr;
  const DepthGuard guard(cuda::driver_state.nested);
  const int result = next(address, handle, flags);
  if (ledger != nullptr && result == driver::kOutOfMemory)
    ledger->failed(origin, MemoryKind::Count_, 0, cuda::Ledger::current_device());
  return result;
}
}  // namespace

ACCEL_EXPORT int cuIpcOpenMemHandle(Address* address, IpcHandle handle, unsigned flags) {
  static constinit cuda::Real real("cuIpcOpenMemHandle");
  return open_memory(ORIGIN(cuIpcOpenMemHandle), real, address, handle, flags);
}

ACCEL_EXPORT int cuIpcOpenMemHandle_v2(Address* address, IpcHandle handle, unsigned flags) {
  static constinit cuda::Real real("cuIpcOpenMemHandle_v2");
  return open_memory(ORIGIN(cuIpcOpenMemHandle_v2), real, address, handle, flags);
}

ACCEL_EXPORT int cuMemRelease(std::uint64_t handle) {
  REAL(cuMemRelease, std::uint64_t);
  // Before the call: the value may be somebody else's right after it. A release that fails is a handle that
  // was none.
  if (ledger != nullptr) ledger->released(handle);
  return next(handle);
}

ACCEL_EXPORT int cuMemRetainAllocationHandle(std::uint64_t* handle, void* address) {
  REAL(cuMemRetainAllocationHandle, std::uint64_t*, void*);
  const int result = next(handle, address);
  if (ledger != nullptr && result == driver::kSuccess) ledger->retained(*handle);
  return result;
}

ACCEL_EXPORT int cuMemMap(Address address, std::size_t bytes, std::size_t offset, std::uint64_t handle,
                          unsigned long long flags) {
  REAL(cuMemMap, Address, std::size_t, std::size_t, std::uint64_t, unsigned long long);
  const int result = next(address, bytes, offset, handle, flags);
  if (ledger != nullptr && result == driver::kSuccess) ledger->mapped(address, bytes, handle);
  if (ledger != nullptr && result == driver::kOutOfMemory)
    ledger->failed(ORIGIN(cuMemMap), MemoryKind::Count_, bytes, cuda::Ledger::current_device());
  return result;
}

ACCEL_EXPORT int cuMemUnmap(Address address, std::size_t bytes) {
  REAL(cuMemUnmap, Address, std::size_t);
  if (ledger != nullptr) ledger->unmapped(address, bytes);
  return next(address, bytes);
}

ACCEL_EXPORT int cuDevicePrimaryCtxReset_v2(int device) {
  REAL(cuDevicePrimaryCtxReset_v2, int);
  const int result = next(device);
  if (ledger != nullptr && result == driver::kSuccess) ledger->reset(device);
  return result;
}

ACCEL_EXPORT int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  REAL(cuMemGetInfo_v2, std::size_t*, std::size_t*);
  if (ledger != nullptr) ledger->asked_for_free_memory();
  return next(free, total);
}
