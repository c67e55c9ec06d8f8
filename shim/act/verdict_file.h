// verdict.json, as the first leader with a verdict has left it in the run directory.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "record/run_directory.h"

namespace accel {

/// nullopt: there is none, or it cannot be read.
std::optional<nlohmann::json> read_verdict(const RunDirectory& run);

/// The one sentence that names the error, with the operation.
std::string sentence_of(const nlohmann::json& verdict);

/// For torchrun, which shows the earliest of its workers' error files as root cause: writes ours to the file
/// that TORCHELASTIC_ERROR_FILE names, if nobody has written there yet.
void leave_elastic_error(const nlohmann::json& verdict);

}  // namespace accel
