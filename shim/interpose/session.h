// What wrappers of all libraries share.
#pragma once
#include <utility>

#include "lifecycle/process.h"
#include "lifecycle/stop_point.h"

namespace accel {

/// Per thread. Nested: inside one of our wrappers, so that MPI_X -> PMPI_X and what the library calls itself
/// count once.
struct ThreadState {
  int nested = 0;
  bool claimed = false;
  ThreadRecord* record = nullptr;
};
inline thread_local ThreadState thread_state __attribute__((tls_model("initial-exec")));

/// Counts a depth up for as long as it lives.
class DepthGuard {
 public:
  explicit DepthGuard(int& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

/// This thread's slot in the record.
inline ThreadRecord* thread_record(Recorder& recorder) {
  if (!thread_state.claimed) [[unlikely]] {
    thread_state.claimed = true;
    thread_state.record = recorder.claim_thread();
  }
  return thread_state.record;
}

/// What a wrapper needs at hand.
struct Session {
  Recorder* recorder = nullptr;
  CallSites* sites = nullptr;
  bool sync = false;
};

/// A signal that stops all ranks here, if somebody has asked for one (stop_before). Its handler may use MPI.
inline void stop_if_asked(std::uint64_t communicator, std::uint64_t sequence) {
  const int nested = std::exchange(thread_state.nested, 0);
  stop_before(communicator, sequence);
  thread_state.nested = nested;
}

}  // namespace accel
