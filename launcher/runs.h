// Runs that go on or were kept, as users name them.
#pragma once
#include <string>

#include "settings/settings.h"

namespace accel {

/// The directory of a run that is named by its directory, its id, or the process id of a rank or of a
/// launcher above it; "" stands for the only run there is. Throws Failure 64 where there is none, or more
/// than one.
std::string find_run(const std::string& name, const Settings& settings);

/// accelrun list: the runs below the user's directory, a line each.
int list_main(int argc, char** argv);

}  // namespace accel
