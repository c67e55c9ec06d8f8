// The frames of a Python program as they are when somebody asks, by the interpreter itself.
//
// A thread of our own takes the GIL, which mpi4py and torch release while they communicate, and writes down
// all threads' frames. Nobody here waits for it: whoever has asked decides how long.
#pragma once
#include <cstddef>
#include <cstdint>

#include "record/recorder.h"

namespace accel {

/// On the thread that initialises MPI or NCCL, mostly the main one: so that it is known by Python's name.
void note_main_thread();

/// The program that hands frames to `native`, as RecorderFile::python holds them: all threads', or those of
/// the thread `only`, a pthread_t. False: it does not fit.
bool write_dump_program(char* program, std::size_t size, unsigned long only);

/// Has all threads' Python frames written into the record, in answer to `request`, as soon as the GIL comes.
/// Returns at once. On our own thread only.
void capture_python(Recorder& recorder, std::uint32_t request);

}  // namespace accel
