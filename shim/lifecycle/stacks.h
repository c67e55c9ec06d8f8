// Stacks of threads that are not ours, on request: a signal whose handler only captures program counters.
#pragma once
#include <cstdint>

#include "record/recorder.h"

namespace accel {

/// Picks a real-time signal that nobody uses and installs the handler. Call once, before capture_stacks.
void install_stack_signal();

/// Captures the main thread and the threads that are inside calls into the recorder file's stacks, marked
/// with `request`. Waits a bounded time for each; one that does not answer is left out. Agent thread only.
void capture_stacks(Recorder& recorder, std::uint32_t request);

/// Stops the main thread and the threads that are inside calls, for good: ranks that are to end together must
/// not spin on the processors that the others need to get there.
void park_threads(Recorder& recorder);

}  // namespace accel
