// How a process of the job is ended after a verdict.
#pragma once

namespace accel {

/// Flushes the application's stdio buffers if that takes no more than a moment (a thread may hold their locks for
/// ever), then ends the process with `status`, without running destructors. Not signal-safe.
[[noreturn]] void end_process(int status);

}  // namespace accel
