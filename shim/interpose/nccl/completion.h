// How far the GPU has come with what was launched on each stream.
//
// A launch is followed by an event now and then: one at a time on each stream, so that a busy stream gets a
// few dozen a second, whatever the number of calls. The agent thread asks for them, and records one more
// where calls have ceased after the last. What is captured into a graph is left alone, and so is a stream
// that the driver refuses an event on.
#pragma once
#include <cstdint>

#include "record/recorder.h"
#include "signature/call.h"

namespace accel::nccl {

/// Where a call is launched: the stream's number in the record and the number of the launch on it.
struct Place {
  std::uint16_t stream = kCapturedStream;  ///< kCapturedStream: into a graph
  std::uint16_t launch = 0;
};

/// The place of a launch that is about to be made; calls that run together get the same where their stream
/// is. The default streams of two communicators, which may be on different devices, are taken for different
/// ones.
Place next_place(Recorder& recorder, Handle stream, int communicator_slot);

/// It has been made.
void launched(Recorder& recorder, const Place& place);

}  // namespace accel::nccl
