// Sizes that ran, from one use of accelrun to the next.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "launcher/batch/adjustable.h"

namespace accel {

/// Sizes in files and for programs: {"batch": 32, "accumulation": 8, "global": 0, "evaluation": 0}.
nlohmann::json to_json(const Sizes& sizes);
/// What is not in there is as in `otherwise`.
Sizes sizes_from(const nlohmann::json& json, const Sizes& otherwise);

/// What must be the same for a size to be of use again: the command without its sizes, its configuration
/// files, the GPUs.
std::string key_of(const Adjustable& adjustable);

/// Below $XDG_CACHE_HOME or ~/.cache. nullopt: nothing is known.
std::optional<Sizes> remembered(const std::string& key);
/// False: it cannot be written; that is no reason to fail.
bool remember(const std::string& key, const Sizes& sizes);

}  // namespace accel
