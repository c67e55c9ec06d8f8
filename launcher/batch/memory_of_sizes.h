// Sizes that ran, from one use of accelrun to the next.
#pragma once
#include <optional>
#include <string>

#include "launcher/batch/adjustable.h"

namespace accel {

/// What must be the same for a size to be of use again: the command without its sizes, its configuration
/// files, the GPUs.
std::string key_of(const Adjustable& adjustable);

/// Below $XDG_CACHE_HOME or ~/.cache. nullopt: nothing is known.
std::optional<Sizes> remembered(const std::string& key);
/// False: it cannot be written; that is no reason to fail.
bool remember(const std::string& key, const Sizes& sizes);

}  // namespace accel
