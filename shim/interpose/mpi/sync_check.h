// ACCEL_CHECK=sync: a collective is verified before it runs.
#pragma once
#include "interpose/mpi/communicators.h"

namespace accel {

/// Waits until all members have arrived at call `sequence` and compares. 0: they agree (or it cannot be told:
/// members on other nodes, somebody has left). Else the MPI error that the call is to return on this rank, as
/// on all others; does not return where the communicator's error handler ends the job.
int verify_before(const CommunicatorInfo& communicator, std::uint64_t sequence, Handle handle);

}  // namespace accel
