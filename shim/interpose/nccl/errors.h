// How a verdict reaches a program that uses NCCL.
#pragma once
#include <string>

#include "judge/verdict.h"

namespace accel::nccl {

/// Makes ncclGetLastError say `text` from now on and returns ncclInvalidUsage, which every later call returns
/// too: a communicator whose ranks disagree is of no more use. Ends the process where that is asked for.
int raise_mismatch(const Verdict& verdict, const std::string& text);

/// After a verdict on the job: makes every later call return ncclInvalidUsage and ncclGetLastError say why.
/// False: there is no verdict that can be read.
bool tell_program();

}  // namespace accel::nccl
