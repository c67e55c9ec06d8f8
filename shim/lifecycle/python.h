// The frames of a Python program, by the interpreter's public C API: versions 3.8 and newer.
//
// A thread of our own takes the GIL, which mpi4py and torch release while they communicate, and writes down
// all threads' frames. If the GIL does not come in time, that thread stays behind and does nothing.
#pragma once
#include <cstdint>

#include "record/recorder.h"

namespace accel {

/// On the thread that initialises MPI or NCCL, mostly the main one: so that it is known by Python's name.
void note_main_thread();

/// Whether this process has a live interpreter.
bool has_python();

/// Writes all threads' Python frames into the record, in answer to `request`. Takes at most a tenth of a
/// second. On our own thread only.
void capture_python(Recorder& recorder, std::uint32_t request);

}  // namespace accel
