// One strong type for each role that an argument can play. Each is ABI-identical to the scalar it wraps
// (trivially copyable, at most 8 bytes, INTEGER class), so that a wrapper declared with roles receives and
// forwards exactly what the caller passed, and knows what it means.
#pragma once
#include <cstdint>
#include <type_traits>

#include "signature/call.h"

namespace accel::role {

#define ACCEL_ROLE(name, type, effect)                           \
  struct name {                                                  \
    type value;                                                  \
    void describe([[maybe_unused]] Call& call) const { effect; } \
  };

ACCEL_ROLE(Opaque, std::uintptr_t, )  // need not agree, or cannot be compared
ACCEL_ROLE(Number, int, )
ACCEL_ROLE(SendBuffer, const void*, call.send.buffer = value)
ACCEL_ROLE(RecvBuffer, void*, call.recv.buffer = value)
ACCEL_ROLE(Buffer, void*, call.send.buffer = value)
ACCEL_ROLE(Count, int, call.send.count = value)
ACCEL_ROLE(Datatype, Handle, call.send.type = value)
ACCEL_ROLE(SendCount, int, call.send.count = value)
ACCEL_ROLE(SendCounts, const int*, call.send.counts = value)
ACCEL_ROLE(SendType, Handle, call.send.type = value)
ACCEL_ROLE(SendTypes, const void*, call.send.types = value)
ACCEL_ROLE(RecvCount, int, call.recv.count = value)
ACCEL_ROLE(RecvCounts, const int*, call.recv.counts = value)
ACCEL_ROLE(RecvType, Handle, call.recv.type = value)
ACCEL_ROLE(RecvTypes, const void*, call.recv.types = value)
ACCEL_ROLE(ReduceOp, Handle, call.op = value)
ACCEL_ROLE(Root, int, call.root = value)
ACCEL_ROLE(Destination, int, call.peer = value)
ACCEL_ROLE(Source, int, call.peer = value)
ACCEL_ROLE(Tag, int, call.tag = value)
ACCEL_ROLE(Comm, Handle, call.communicator = value)
ACCEL_ROLE(FreedComm, void*, call.communicator_in_memory = value)
ACCEL_ROLE(Elements, std::size_t, call.send.count = static_cast<std::int64_t>(value))
ACCEL_ROLE(NcclType, int, call.send.type = static_cast<Handle>(value))
ACCEL_ROLE(NcclOp, int, call.op = static_cast<Handle>(value))
ACCEL_ROLE(NcclComm, Handle, call.communicator = value)
ACCEL_ROLE(Stream, Handle, call.stream = value)
ACCEL_ROLE(CollConfiguration, const void*, call.configuration = value)
ACCEL_ROLE(NewComm, void*, call.new_communicator = value)
#undef ACCEL_ROLE

/// Whether a list of roles contains `Wanted`.
template <class Wanted, class... Roles>
inline constexpr bool has = (std::is_same_v<Wanted, Roles> || ...);

}  // namespace accel::role
