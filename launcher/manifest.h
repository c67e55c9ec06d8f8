// What makes one run comparable with another: command, sizes, environment, machine, libraries, and how many
// collectives there were.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "record/evidence.h"

namespace accel {

/// `sizes`: as the caller knows them, may be null.
nlohmann::json make_manifest(const std::vector<std::string>& command, const nlohmann::json& sizes, int status,
                             const Evidence& evidence);

/// Words of a command that set a seed: "--seed 7", "seed=7".
std::vector<std::string> seeds_in(const std::vector<std::string>& command);

}  // namespace accel
