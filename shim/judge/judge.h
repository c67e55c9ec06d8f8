// Evidence in, verdicts out. Pure: no I/O, no clock, no threads, no state.
//
// A fault is reported only if it cannot resolve itself:
//   mismatch    two ranks' calls with the same number on the same communicator do not agree, whoever made
//   them early exit  a rank waits, in a call that cannot return without another rank, for one that has left
//   deadlock    a circle of ranks each blocked in a call that cannot return without the next; or all ranks of
//   the job
//               stand still for ten seconds, each in a collective that another one has not called
// Everything else that stands still is a matter of time: Late after warn_after, TimeOut after timeout.
//
// Ranks of other nodes may be invisible here: nothing is concluded from the absence of a process.
#pragma once
#include <cstdint>
#include <vector>

#include "judge/verdict.h"

namespace accel {

struct JudgePolicy {
  std::int64_t timeout_ns = 600'000'000'000;    ///< 0: never
  std::int64_t warn_after_ns = 30'000'000'000;  ///< 0: never
  /// How long a process whose allocation has failed may stand still while others wait for it; 0: for ever.
  std::int64_t oom_grace_ns = 60'000'000'000;
  /// Waiting counts from here at the earliest: the observer itself was asleep before (SIGSTOP, a suspended
  /// job).
  std::int64_t not_before_ns = 0;
  /// How long a mismatch waits for ranks that have not made the call yet, so that the majority can be told.
  std::int64_t settle_ns = 100'000'000;
  /// How long a rank must have been gone before one that waits for it in point-to-point or in MPI_Finalize is
  /// taken to wait in vain: its last message may still be under way.
  std::int64_t gone_settle_ns = 2'000'000'000;
  /// A collective may return on a rank without one that contributes nothing to it: how long it must have
  /// lasted before a member that has left without making the call is taken to be what it waits for.
  std::int64_t missing_settle_ns = 300'000'000;
  /// How long all ranks of a job must have stood still, each in a collective that somebody else has not
  /// called, before that is a deadlock though no circle is certain.
  std::int64_t standstill_ns = 10'000'000'000;
  /// The job is being ended from outside: ranks disappear for that reason.
  bool ending = false;
};

/// The faults and warnings that the evidence supports, most certain and most original first.
std::vector<Verdict> judge(const Evidence& evidence, const JudgePolicy& policy);

/// How a process is described that is in no call: "is outside MPI", "waits in cudaStreamSynchronize", ...
std::string describe_absence(const ProcessEvidence& process);

/// How a process is described that has left: "called MPI_Finalize", "was killed by signal 9 (SIGKILL)", ...
std::string describe_departure(const ProcessEvidence& process);

}  // namespace accel
