// Compiled, never run: holds the NCCL rows of the table against a real nccl.h, of whatever version.
#include <nccl.h>

#include <type_traits>

#include "signature/datatype.h"
#include "signature/function.h"

namespace {

using namespace accel;
using namespace accel::role;

template <class Function>
struct Prototype;
template <class Result, class... Arguments>
struct Prototype<Result(Arguments...)> {
  /// Same number of arguments, each role as wide as the argument and no role for something else: what is
  /// compared is what NCCL takes for it.
  template <class... Roles>
  static constexpr bool fits() {
    if constexpr (sizeof...(Arguments) != sizeof...(Roles)) {
      return false;
    } else {
      return (matches<Arguments, Roles>() && ...);
    }
  }
  template <class Argument, class Role>
  static constexpr bool matches() {
    if constexpr (std::is_same_v<Role, NcclType>) return std::is_same_v<Argument, ncclDataType_t>;
    if constexpr (std::is_same_v<Role, NcclOp>) return std::is_same_v<Argument, ncclRedOp_t>;
    if constexpr (std::is_same_v<Role, NcclComm>) return std::is_same_v<Argument, ncclComm_t>;
    if constexpr (std::is_same_v<Role, Stream>) return std::is_same_v<Argument, cudaStream_t>;
    if constexpr (std::is_same_v<Role, Elements>) return std::is_same_v<Argument, std::size_t>;
    return sizeof(Argument) == sizeof(Role);
  }
};

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
#define SINCE_2_28(name, ...) \
  static_assert(Prototype<decltype(::nccl##name)>::fits<__VA_ARGS__>(), "nccl" #name);
#else
#define SINCE_2_28(...)
#endif
#define ALWAYS(name, ...) static_assert(Prototype<decltype(::nccl##name)>::fits<__VA_ARGS__>(), "nccl" #name);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
#define SINCE_2_31(name, ...) ALWAYS(name, __VA_ARGS__)
#else
#define SINCE_2_31(...)
#endif

#define AllReduce_IS ALWAYS
#define Broadcast_IS ALWAYS
#define Bcast_IS ALWAYS
#define Reduce_IS ALWAYS
#define AllGather_IS ALWAYS
#define ReduceScatter_IS ALWAYS
#define AlltoAll_IS SINCE_2_28
#define Gather_IS SINCE_2_28
#define Scatter_IS SINCE_2_28
#define AllReduceConfig_IS SINCE_2_31
#define BroadcastConfig_IS SINCE_2_31
#define ReduceConfig_IS SINCE_2_31
#define AllGatherConfig_IS SINCE_2_31
#define ReduceScatterConfig_IS SINCE_2_31
#define AlltoAllConfig_IS SINCE_2_31
#define GatherConfig_IS SINCE_2_31
#define ScatterConfig_IS SINCE_2_31
#define Send_IS ALWAYS
#define Recv_IS ALWAYS
#define NCCL_COLLECTIVE(name, counted, flow, ...) name##_IS(name, __VA_ARGS__)
#define NCCL_PAIR(name, counted, flow, ...) name##_IS(name, __VA_ARGS__)
#include "signature/functions.def"

static_assert(sizeof(ncclUniqueId) == 128);
static_assert(ncclSuccess == 0 && ncclInvalidUsage == 5);
static_assert(ncclInt8 == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclUint32 == 3 && ncclInt64 == 4 &&
              ncclUint64 == 5 && ncclFloat16 == 6 && ncclFloat32 == 7 && ncclFloat64 == 8);
static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3);

}  // namespace
