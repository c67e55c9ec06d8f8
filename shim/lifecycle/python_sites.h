// Where a call of a Python program comes from, told at the time of the call (ACCEL_STACKS=sites).
//
// Places are told apart by the calling thread's chain of frames, read in memory without the GIL: nobody else
// changes them while the thread is inside a call, and to wait for the GIL there could block a program that
// does not block by itself. Only a new place is described, by the interpreter, on a thread of our own and
// within a bound.
#pragma once
#include "record/call_sites.h"

namespace accel {

/// Frames as CPython 3.8 to 3.13 keep them; of another version nothing is read, and that is said once.
const CallSites::Interpreter& python_sites();

}  // namespace accel
