// Where the leaders of a job's hosts meet though no launcher says so: an ncclUniqueId, which every rank gets
// from the one that made it, tells them in bytes that NCCL leaves alone.
//
// A communicator's id is made of an address at its beginning; of its 128 bytes none behind the 48th is used
// by any NCCL up to 2.30. All 128 go into a hash that must be the same on all ranks: they are passed on as
// they are, also by ranks without us.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "nodes/link.h"
#include "nodes/uplink.h"
#include "record/layout.h"

namespace accel {

using UniqueIdBytes = std::array<unsigned char, 128>;

/// What stands in an id; nothing: nobody has put anything there.
std::optional<MeetingPlace> place_in(const UniqueIdBytes& id);
/// Puts it there.
void put_place(UniqueIdBytes& id, const MeetingPlace& place);

/// Has this host's leader listen at the address that NCCL has chosen for the id (which interface that is
/// NCCL's own settings say), unless it is this host's own, and waits until it does. Nothing: this id tells of
/// no meeting.
std::optional<MeetingPlace> host_meeting(Board& board, const RunDirectory& run, const UniqueIdBytes& id,
                                         std::int64_t patience_ns);

/// A communicator of so many ranks is made with an id that tells of a place: the leader is to go there,
/// unless a larger communicator has told of another one. Any thread; the first of those that say so at one
/// time wins.
void attend_meeting(Board& board, const RunDirectory& run, const MeetingPlace& place, int members);

/// Where to go, as a leader needs it; nothing: nowhere, or it is here.
std::optional<Invitation> invitation_of(Board& board);

/// The socket at which this host's leader is to listen, once somebody wants it: at the port of the leader
/// before, if there was one. Says on the board where it is.
FileDescriptor open_meeting(Board& board);

}  // namespace accel
