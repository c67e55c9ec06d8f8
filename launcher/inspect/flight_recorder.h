// A run as PyTorch's flight recorder dumps it, so that its analyzer (torch.distributed.flight_recorder) reads
// what any program did: NCCL's and MPI's collectives, and NCCL's sends and receives.
//
// Source of the format: the fields that the analyzer of torch 2.6 to 2.15 reads, and what
// torch/csrc/distributed/c10d/FlightRecorder writes there. A file a rank: a pickled dict of "version",
// "pg_config" (the communicators, with the world ranks of their members), "pg_status" and "entries", by
// beginning.
#pragma once
#include <cstdint>
#include <string>

#include "launcher/inspect/collectives.h"

namespace accel {

/// What went into the dump.
struct FlightRecorderDump {
  std::uint64_t entries = 0;
  std::uint64_t without_equal = 0;  ///< calls that the format has no name for
};

/// Writes `directory`/rank_N, N a world rank, for each selected rank, and makes the directory. Of each rank
/// the latest `most` collectives. Throws Failure where that cannot be written.
///
/// Library and backend of all entries are called "nccl", since older analyzers take no other word. Sizes are
/// in elements, of flat tensors. Each pair that sends and receives is a group of its own, since those calls
/// are numbered by pair. A call on a stream is "started" where the stream is known to have come to it,
/// "scheduled" where it may not have.
FlightRecorderDump write_flight_recorder(const std::string& directory, Collectives& collectives,
                                         const Selection& selection, std::uint64_t most);

}  // namespace accel
