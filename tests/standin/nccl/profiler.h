// NCCL's side of its profiler interface: loads the plugin that NCCL_PROFILER_PLUGIN names and tells it of
// communicators and calls.
//
//   ACCEL_STANDIN_NCCL_PROFILER=5 (default), 4, 1: the newest version of the interface; 0: none
#pragma once
#include <cstdint>

#include "shim/interpose/nccl/profiler_abi.h"

namespace standin {

/// A communicator as the plugin knows it. Without a plugin all of it does nothing.
class Profiled {
 public:
  void begin(std::uint64_t number, int size, int rank);
  void end();
  /// The program's call, as v5 tells it.
  void call(const char* function, std::size_t count, int type, int root, void* stream, bool captured);
  /// From before to after the launch of what runs on a stream.
  void* begin_kernel(void* stream);
  void end_kernel(void* event);
  /// A collective's launch, as v4 tells it; with messages', after the kernel's.
  void launch(const char* function, std::size_t count, int type, int root);
  void message(const char* function, std::size_t count, int type, int peer);

 private:
  void* tell(std::uint64_t type, accel::nccl::EventDescription& event);

  static void stop(void* event);

  void* context_ = nullptr;
  int rank_ = 0;
};

}  // namespace standin
