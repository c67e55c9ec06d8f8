// All ranks of a job stop before the same collective, because somebody outside has asked for it
// (layout.h: StopRequest). No rank waits for another one for that.
#pragma once
#include <atomic>
#include <cstdint>

#include "record/recorder.h"

namespace accel {

/// Whether numbered calls are to be looked at more closely: ACCEL_CHECK=sync, or a stop is asked for. One
/// load on the way of every call.
inline std::atomic<bool> attentive{false};

/// The agent's part: looks out for what the board asks for, if this process is concerned, and says so there.
/// `always_attentive`: ACCEL_CHECK=sync.
void follow_stop_request(Recorder& recorder, Board& board, bool always_attentive);

/// A call with that number on its communicator has been recorded and is about to be made. If this is where
/// all stop, sends this process the signal; the program may handle it and go on, so this may return. Any
/// thread.
void stop_before(std::uint64_t communicator, std::uint64_t sequence);

}  // namespace accel
