// Every NCCL row of functions.def. Real functions are pncclX: no wrapper of ours stands in front of those.
#include "interpose/export.h"
#include "interpose/nccl/wrapper.h"

using namespace accel;
using namespace accel::role;

#define ACCEL_NCCL_WRAPPER(name, flow, pair, ...)                                                     \
  ACCEL_EXPORT int nccl##name(ACCEL_PARAMETERS(__VA_ARGS__)) {                                        \
    static constinit nccl::Real real(#name);                                                          \
    return nccl::intercept<Function::Nccl##name, Flow::flow, pair>(                                   \
        real, __builtin_return_address(0), __builtin_frame_address(0), ACCEL_ARGUMENTS(__VA_ARGS__)); \
  }
#define NCCL_COLLECTIVE(name, counted, flow, ...) ACCEL_NCCL_WRAPPER(name, flow, false, __VA_ARGS__)
#define NCCL_PAIR(name, counted, flow, ...) ACCEL_NCCL_WRAPPER(name, flow, true, __VA_ARGS__)
#include "signature/functions.def"
