// One run of the user's command, from its start to the last word on it.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "launcher/engine.h"
#include "record/run_directory.h"
#include "settings/settings.h"

namespace accel {

struct JobRequest {
  std::vector<std::string> command;
  Engine engine = Engine::Plain;
  /// ACCEL_* and LD_PRELOAD, for the ranks.
  std::map<std::string, std::string> variables;
  Settings settings;
  bool keep = false;  ///< the run directory stays
};

/// Starts the command, leads its run, passes signals on, waits for it and gives the last look back. Returns
/// the exit status of the contract. Throws Failure if it cannot be started.
int run_job(const JobRequest& request);

}  // namespace accel
