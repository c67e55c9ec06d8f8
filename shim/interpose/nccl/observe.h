// How a process that has no other way to know who it is comes into the record with its first communicator.
#pragma once
#include <cstdint>
#include <string>

namespace accel::nccl {

/// Before a communicator is made: `rank` and `size` are those it is to have, `key` is the same on all its
/// members. `how`: what the report calls this NCCL and the way it is reached; called at the first time only.
/// False: dormant.
bool observe(int rank, int size, std::uint64_t key, std::string (*how)());

}  // namespace accel::nccl
