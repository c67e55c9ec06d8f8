// A verdict as text for people and as JSON for programs; the same content.
#pragma once
#include <cstdint>
#include <string>

#include "collect/observer.h"
#include "judge/judge.h"

namespace accel {

struct Report {
  std::string text;  ///< ends with a newline
  std::string json;  ///< one object; `version` 1
};

/// `stack_request`: number of the last request for all ranks' stacks; 0: none was made.
Report make_report(const Verdict& verdict, const Evidence& evidence, const Observer& observer,
                   std::uint32_t stack_request);

/// The one sentence that names the error: what an exception carries.
std::string error_line(const Verdict& verdict);

/// "2.00 GiB", as PyTorch writes it.
std::string size_text(std::int64_t bytes);

/// For a job that is gone without a verdict: every rank's state and last call.
std::string make_obituary(const Evidence& evidence);

}  // namespace accel
