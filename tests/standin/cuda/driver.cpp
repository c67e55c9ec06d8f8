// A CPU stand-in for libcuda.so.1, for tests on machines without a GPU. Device memory is host memory under a
// budget, so that running out of it is real; streams are threads, so that work is really asynchronous;
// kernels are host functions where the stand-in runtime knows them, else nothing. It serves no undocumented
// table.
//
//   ACCEL_STANDIN_FAULT_KERNEL=NAME   launching it leaves the context in error 700
//   ACCEL_STANDIN_HANG_KERNEL=NAME    it never ends
// and device.h's.
#include <cuda.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "tests/standin/cuda/device.h"

// cuda.h renames the old names to the latest revision. Below every exported name is meant as it stands.
#undef cuGetProcAddress
#undef cuStreamBeginCapture
#undef cuStreamGetCaptureInfo
#undef cuCtxCreate
#undef cuGraphInstantiate
#undef cuDeviceGetUuid
#undef cuEventElapsedTime

#define EXPORT extern "C" __attribute__((visibility("default")))
#define API EXPORT CUresult

namespace {

using namespace standin;

bool initialized = false;
bool forked = false;

std::mutex mutex;  // guards all of the below

enum class Kind { Device, Managed, Pinned, Registered, Pool, Mapped };
struct Allocation {
  std::size_t bytes;
  Kind kind;
  int device;
  struct Pool* pool;
};
std::map<CUdeviceptr, Allocation>& allocations = *new std::map<CUdeviceptr, Allocation>;

struct Pool {
  int device = 0;
  std::uint64_t threshold = 0;
  std::uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};
Pool default_pools[16];
Pool* current_pools[16];

struct Physical {
  std::size_t bytes;
  int file;
  int device;  ///< -1: host memory, or somebody else's
  int references;
};
std::map<CUdeviceptr, Physical*>& mappings = *new std::map<CUdeviceptr, Physical*>;

Context* primary[16];
int primary_references[16];

thread_local std::vector<Context*>* stack = nullptr;
std::vector<Context*>& contexts() {
  if (stack == nullptr) stack = new std::vector<Context*>;
  return *stack;
}
Context* current() { return contexts().empty() ? nullptr : contexts().back(); }

/// What every call that needs a context begins with.
#define CONTEXT(c)                                                             \
  if (!initialized || forked) return CUDA_ERROR_NOT_INITIALIZED;               \
  Context* const c = current();                                                \
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;                         \
  if (const int error = c->sticky.load()) return static_cast<CUresult>(error); \
  if (const int error = injected(__func__)) return static_cast<CUresult>(error)
#define INITIALIZED                                              \
  if (!initialized || forked) return CUDA_ERROR_NOT_INITIALIZED; \
  if (const int error = injected(__func__)) return static_cast<CUresult>(error)

CUresult result_of(Context* c) { return static_cast<CUresult>(c->sticky.load()); }
bool is_device(int device) { return device >= 0 && device < Machine::get().devices(); }
std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }
constexpr std::size_t kUnit = 512;
constexpr std::size_t kPage = 4096;

/// Device memory comes out of the budget, host memory does not.
bool on_device(Kind kind) { return kind == Kind::Device || kind == Kind::Managed || kind == Kind::Pool; }

CUresult allocate(Context* c, std::size_t bytes, Kind kind, CUdeviceptr* where, Pool* pool = nullptr) {
  if (bytes == 0 || where == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int device = pool != nullptr ? pool->device : c->device;
  const std::uint64_t size = round_up(bytes, kUnit);
  {
    // A pool takes from the device what it has not kept from before.
    const std::lock_guard lock(mutex);
    const std::uint64_t kept = pool != nullptr ? pool->reserved - pool->used : 0;
    if (on_device(kind) && size > kept && !Machine::get().take(device, size - kept))
      return CUDA_ERROR_OUT_OF_MEMORY;
    if (pool != nullptr) {
      pool->used += size;
      pool->reserved = std::max(pool->reserved, pool->used);
      pool->used_high = std::max(pool->used_high, pool->used);
      pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
    }
  }
  void* memory = mmap(nullptr, round_up(bytes, kPage), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex);
  *where = reinterpret_cast<CUdeviceptr>(memory);
  allocations[*where] = {bytes, kind, device, pool};
  return CUDA_SUCCESS;
}

/// Gives back what a pool keeps beyond `most`.
void trim(Pool& pool, std::uint64_t most) {
  const std::uint64_t keep = std::max(pool.used, std::min(pool.reserved, most));
  Machine::get().give(pool.device, pool.reserved - keep);
  pool.reserved = keep;
}

CUresult release(CUdeviceptr where) {
  if (where == 0) return CUDA_SUCCESS;
  Allocation gone;
  {
    const std::lock_guard lock(mutex);
    const auto found = allocations.find(where);
    if (found == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
    gone = found->second;
    allocations.erase(found);
    if (gone.pool != nullptr) {
      gone.pool->used -= round_up(gone.bytes, kUnit);
      trim(*gone.pool, gone.pool->threshold);
    }
  }
  if (gone.kind != Kind::Registered) munmap(reinterpret_cast<void*>(where), round_up(gone.bytes, kPage));
  if (on_device(gone.kind) && gone.pool == nullptr)
    Machine::get().give(gone.device, round_up(gone.bytes, kUnit));
  return CUDA_SUCCESS;
}

void drop(Physical* physical) {
  {
    const std::lock_guard lock(mutex);
    if (--physical->references != 0) return;
  }
  close(physical->file);
  if (physical->device >= 0) Machine::get().give(physical->device, physical->bytes);
  delete physical;
}

CUresult enqueue(CUstream handle, bool per_thread, Work work) {
  CONTEXT(c);
  const auto stream = c->stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  c->submit(stream, std::move(work));
  return CUDA_SUCCESS;
}

CUresult execute(CUstream handle, bool per_thread, Work work) {
  CONTEXT(c);
  const auto stream = c->stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  stream->wait_for(c->submit(stream, std::move(work)));
  return result_of(c);
}

}  // namespace

// Life.

API cuInit(unsigned) {
  if (forked) return CUDA_ERROR_NOT_INITIALIZED;
  const std::lock_guard lock(mutex);
  static const int registered = pthread_atfork(nullptr, nullptr, [] { forked = initialized; });
  (void)registered;
  if (Machine::get().devices() == 0) return CUDA_ERROR_NO_DEVICE;
  initialized = true;
  return CUDA_SUCCESS;
}
API cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
API cuGetErrorName(CUresult error, const char** text) {
  *text = error == 0 ? "CUDA_SUCCESS" : error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OTHER";
  return CUDA_SUCCESS;
}
API cuGetErrorString(CUresult error, const char** text) {
  *text = error == 0 ? "no error" : error == 2 ? "out of memory" : "another error";
  return CUDA_SUCCESS;
}
API cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

// Devices.

API cuDeviceGetCount(int* count) {
  INITIALIZED;
  *count = Machine::get().devices();
  return CUDA_SUCCESS;
}
API cuDeviceGet(CUdevice* device, int ordinal) {
  INITIALIZED;
  *device = ordinal;
  return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
API cuDeviceGetName(char* name, int length, CUdevice device) {
  std::snprintf(name, static_cast<std::size_t>(length), "%s", Machine::get().model(device).c_str());
  return CUDA_SUCCESS;
}
API cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid->bytes, 0, sizeof uuid->bytes);
  uuid->bytes[15] = static_cast<char>(device + 1);
  return CUDA_SUCCESS;
}
API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }
API cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = Machine::get().memory();
  return CUDA_SUCCESS;
}
API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 4;
      break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}
API cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", 0x10 + device);
  return CUDA_SUCCESS;
}

// Contexts.

API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  INITIALIZED;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex);
  if (primary[device] == nullptr) primary[device] = new Context(device);
  ++primary_references[device];
  *context = reinterpret_cast<CUcontext>(primary[device]);
  return CUDA_SUCCESS;
}
API cuDevicePrimaryCtxRelease(CUdevice device) {
  INITIALIZED;
  const std::lock_guard lock(mutex);
  if (primary_references[device] > 0) --primary_references[device];
  return CUDA_SUCCESS;
}
API cuDevicePrimaryCtxReset(CUdevice device) {
  INITIALIZED;
  std::vector<CUdeviceptr> all;
  {
    const std::lock_guard lock(mutex);
    if (primary[device] != nullptr) primary[device]->sticky = 0;
    for (const auto& [where, one] : allocations) {
      if (one.device == device && one.kind != Kind::Mapped) all.push_back(where);
    }
  }
  for (const CUdeviceptr where : all) release(where);
  return CUDA_SUCCESS;
}
API cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = primary_references[device] > 0;
  return CUDA_SUCCESS;
}
namespace {
CUresult create_context(CUcontext* context, CUdevice device) {
  INITIALIZED;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  auto* const made = new Context(device);
  contexts().push_back(made);
  *context = reinterpret_cast<CUcontext>(made);
  return CUDA_SUCCESS;
}
}  // namespace
API cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice device) { return create_context(context, device); }
API cuCtxDestroy(CUcontext context) {
  auto& mine = contexts();
  mine.erase(std::remove(mine.begin(), mine.end(), reinterpret_cast<Context*>(context)), mine.end());
  return CUDA_SUCCESS;
}
API cuCtxSetCurrent(CUcontext context) {
  INITIALIZED;
  if (!contexts().empty()) contexts().pop_back();
  if (context != nullptr) contexts().push_back(reinterpret_cast<Context*>(context));
  return CUDA_SUCCESS;
}
API cuCtxGetCurrent(CUcontext* context) {
  INITIALIZED;
  *context = reinterpret_cast<CUcontext>(current());
  return CUDA_SUCCESS;
}
API cuCtxPushCurrent(CUcontext context) {
  contexts().push_back(reinterpret_cast<Context*>(context));
  return CUDA_SUCCESS;
}
API cuCtxPopCurrent(CUcontext* context) {
  if (contexts().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = reinterpret_cast<CUcontext>(current());
  contexts().pop_back();
  return CUDA_SUCCESS;
}
API cuCtxGetDevice(CUdevice* device) {
  if (!initialized || forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current()->device;
  return CUDA_SUCCESS;
}
API cuCtxSynchronize() {
  CONTEXT(c);
  c->synchronize();
  return result_of(c);
}

// Memory.

API cuMemGetInfo(std::size_t* free, std::size_t* total) {
  CONTEXT(c);
  *total = Machine::get().memory();
  *free = *total - Machine::get().used(c->device);
  return CUDA_SUCCESS;
}
API cuMemAlloc(CUdeviceptr* where, std::size_t bytes) {
  CONTEXT(c);
  return allocate(c, bytes, Kind::Device, where);
}
API cuMemAllocPitch(CUdeviceptr* where, std::size_t* pitch, std::size_t width, std::size_t height, unsigned) {
  CONTEXT(c);
  *pitch = round_up(width, kUnit);
  return allocate(c, *pitch * height, Kind::Device, where);
}
API cuMemAllocManaged(CUdeviceptr* where, std::size_t bytes, unsigned) {
  CONTEXT(c);
  return allocate(c, bytes, Kind::Managed, where);
}
API cuMemFree(CUdeviceptr where) {
  CONTEXT(c);
  c->synchronize();
  return release(where);
}
API cuMemAllocHost(void** where, std::size_t bytes) {
  CONTEXT(c);
  return allocate(c, bytes, Kind::Pinned, reinterpret_cast<CUdeviceptr*>(where));
}
API cuMemHostAlloc(void** where, std::size_t bytes, unsigned) {
  CONTEXT(c);
  return allocate(c, bytes, Kind::Pinned, reinterpret_cast<CUdeviceptr*>(where));
}
API cuMemFreeHost(void* where) { return release(reinterpret_cast<CUdeviceptr>(where)); }
API cuMemHostRegister(void* where, std::size_t bytes, unsigned) {
  CONTEXT(c);
  const std::lock_guard lock(mutex);
  allocations[reinterpret_cast<CUdeviceptr>(where)] = {bytes, Kind::Registered, c->device, nullptr};
  return CUDA_SUCCESS;
}
API cuMemHostUnregister(void* where) { return release(reinterpret_cast<CUdeviceptr>(where)); }
API cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr where) {
  const std::lock_guard lock(mutex);
  auto found = allocations.upper_bound(where);
  if (found == allocations.begin()) return CUDA_ERROR_INVALID_VALUE;
  --found;
  if (where >= found->first + found->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  const bool host = found->second.kind == Kind::Pinned || found->second.kind == Kind::Registered;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = found->second.device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(value) = found->second.kind == Kind::Managed;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// Virtual memory: it is gone with the last reference and the last mapping.

API cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                  CUmemAllocationGranularity_flags) {
  *bytes = std::size_t{2} << 20;
  return CUDA_SUCCESS;
}
API cuMemAddressReserve(CUdeviceptr* where, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *where = reinterpret_cast<CUdeviceptr>(memory);
  return memory == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
API cuMemAddressFree(CUdeviceptr where, std::size_t bytes) {
  munmap(reinterpret_cast<void*>(where), bytes);
  return CUDA_SUCCESS;
}
API cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                const CUmemAllocationProp* properties, unsigned long long) {
  INITIALIZED;
  const int device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties->location.id : -1;
  if (device >= 0 && !Machine::get().take(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = memfd_create("standin", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(new Physical{bytes, file, device, 1});
  return CUDA_SUCCESS;
}
API cuMemRelease(CUmemGenericAllocationHandle handle) {
  drop(reinterpret_cast<Physical*>(handle));
  return CUDA_SUCCESS;
}
API cuMemMap(CUdeviceptr where, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long) {
  INITIALIZED;
  auto* const physical = reinterpret_cast<Physical*>(handle);
  if (mmap(reinterpret_cast<void*>(where), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
           physical->file, static_cast<off_t>(offset)) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex);
  ++physical->references;
  mappings[where] = physical;
  allocations[where] = {bytes, Kind::Mapped, physical->device, nullptr};
  return CUDA_SUCCESS;
}
API cuMemUnmap(CUdeviceptr where, std::size_t bytes) {
  std::vector<Physical*> gone;
  {
    const std::lock_guard lock(mutex);
    for (auto one = mappings.lower_bound(where); one != mappings.end() && one->first < where + bytes;) {
      gone.push_back(one->second);
      allocations.erase(one->first);
      one = mappings.erase(one);
    }
  }
  mmap(reinterpret_cast<void*>(where), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  for (Physical* physical : gone) drop(physical);
  return CUDA_SUCCESS;
}
API cuMemSetAccess(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) { return CUDA_SUCCESS; }
API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* where) {
  const std::lock_guard lock(mutex);
  const auto found = mappings.find(reinterpret_cast<CUdeviceptr>(where));
  if (found == mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  ++found->second->references;
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(found->second);
  return CUDA_SUCCESS;
}

// Pools.

namespace {
Pool* current_pool(int device) {
  if (current_pools[device] == nullptr) {
    default_pools[device].device = device;
    current_pools[device] = &default_pools[device];
  }
  return current_pools[device];
}
CUresult free_later(CUdeviceptr where, CUstream stream, bool per_thread) {
  return enqueue(stream, per_thread, [where] { release(where); });
}
}  // namespace
API cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  default_pools[device].device = device;
  *pool = reinterpret_cast<CUmemoryPool>(&default_pools[device]);
  return CUDA_SUCCESS;
}
API cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  *pool = reinterpret_cast<CUmemoryPool>(current_pool(device));
  return CUDA_SUCCESS;
}
API cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  INITIALIZED;
  auto* const made = new Pool;
  made->device = properties->location.id;
  *pool = reinterpret_cast<CUmemoryPool>(made);
  return CUDA_SUCCESS;
}
API cuMemPoolDestroy(CUmemoryPool) { return CUDA_SUCCESS; }
API cuMemPoolTrimTo(CUmemoryPool pool, std::size_t most) {
  const std::lock_guard lock(mutex);
  trim(*reinterpret_cast<Pool*>(pool), most);
  return CUDA_SUCCESS;
}
API cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return CUDA_ERROR_NOT_SUPPORTED;
  reinterpret_cast<Pool*>(pool)->threshold = *static_cast<std::uint64_t*>(value);
  return CUDA_SUCCESS;
}
API cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const auto* const one = reinterpret_cast<Pool*>(pool);
  auto& number = *static_cast<std::uint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      number = one->threshold;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      number = one->used;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      number = one->used_high;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      number = one->reserved;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      number = one->reserved_high;
      break;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

// Streams, events, copies, launches: each function twice, for the legacy and for the per-thread default
// stream.

API cuStreamCreate(CUstream* stream, unsigned flags) {
  CONTEXT(c);
  *stream = c->add(std::make_shared<Stream>(flags));
  return CUDA_SUCCESS;
}
API cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}
API cuStreamDestroy(CUstream stream) {
  CONTEXT(c);
  c->remove(stream);
  return CUDA_SUCCESS;
}
API cuEventCreate(CUevent* event, unsigned) {
  CONTEXT(c);
  *event = reinterpret_cast<CUevent>(new Event);
  return CUDA_SUCCESS;
}
API cuEventDestroy(CUevent) { return CUDA_SUCCESS; }  // a stream may still fire it
API cuEventQuery(CUevent event) {
  CONTEXT(c);
  auto* const one = reinterpret_cast<Event*>(event);
  const std::lock_guard lock(one->mutex);
  if (one->capture) return CUDA_ERROR_CAPTURED_EVENT;
  return one->fired == one->recorded ? result_of(c) : CUDA_ERROR_NOT_READY;
}
API cuEventSynchronize(CUevent event) {
  CONTEXT(c);
  auto* const one = reinterpret_cast<Event*>(event);
  std::unique_lock lock(one->mutex);
  const std::uint64_t number = one->recorded;
  one->changed.wait(lock, [&] { return one->fired >= number; });
  return result_of(c);
}
API cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  *milliseconds = 0;
  return CUDA_SUCCESS;
}

namespace {

CUresult stream_query(CUstream handle, bool per_thread) {
  CONTEXT(c);
  const auto stream = c->stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return stream->idle() ? result_of(c) : CUDA_ERROR_NOT_READY;
}
CUresult stream_synchronize(CUstream handle, bool per_thread) {
  CONTEXT(c);
  const auto stream = c->stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream->wait_for(stream->submitted());
  return result_of(c);
}
CUresult wait_event(CUstream handle, CUevent event, bool per_thread) {
  CONTEXT(c);
  auto* const one = reinterpret_cast<Event*>(event);
  const auto stream = c->stream(handle, per_thread);
  std::uint64_t number;
  {
    const std::lock_guard lock(one->mutex);
    number = one->recorded;
    // Waiting for a captured event draws the stream into the capture, as on a GPU.
    if (one->capture) {
      stream->capture = one->capture;
      return CUDA_SUCCESS;
    }
  }
  return enqueue(handle, per_thread, [one, number] {
    std::unique_lock lock(one->mutex);
    one->changed.wait(lock, [&] { return one->fired >= number; });
  });
}
CUresult record_event(CUevent event, CUstream handle, bool per_thread) {
  CONTEXT(c);
  auto* const one = reinterpret_cast<Event*>(event);
  const auto stream = c->stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::uint64_t number;
  {
    const std::lock_guard lock(one->mutex);
    one->capture = stream->capture;
    if (one->capture) return CUDA_SUCCESS;
    number = ++one->recorded;
  }
  return enqueue(handle, per_thread, [one, number] {
    const std::lock_guard lock(one->mutex);
    one->fired = std::max(one->fired, number);
    one->changed.notify_all();
  });
}
CUresult begin_capture(CUstream handle, bool per_thread) {
  CONTEXT(c);
  const auto stream = c->stream(handle, per_thread);
  if (stream == nullptr || stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = std::make_shared<Graph>();
  return CUDA_SUCCESS;
}
CUresult end_capture(CUstream handle, CUgraph* graph, bool per_thread) {
  CONTEXT(c);
  const auto stream = c->stream(handle, per_thread);
  if (stream == nullptr || !stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  const auto captured = stream->capture;
  for (const auto& other : c->all_streams()) {
    if (other->capture == captured) other->capture = nullptr;
  }
  *graph = reinterpret_cast<CUgraph>(new std::shared_ptr<Graph>(captured));
  return CUDA_SUCCESS;
}
CUresult is_capturing(CUstream handle, CUstreamCaptureStatus* status, bool per_thread) {
  CONTEXT(c);
  const auto stream = c->stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status = stream->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult context_of(CUstream handle, CUcontext* context, bool per_thread) {
  INITIALIZED;
  if (current() != nullptr && current()->stream(handle, per_thread) != nullptr) {
    *context = reinterpret_cast<CUcontext>(current());
    return CUDA_SUCCESS;
  }
  for (Context* const one : primary) {
    if (one == nullptr || one->stream(handle, per_thread) == nullptr) continue;
    *context = reinterpret_cast<CUcontext>(one);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_HANDLE;
}
CUresult launch_graph(CUgraphExec graph, CUstream handle, bool per_thread) {
  const auto one = *reinterpret_cast<std::shared_ptr<Graph>*>(graph);
  return enqueue(handle, per_thread, [one] {
    for (const Work& work : one->work) work();
  });
}

/// A kernel: its name, and the host function that does its work where there is one.
struct Kernel {
  std::string name;
  void (*execute)(void**) = nullptr;
};
CUresult launch(CUfunction function, CUstream handle, bool per_thread) {
  static const char* const fault = std::getenv("ACCEL_STANDIN_FAULT_KERNEL");
  static const char* const hang = std::getenv("ACCEL_STANDIN_HANG_KERNEL");
  const std::string& name = reinterpret_cast<Kernel*>(function)->name;
  const bool faults = fault != nullptr && name.find(fault) != std::string::npos;
  const bool hangs = hang != nullptr && name.find(hang) != std::string::npos;
  Context* const c = current();
  return enqueue(handle, per_thread, [=] {
    while (hangs) pause();
    if (faults) c->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
  });
}

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream, bool per_thread,
              bool wait) {
  const Work work = [=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes); };
  return wait ? execute(stream, per_thread, work) : enqueue(stream, per_thread, work);
}
CUresult set(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream, bool per_thread,
             bool wait) {
  const Work work = [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); };
  return wait ? execute(stream, per_thread, work) : enqueue(stream, per_thread, work);
}
CUresult allocate_in(Pool* pool, CUdeviceptr* where, std::size_t bytes, CUstream handle, bool per_thread) {
  CONTEXT(c);
  const auto stream = c->stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return allocate(c, bytes, Kind::Pool, where, pool != nullptr ? pool : current_pool(c->device));
}

}  // namespace

// clang-format off
#define BOTH(name, suffix, parameters, call) \
  API name parameters { constexpr bool kPerThread = false; return call; } \
  API name##suffix parameters { constexpr bool kPerThread = true; return call; }
BOTH(cuStreamQuery, _ptsz, (CUstream s), stream_query(s, kPerThread))
BOTH(cuStreamSynchronize, _ptsz, (CUstream s), injected("cuStreamSynchronize") ? CUDA_ERROR_ILLEGAL_ADDRESS : stream_synchronize(s, kPerThread))
BOTH(cuStreamWaitEvent, _ptsz, (CUstream s, CUevent e, unsigned), wait_event(s, e, kPerThread))
BOTH(cuEventRecord, _ptsz, (CUevent e, CUstream s), record_event(e, s, kPerThread))
BOTH(cuStreamBeginCapture_v2, _ptsz, (CUstream s, CUstreamCaptureMode), begin_capture(s, kPerThread))
BOTH(cuStreamEndCapture, _ptsz, (CUstream s, CUgraph* g), end_capture(s, g, kPerThread))
BOTH(cuStreamIsCapturing, _ptsz, (CUstream s, CUstreamCaptureStatus* v), is_capturing(s, v, kPerThread))
BOTH(cuStreamGetCtx, _ptsz, (CUstream s, CUcontext* c), context_of(s, c, kPerThread))
BOTH(cuGraphLaunch, _ptsz, (CUgraphExec g, CUstream s), launch_graph(g, s, kPerThread))
BOTH(cuLaunchHostFunc, _ptsz, (CUstream s, CUhostFn f, void* u), enqueue(s, kPerThread, [=] { f(u); }))
BOTH(cuLaunchKernel, _ptsz, (CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             CUstream s, void**, void**), launch(f, s, kPerThread))
BOTH(cuMemcpy, _ptds, (CUdeviceptr a, CUdeviceptr b, std::size_t n), copy(a, b, n, nullptr, kPerThread, true))
BOTH(cuMemcpyAsync, _ptsz, (CUdeviceptr a, CUdeviceptr b, std::size_t n, CUstream s), copy(a, b, n, s, kPerThread, false))
BOTH(cuMemsetD8_v2, _ptds, (CUdeviceptr a, unsigned char v, std::size_t n), set(a, v, n, nullptr, kPerThread, true))
BOTH(cuMemsetD8Async, _ptsz, (CUdeviceptr a, unsigned char v, std::size_t n, CUstream s), set(a, v, n, s, kPerThread, false))
BOTH(cuMemAllocAsync, _ptsz, (CUdeviceptr* p, std::size_t n, CUstream s), allocate_in(nullptr, p, n, s, kPerThread))
BOTH(cuMemAllocFromPoolAsync, _ptsz, (CUdeviceptr* p, std::size_t n, CUmemoryPool q, CUstream s),
     allocate_in(reinterpret_cast<Pool*>(q), p, n, s, kPerThread))
BOTH(cuMemFreeAsync, _ptsz, (CUdeviceptr p, CUstream s), free_later(p, s, kPerThread))
// clang-format on

API cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  INITIALIZED;
  *executable = reinterpret_cast<CUgraphExec>(
      new std::shared_ptr<Graph>(*reinterpret_cast<std::shared_ptr<Graph>*>(graph)));
  return CUDA_SUCCESS;
}
API cuGraphExecDestroy(CUgraphExec graph) {
  delete reinterpret_cast<std::shared_ptr<Graph>*>(graph);
  return CUDA_SUCCESS;
}
API cuGraphDestroy(CUgraph graph) {
  delete reinterpret_cast<std::shared_ptr<Graph>*>(graph);
  return CUDA_SUCCESS;
}
API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(own, *mode);
  return CUDA_SUCCESS;
}

// Code.

API cuModuleLoadData(CUmodule* module, const void*) {
  INITIALIZED;
  *module = reinterpret_cast<CUmodule>(new std::set<std::string>);
  return CUDA_SUCCESS;
}
API cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
API cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  *function = reinterpret_cast<CUfunction>(new Kernel{name});
  return CUDA_SUCCESS;
}

// Look-up.

API cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags);
API cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult* status);

namespace {

struct EntryPoint {
  const char* name;
  int version;
  bool per_thread;
  void* function;
};

CUresult not_supported() { return CUDA_ERROR_NOT_SUPPORTED; }

// clang-format off
#define ONE(name, version, symbol) {#name, version, false, reinterpret_cast<void*>(symbol)},
#define TWO(name, version, per_thread_version, symbol, suffix)               \
  {#name, version, false, reinterpret_cast<void*>(symbol)},                  \
  {#name, per_thread_version, true, reinterpret_cast<void*>(symbol##suffix)},
const EntryPoint kEntryPoints[] = {
  {"cuInit", 2000, false, reinterpret_cast<void*>(::cuInit)},
  {"cuMemAlloc", 3020, false, reinterpret_cast<void*>(::cuMemAlloc_v2)},
  {"cuMemAllocPitch", 3020, false, reinterpret_cast<void*>(::cuMemAllocPitch_v2)},
  {"cuMemFree", 3020, false, reinterpret_cast<void*>(::cuMemFree_v2)},
  {"cuMemAllocHost", 3020, false, reinterpret_cast<void*>(::cuMemAllocHost_v2)},
  {"cuMemGetInfo", 3020, false, reinterpret_cast<void*>(::cuMemGetInfo_v2)},
  {"cuMemHostRegister", 6050, false, reinterpret_cast<void*>(::cuMemHostRegister_v2)},
  {"cuCtxCreate", 3020, false, reinterpret_cast<void*>(::cuCtxCreate_v2)},
  {"cuCtxDestroy", 4000, false, reinterpret_cast<void*>(::cuCtxDestroy_v2)},
  {"cuCtxPushCurrent", 4000, false, reinterpret_cast<void*>(::cuCtxPushCurrent_v2)},
  {"cuCtxPopCurrent", 4000, false, reinterpret_cast<void*>(::cuCtxPopCurrent_v2)},
  {"cuDevicePrimaryCtxRelease", 11000, false, reinterpret_cast<void*>(::cuDevicePrimaryCtxRelease_v2)},
  {"cuDevicePrimaryCtxReset", 11000, false, reinterpret_cast<void*>(::cuDevicePrimaryCtxReset_v2)},
  {"cuDeviceTotalMem", 3020, false, reinterpret_cast<void*>(::cuDeviceTotalMem_v2)},
  {"cuDeviceGetUuid", 9020, false, reinterpret_cast<void*>(cuDeviceGetUuid)},
  {"cuDeviceGetUuid", 11040, false, reinterpret_cast<void*>(cuDeviceGetUuid_v2)},
  {"cuStreamDestroy", 4000, false, reinterpret_cast<void*>(::cuStreamDestroy_v2)},
  {"cuEventDestroy", 4000, false, reinterpret_cast<void*>(::cuEventDestroy_v2)},
  {"cuGetProcAddress", 11030, false, reinterpret_cast<void*>(cuGetProcAddress)},
  {"cuGetProcAddress", 12000, false, reinterpret_cast<void*>(cuGetProcAddress_v2)},
  ONE(cuDriverGetVersion, 2020, ::cuDriverGetVersion)
  ONE(cuGetErrorName, 6000, ::cuGetErrorName) ONE(cuGetErrorString, 6000, ::cuGetErrorString)
  ONE(cuGetExportTable, 3000, ::cuGetExportTable)
  ONE(cuDeviceGet, 2000, ::cuDeviceGet) ONE(cuDeviceGetCount, 2000, ::cuDeviceGetCount)
  ONE(cuDeviceGetName, 2000, ::cuDeviceGetName) ONE(cuDeviceGetAttribute, 2000, ::cuDeviceGetAttribute)
  ONE(cuDeviceGetPCIBusId, 4010, ::cuDeviceGetPCIBusId)
  ONE(cuDevicePrimaryCtxRetain, 7000, ::cuDevicePrimaryCtxRetain)
  ONE(cuDevicePrimaryCtxGetState, 7000, ::cuDevicePrimaryCtxGetState)
  ONE(cuCtxSetCurrent, 4000, ::cuCtxSetCurrent) ONE(cuCtxGetCurrent, 4000, ::cuCtxGetCurrent)
  ONE(cuCtxGetDevice, 2000, ::cuCtxGetDevice) ONE(cuCtxSynchronize, 2000, ::cuCtxSynchronize)
  ONE(cuMemAllocManaged, 6000, ::cuMemAllocManaged) ONE(cuMemHostAlloc, 2020, ::cuMemHostAlloc)
  ONE(cuMemFreeHost, 2000, ::cuMemFreeHost) ONE(cuMemHostUnregister, 4000, ::cuMemHostUnregister)
  ONE(cuPointerGetAttribute, 4000, ::cuPointerGetAttribute)
  ONE(cuMemGetAllocationGranularity, 10020, ::cuMemGetAllocationGranularity)
  ONE(cuMemAddressReserve, 10020, ::cuMemAddressReserve) ONE(cuMemAddressFree, 10020, ::cuMemAddressFree)
  ONE(cuMemCreate, 10020, ::cuMemCreate) ONE(cuMemRelease, 10020, ::cuMemRelease)
  ONE(cuMemMap, 10020, ::cuMemMap) ONE(cuMemUnmap, 10020, ::cuMemUnmap)
  ONE(cuMemSetAccess, 10020, ::cuMemSetAccess)
  ONE(cuMemRetainAllocationHandle, 11000, ::cuMemRetainAllocationHandle)
  ONE(cuDeviceGetDefaultMemPool, 11020, ::cuDeviceGetDefaultMemPool) ONE(cuDeviceGetMemPool, 11020, ::cuDeviceGetMemPool)
  ONE(cuMemPoolCreate, 11020, ::cuMemPoolCreate) ONE(cuMemPoolDestroy, 11020, ::cuMemPoolDestroy)
  ONE(cuMemPoolTrimTo, 11020, ::cuMemPoolTrimTo) ONE(cuMemPoolGetAttribute, 11020, ::cuMemPoolGetAttribute)
  ONE(cuMemPoolSetAttribute, 11020, ::cuMemPoolSetAttribute)
  ONE(cuStreamCreate, 2000, ::cuStreamCreate) ONE(cuStreamCreateWithPriority, 5050, ::cuStreamCreateWithPriority)
  ONE(cuEventCreate, 2000, ::cuEventCreate) ONE(cuEventQuery, 2000, ::cuEventQuery)
  ONE(cuEventSynchronize, 2000, ::cuEventSynchronize) ONE(cuEventElapsedTime, 2000, cuEventElapsedTime)
  ONE(cuGraphInstantiateWithFlags, 11040, ::cuGraphInstantiateWithFlags)
  ONE(cuGraphExecDestroy, 10000, ::cuGraphExecDestroy) ONE(cuGraphDestroy, 10000, ::cuGraphDestroy)
  ONE(cuThreadExchangeStreamCaptureMode, 10010, ::cuThreadExchangeStreamCaptureMode)
  ONE(cuModuleLoadData, 2000, ::cuModuleLoadData) ONE(cuModuleUnload, 2000, ::cuModuleUnload)
  ONE(cuModuleGetFunction, 2000, ::cuModuleGetFunction)
  TWO(cuStreamQuery, 2000, 7000, ::cuStreamQuery, _ptsz) TWO(cuStreamSynchronize, 2000, 7000, ::cuStreamSynchronize, _ptsz)
  TWO(cuStreamWaitEvent, 3020, 7000, ::cuStreamWaitEvent, _ptsz) TWO(cuEventRecord, 2000, 7000, ::cuEventRecord, _ptsz)
  TWO(cuStreamBeginCapture, 10010, 10010, ::cuStreamBeginCapture_v2, _ptsz)
  TWO(cuStreamEndCapture, 10000, 10000, ::cuStreamEndCapture, _ptsz)
  TWO(cuStreamIsCapturing, 10000, 10000, ::cuStreamIsCapturing, _ptsz)
  TWO(cuStreamGetCtx, 9020, 9020, ::cuStreamGetCtx, _ptsz)
  TWO(cuGraphLaunch, 10000, 10000, ::cuGraphLaunch, _ptsz) TWO(cuLaunchHostFunc, 10000, 10000, ::cuLaunchHostFunc, _ptsz)
  TWO(cuLaunchKernel, 4000, 7000, ::cuLaunchKernel, _ptsz)
  TWO(cuMemcpy, 4000, 7000, ::cuMemcpy, _ptds) TWO(cuMemcpyAsync, 4000, 7000, ::cuMemcpyAsync, _ptsz)
  TWO(cuMemsetD8, 3020, 7000, ::cuMemsetD8_v2, _ptds) TWO(cuMemsetD8Async, 3020, 7000, ::cuMemsetD8Async, _ptsz)
  TWO(cuMemAllocAsync, 11020, 11020, ::cuMemAllocAsync, _ptsz) TWO(cuMemFreeAsync, 11020, 11020, ::cuMemFreeAsync, _ptsz)
  TWO(cuMemAllocFromPoolAsync, 11020, 11020, ::cuMemAllocFromPoolAsync, _ptsz)
};
// All that the toolkit's headers document, so that a real runtime finds what it asks for.
struct Documented {
  const char* name;
  int version;
};
const Documented kDocumented[] = {
#include "standin_documented.inc"
};
// clang-format on

CUresult find(const char* name, void** function, int version, cuuint64_t flags,
              CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (version > CUDA_VERSION) return CUDA_ERROR_INVALID_VALUE;
  const bool wants_per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const EntryPoint* best = nullptr;
  for (const bool per_thread : {true, false}) {
    if (best != nullptr || (per_thread && !wants_per_thread)) continue;
    for (const EntryPoint& one : kEntryPoints) {
      if (std::strcmp(one.name, name) != 0 || one.per_thread != per_thread || one.version > version) continue;
      if (best == nullptr || one.version > best->version) best = &one;
    }
  }
  const bool documented = std::any_of(
      std::begin(kDocumented), std::end(kDocumented),
      [&](const Documented& one) { return std::strcmp(one.name, name) == 0 && one.version <= version; });
  *function = best != nullptr ? best->function
              : documented    ? reinterpret_cast<void*>(not_supported)
                              : nullptr;
  // Another address than the exported one's, for those who recognise functions by address.
  static const bool distinct = std::getenv("ACCEL_STANDIN_DISTINCT") != nullptr;
#if defined(__x86_64__)
  if (distinct && *function != nullptr) {
    static std::map<void*, void*> made;
    const std::lock_guard lock(mutex);
    void*& jump = made[*function];
    if (jump == nullptr) {
      auto* const code = static_cast<unsigned char*>(
          mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      const unsigned char jmp[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};  // mov rax, ..; jmp rax
      std::memcpy(code, jmp, sizeof jmp);
      std::memcpy(code + 2, function, sizeof *function);
      mprotect(code, kPage, PROT_READ | PROT_EXEC);
      jump = code;
    }
    *function = jump;
  }
#endif
  if (status != nullptr)
    *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function != nullptr || status != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

API cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags) {
  return find(name, function, version, flags, nullptr);
}
API cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult* status) {
  return find(name, function, version, flags, status);
}
