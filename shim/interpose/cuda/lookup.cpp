// cuGetProcAddress: the way on which the CUDA runtime, statically linked or not, gets at the driver. It asks
// for the function itself again and then uses what it was given, so that must be ours too.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

#include "interpose/cuda/ledger.h"
#include "interpose/cuda/real.h"
#include "interpose/export.h"
#include "report/log.h"

extern "C" {
// Only their addresses matter here.
#define CUDA_MEMORY(symbol, ...) int symbol();
#define CUDA_WATCHED(symbol, ...) int symbol();
#define CUDA_WAIT(symbol, ...) int symbol();
#define CUDA_STREAM(symbol, ...) int symbol();
#include "signature/driver.def"
int cuGetProcAddress(const char*, void**, int, std::uint64_t);
int cuGetProcAddress_v2(const char*, void**, int, std::uint64_t, void*);
}

namespace accel::cuda {
namespace {

/// Up to this CUDA version driver.def knows every revision of its names. A newer one may have other
/// arguments.
constexpr int kNewestKnown = 13000;
constexpr std::uint64_t kPerThread = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM

struct Row {
  const char* name;
  int version;
  bool per_thread;
  void* wrapper;
  Real real;
};

Row rows[] = {
#define ROW(symbol, name, version, per_thread) \
  {#name, version, per_thread, reinterpret_cast<void*>(symbol), Real(#symbol)},
#define CUDA_MEMORY(symbol, name, version, per_thread) ROW(symbol, name, version, per_thread)
#define CUDA_WATCHED(symbol, name, version, per_thread, ...) ROW(symbol, name, version, per_thread)
#define CUDA_WAIT(symbol, name, version, per_thread, ...) ROW(symbol, name, version, per_thread)
#define CUDA_STREAM(symbol, name, version, per_thread) ROW(symbol, name, version, per_thread)
#define CUDA_LOOKUP(symbol, name, version, per_thread) ROW(symbol, name, version, per_thread)
#include "signature/driver.def"
#undef ROW
};

std::atomic<int> looked_up{0};
std::atomic<int> handed_out{0};

/// Says on which way the program reaches the driver: one that reaches it on none that we see is the worst
/// case.
__attribute__((destructor)) void say_how_it_is_reached() {
  if (looked_up.load() == 0) return;
  Process& process = Process::self();
  if (process.recorder() == nullptr) {
    std::vector<std::string> complaints;
    log().configure(Settings::from_environment(complaints), "", -1);
  }
  log().say(LogLevel::Info,
            fmt::format("CUDA driver: reached by cuGetProcAddress; {} look-ups, {} of them observed",
                        looked_up.load(), handed_out.load()));
}

/// The driver exports that very address under some name.
bool is_exported(void* function) {
  Dl_info info;
  return dladdr(function, &info) != 0 && info.dli_saddr == function && info.dli_sname != nullptr;
}

/// The wrapper for what the driver has given; nullptr if there is none.
void* find_wrapper_for(const char* name, void* given, int version, std::uint64_t flags) {
  if (given == nullptr) return nullptr;
  for (Row& row : rows) {
    // A driver whose own references were bound to us gives our wrappers already.
    if (row.wrapper == given) return given;
    if (row.real.address() == given) return row.wrapper;
  }
  // Another revision than those we know, or another address than the exported one.
  if (is_exported(given) || version > kNewestKnown) return nullptr;
  Row* best = nullptr;
  bool has_per_thread = false;
  for (const Row& row : rows)
    has_per_thread = has_per_thread || (row.per_thread && std::strcmp(row.name, name) == 0);
  const bool per_thread = (flags & kPerThread) != 0 && has_per_thread;
  for (Row& row : rows) {
    const bool fits =
        std::strcmp(row.name, name) == 0 && row.per_thread == per_thread && row.version <= version;
    if (fits && (best == nullptr || row.version > best->version)) best = &row;
  }
  if (best == nullptr) return nullptr;
  best->real.offer(given);
  return best->wrapper;
}

void* replace(const char* name, void* given, int version, std::uint64_t flags) {
  if (looked_up.fetch_add(1, std::memory_order_relaxed) == 0) Process::self().reached(kUsesCuda);
  void* ours = find_wrapper_for(name, given, version, flags);
  if (ours == nullptr) return given;
  handed_out.fetch_add(1, std::memory_order_relaxed);
  return ours;
}

}  // namespace
}  // namespace accel::cuda

using namespace accel;

ACCEL_EXPORT int cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
  static constinit cuda::Real real("cuGetProcAddress");
  auto* const next = real.get<int(const char*, void**, int, std::uint64_t)>();
  if (next == nullptr) return driver::kNotFound;
  const int result = next(name, function, version, flags);
  if (result == driver::kSuccess && function != nullptr && name != nullptr)
    *function = cuda::replace(name, *function, version, flags);
  return result;
}

ACCEL_EXPORT int cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags,
                                     void* status) {
  static constinit cuda::Real real("cuGetProcAddress_v2");
  auto* const next = real.get<int(const char*, void**, int, std::uint64_t, void*)>();
  if (next == nullptr) return driver::kNotFound;
  const int result = next(name, function, version, flags, status);
  if (result == driver::kSuccess && function != nullptr && name != nullptr)
    *function = cuda::replace(name, *function, version, flags);
  return result;
}
