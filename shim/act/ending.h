// How a process of the job is ended after a verdict.
#pragma once
#include "record/layout.h"
#include "record/run_directory.h"

namespace accel {

/// Flushes the application's stdio buffers if that takes no more than a moment: a thread may hold their locks
/// for ever.
void flush_stdio();

/// Ends the process with `status`, without running exit handlers or destructors, at the same moment as the
/// other ranks that are to end: MPICH's launcher kills what is left when the first rank exits, and then
/// returns 9 instead of the rank's status. `swept`: a run directory that nobody else will remove.
[[noreturn]] void end_process(Board& board, int status, const RunDirectory* swept = nullptr);

}  // namespace accel
