// A call's arguments and its communicator as people read them.
#pragma once
#include <string>
#include <vector>

#include "record/evidence.h"

namespace accel {

/// What a call was made with: "float32[1024], sum, root 0". `counts`: of a vector collective, per peer, or
/// this rank's own block alone.
std::string shape(const CallRecord& call, const DatatypeEvidence& datatype,
                  const std::vector<std::int64_t>& counts);

/// "5f3a90c1": enough of a communicator's key to tell it from others.
std::string communicator_name(std::uint64_t key);

}  // namespace accel
