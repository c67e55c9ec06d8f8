// NCCL's profiler interface, as far as we use it: a data symbol ncclProfiler_vN that NCCL looks up in the
// library that NCCL_PROFILER_PLUGIN names. Source: NCCL's src/include/plugin/profiler/profiler_v*.h. NCCL
// asks for the newest version it knows and goes down to v1: 2.27 knows v4, 2.28 v5, later ones still take v5.
#pragma once
#include <cstddef>
#include <cstdint>

namespace accel::nccl {

/// Bits of the activation mask, and the type of an event.
inline constexpr int kEventColl = 1 << 1;           ///< a collective, when its kernel is being launched
inline constexpr int kEventP2p = 1 << 2;            ///< a send or receive, likewise
inline constexpr int kEventCollApi = 1 << 9;        ///< v5: the program's call
inline constexpr int kEventKernelLaunch = 1 << 11;  ///< v5: from before to after the launch, and before P2p's

/// What an event is about. v4 has a type of 8 bits where v5 has 64; the rest lies alike.
struct EventDescription {
  union {
    std::uint8_t type_v4;
    std::uint64_t type_v5;
  };
  void* parent;
  int rank;
  struct CollApi {
    const char* function;  ///< "AllReduce"
    std::size_t count;
    const char* datatype;  ///< "ncclFloat32"
    int root;
    void* stream;
    bool captured;
  };
  struct Coll {
    std::uint64_t number;
    const char* function;
    const void* send;
    void* receive;
    std::size_t count;
    int root;
    const char* datatype;
  };
  struct P2p {
    const char* function;  ///< "Send", "Recv"
    void* buffer;
    const char* datatype;
    std::size_t count;
    int peer;
  };
  union {
    CollApi coll_api;            ///< v5
    void* kernel_launch_stream;  ///< v5
    Coll coll;
    P2p p2p;
    std::uint64_t room[16];  ///< NCCL's is larger than what we know
  };
};

/// v1 to v3 say nothing of the communicator when it is made.
struct ProfilerV1 {
  const char* name;
  int (*init)(void** context, int* mask);
  int (*start_event)(void* context, void** event, EventDescription* description);
  int (*stop_event)(void* event);
  int (*record_state)(void* event, int state, void* arguments);
  int (*finalize)(void* context);
};
struct ProfilerV4 {
  const char* name;
  int (*init)(void** context, int* mask, const char* communicator_name, std::uint64_t communicator, int nodes,
              int ranks, int rank, void* log);
  int (*start_event)(void* context, void** event, EventDescription* description);
  int (*stop_event)(void* event);
  int (*record_state)(void* event, int state, void* arguments);
  int (*finalize)(void* context);
};
struct ProfilerV5 {
  const char* name;
  int (*init)(void** context, std::uint64_t communicator, int* mask, const char* communicator_name, int nodes,
              int ranks, int rank, void* log);
  int (*start_event)(void* context, void** event, EventDescription* description);
  int (*stop_event)(void* event);
  int (*record_state)(void* event, int state, void* arguments);
  int (*finalize)(void* context);
};

}  // namespace accel::nccl
