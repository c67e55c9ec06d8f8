// accelrun's own command line, and what stands in for it: ACCEL_* variables and configuration files.
#pragma once
#include <optional>

#include "launcher/batch/retry.h"

namespace accel {

struct Asked {
  RetryRequest request;
  bool explain = false;  ///< run nothing
};

/// Command line before ACCEL_* before ./accelrun.toml before the user's config.toml before the defaults.
/// nullopt: it has been answered already (--help, --print-config); `status` is then the exit status. Throws
/// Failure 64.
std::optional<Asked> parse_command_line(int argc, char** argv, int& status);

}  // namespace accel
