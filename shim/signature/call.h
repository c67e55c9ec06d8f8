// One intercepted call as the application made it: raw arguments by meaning, nothing looked up yet.
#pragma once
#include <cstdint>

namespace accel {

/// A communicator, datatype or op as the application passes it: a pointer in Open MPI, a 32-bit integer in
/// MPICH, whose upper half may then be garbage (clang -O0 leaves it so from the 7th argument on).
using Handle = std::uintptr_t;
inline constexpr Handle kNoHandle = ~Handle{0};

/// One side's buffer: where, how many, of what. Vector collectives have one count (and for Alltoallw one
/// type) a peer: the arrays belong to the application and are valid during the call only.
struct Side {
  const void* buffer = nullptr;
  std::int64_t count = 0;
  Handle type = 0;
  const int* counts = nullptr;
  const void* types = nullptr;  ///< array of handles, 4 or 8 bytes each (Alltoallw)
};

struct Call {
  Side send;  ///< functions with one count and type for both directions use `send`
  Side recv;
  Handle op = 0;
  Handle communicator = 0;
  const void* communicator_in_memory = nullptr;  ///< Comm_free takes the handle's address instead
  void* new_communicator = nullptr;              ///< where the function stores the communicator it creates
  const void* configuration = nullptr;           ///< NCCL: ncclCollConfig_t
  Handle stream = 0;                             ///< NCCL: the CUDA stream that does the work
  std::int32_t root = -1;
  std::int32_t peer = -1;
  std::int32_t tag = -1;
};

}  // namespace accel
