// accelrun stacks: where every rank of a job stands now, merged.
#pragma once

#include <string>

#include "record/run_directory.h"

namespace accel {

/// Where the ranks of a run stand, or stood when they were last asked, as one tree. Empty: they never were.
std::string stacks_text(const RunDirectory& run);

/// `accelrun stacks RUN|PID`: exit status 0, or 64 where there is no such run.
int stacks_main(int argc, char** argv);

}  // namespace accel
