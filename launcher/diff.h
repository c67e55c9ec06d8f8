// accelrun diff: what changed from one run to another, and what follows from it.
#pragma once
#include <string>
#include <vector>

#include "launcher/recorded_run.h"

namespace accel {

/// A line each; empty: nothing that we know of.
std::vector<std::string> differences(const RecordedRun& before, const RecordedRun& after);

/// Where the two runs' collectives part, or that they do not; empty where there are no records to compare.
std::string divergence(const RecordedRun& before, const RecordedRun& after);

/// `accelrun diff A B`: exit status 0 for the same, 1 for a difference.
int diff_main(int argc, char** argv);

}  // namespace accel
