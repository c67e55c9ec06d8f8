#include "interpose/cuda/streams.h"

#include <atomic>

#include "interpose/cuda/real.h"
#include "interpose/export.h"
#include "signature/driver.h"

namespace accel::cuda {
namespace {

std::atomic<int> captures{0};
std::atomic<void (*)(std::uintptr_t)> listener{nullptr};

template <class... Arguments>
int begin(Real& real, Arguments... arguments) {
  auto* const next = real.get<int(Arguments...)>();
  if (next == nullptr) return driver::kNoDevice;
  const int result = next(arguments...);
  if (result == driver::kSuccess) captures.fetch_add(1);
  return result;
}

int end(Real& real, std::uintptr_t stream, void* graph) {
  auto* const next = real.get<int(std::uintptr_t, void*)>();
  if (next == nullptr) return driver::kNoDevice;
  const int result = next(stream, graph);
  // An invalidated capture ends too.
  if (captures.load() > 0) captures.fetch_sub(1);
  return result;
}

}  // namespace

bool somebody_captures() { return captures.load(std::memory_order_relaxed) != 0; }

bool is_capturing(std::uintptr_t stream) {
  if (!somebody_captures()) [[likely]]
    return false;
  static constinit Real real("cuStreamIsCapturing");
  int status = 0;
  auto* const ask = real.get<int(std::uintptr_t, int*)>();
  return ask != nullptr && ask(stream, &status) == driver::kSuccess && status != 0;
}

void on_stream_end(void (*new_listener)(std::uintptr_t)) { listener.store(new_listener); }

}  // namespace accel::cuda

using namespace accel;
using Word = std::uintptr_t;

ACCEL_EXPORT int cuStreamDestroy_v2(Word stream) {
  static constinit cuda::Real real("cuStreamDestroy_v2");
  auto* const next = real.get<int(Word)>();
  if (next == nullptr) return driver::kNoDevice;
  if (auto* told = cuda::listener.load()) told(stream);
  return next(stream);
}

#define ACCEL_BEGIN(symbol, parameters, ...)   \
  ACCEL_EXPORT int symbol parameters {         \
    static constinit cuda::Real real(#symbol); \
    return cuda::begin(real, __VA_ARGS__);     \
  }
#define ACCEL_END(symbol)                      \
  ACCEL_EXPORT int symbol(Word a, void* b) {   \
    static constinit cuda::Real real(#symbol); \
    return cuda::end(real, a, b);              \
  }
ACCEL_BEGIN(cuStreamBeginCapture, (Word a), a)
ACCEL_BEGIN(cuStreamBeginCapture_ptsz, (Word a), a)
ACCEL_BEGIN(cuStreamBeginCapture_v2, (Word a, int b), a, b)
ACCEL_BEGIN(cuStreamBeginCapture_v2_ptsz, (Word a, int b), a, b)
ACCEL_BEGIN(cuStreamBeginCaptureToGraph, (Word a, void* b, const void* c, const void* d, Word e, int f), a, b,
            c, d, e, f)
ACCEL_BEGIN(cuStreamBeginCaptureToGraph_ptsz, (Word a, void* b, const void* c, const void* d, Word e, int f),
            a, b, c, d, e, f)
ACCEL_END(cuStreamEndCapture)
ACCEL_END(cuStreamEndCapture_ptsz)
