// The frames of a Python program, by the interpreter's public C API: versions 3.8 and newer.
//
// A thread of our own takes the GIL, which mpi4py and torch release while they communicate, and writes down
// all threads' frames. Nobody here waits for it: whoever has asked decides how long.
#pragma once
#include <cstdint>

#include "record/recorder.h"

namespace accel {

/// On the thread that initialises MPI or NCCL, mostly the main one: so that it is known by Python's name.
void note_main_thread();

/// Whether this process has a live interpreter.
bool has_python();

/// Has all threads' Python frames written into the record, in answer to `request`, as soon as the GIL comes.
/// Returns at once. On our own thread only.
void capture_python(Recorder& recorder, std::uint32_t request);

}  // namespace accel
