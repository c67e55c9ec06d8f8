// What should be the same in all processes of a job and is not, though no call shows it.
#pragma once
#include <string>
#include <vector>

#include "record/evidence.h"

namespace accel {

/// Of the processes of one world that use NCCL: which NCCL they have, and the NCCL_* variables that change
/// what it does. A sentence each. What may differ by right (files, host names, how much is logged) is left
/// out.
std::vector<std::string> differences_of_setup(const Evidence& evidence, std::uint64_t world);

}  // namespace accel
