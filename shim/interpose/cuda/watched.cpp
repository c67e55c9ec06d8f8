// Driver functions whose result is looked at, and those in which a thread waits for the GPU: made from their
// rows.
#include <utility>

#include "interpose/cuda/ledger.h"
#include "interpose/cuda/real.h"
#include "interpose/export.h"

namespace accel::cuda {
namespace {

/// Every argument of these functions is an integer or a pointer: passed as a word each, in registers or on
/// the stack.
using Word = std::uintptr_t;

[[gnu::noinline, gnu::cold]] void look_at(const Origin& origin, int result) {
  Ledger* const ledger = Ledger::get();
  if (ledger == nullptr) return;
  const DepthGuard guard(driver_state.nested);
  if (result == driver::kOutOfMemory) ledger->failed(origin, MemoryKind::Count_, 0, Ledger::current_device());
  if (driver::breaks_context(result)) ledger->broke(origin, result);
  if (result == driver::kSuccess && driver_state.open != nullptr) ledger->went_on();
}

/// Marks the thread as waiting for the GPU.
class Waiting {
 public:
  explicit Waiting(DriverWait wait) {
    Recorder* const recorder = wait != DriverWait::None ? Process::self().recorder() : nullptr;
    record_ = recorder != nullptr ? thread_record(*recorder) : nullptr;
    if (record_ != nullptr)
      __atomic_store_n(&record_->driver_wait, static_cast<std::uint32_t>(wait), __ATOMIC_RELAXED);
  }
  ~Waiting() {
    if (record_ != nullptr) __atomic_store_n(&record_->driver_wait, 0, __ATOMIC_RELAXED);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  ThreadRecord* record_;
};

template <DriverWait wait, class... Words>
int watch(const Origin& origin, Real& real, Words... words) {
  auto* const next = real.get<int(Words...)>();
  if (next == nullptr) return driver::kNoDevice;
  if (driver_state.nested != 0) return next(words...);
  int result;
  if constexpr (wait == DriverWait::None) {
    result = next(words...);
  } else {
    const Waiting waiting(wait);
    result = next(words...);
  }
  constexpr int kNotReady = 600;
  const bool ordinary = (result == driver::kSuccess && driver_state.open == nullptr) || result == kNotReady;
  if (!ordinary) [[unlikely]]
    look_at(origin, result);
  return result;
}

}  // namespace
}  // namespace accel::cuda

using namespace accel;
using cuda::Word;

// clang-format off
#define P0
#define P1 Word a
#define P2 P1, Word b
#define P3 P2, Word c
#define P4 P3, Word d
#define P5 P4, Word e
#define P6 P5, Word f
#define P8 P6, Word g, Word h
#define P10 P8, Word i, Word j
#define P11 P10, Word k
#define A0
#define A1 , a
#define A2 A1, b
#define A3 A2, c
#define A4 A3, d
#define A5 A4, e
#define A6 A5, f
#define A8 A6, g, h
#define A10 A8, i, j
#define A11 A10, k
// clang-format on

#define ACCEL_WATCHED(symbol, n, wait)                                                                 \
  ACCEL_EXPORT int symbol(P##n) {                                                                      \
    static constinit cuda::Real real(#symbol);                                                         \
    return cuda::watch<DriverWait::wait>(                                                              \
        {DriverFunction::symbol, __builtin_return_address(0), __builtin_frame_address(0)}, real A##n); \
  }
#define CUDA_WATCHED(symbol, name, version, per_thread, arguments) ACCEL_WATCHED(symbol, arguments, None)
#define CUDA_WAIT(symbol, name, version, per_thread, arguments, wait) ACCEL_WATCHED(symbol, arguments, wait)
#include "signature/driver.def"
