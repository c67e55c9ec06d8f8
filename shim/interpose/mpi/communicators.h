// Communicators of this process: which slot of the recorder file, and a key that is the same on all members.
//
// The world's key is the job's. A child's follows without traffic from its parent's key, the number of the
// creating call on the parent (all members agree on it), and the world rank of the child's rank 0, which
// tells apart the children of one MPI_Comm_split. Handles are reused after MPI_Comm_free, so the table
// follows it.
#pragma once
#include <cstdint>

#include "interpose/handle_map.h"
#include "interpose/mpi/abi.h"
#include "record/recorder.h"

namespace accel {

struct CommunicatorInfo {
  int slot = -1;
  int rank = 0;
  int size = 0;
  bool inter = false;
  std::uint64_t key = 0;
};

/// MPI_COMM_WORLD and MPI_COMM_SELF. Once, after MPI_Init.
void load_communicators(Recorder& recorder, std::uint64_t world_key, int world_rank, int world_size);

namespace detail {
extern HandleMap<4096> slots;  // handle to slot of the recorder file
extern CommunicatorInfo communicators[kMaxCommunicators];
}  // namespace detail

/// nullptr: made by a function that we do not follow; calls on it are not judged.
inline const CommunicatorInfo* communicator(Handle handle) {
  const int slot = detail::slots.find(handle);
  return slot >= 0 ? &detail::communicators[slot] : nullptr;
}

/// A communicator made by call `sequence` on `parent` (0: by a call that not all of its members made).
/// `salt`: what else all members of the new one know, a tag for example.
void adopt_communicator(Recorder& recorder, const CommunicatorInfo& parent, std::uint64_t sequence,
                        std::int64_t salt, Handle created);

/// A duplicate, made by call `sequence` on `parent`: the handle is not looked into, since after MPI_Comm_idup
/// it is not valid yet.
void adopt_duplicate(Recorder& recorder, const CommunicatorInfo& parent, std::uint64_t sequence,
                     Handle created);

/// Before MPI_Comm_free: right after it another thread may get the same handle.
void forget_communicator(Recorder& recorder, Handle handle);

}  // namespace accel
