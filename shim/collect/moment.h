// The moment of a verdict: what its leader knew that no recorder file holds. Kept beside the verdict, so that
// the same verdict can be reached from the files when the job is gone.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "record/evidence.h"

namespace accel {

struct Moment {
  ClockPair now;
  std::int64_t evidence_ns = 0;
  std::uint32_t stack_request = 0;  ///< what the ranks answered for the report; 0: they were not asked
  /// How patient the judge was.
  struct Patience {
    std::int64_t timeout_ns = 0, warn_after_ns = 0, oom_grace_ns = 0, not_before_ns = 0;
    bool ending = false;
  } patience;
  /// How a process was, to the leader's knowledge; the rest of it is in its file.
  struct Process {
    std::string file;
    bool alive = true;
    Phase phase = Phase::Running;
    std::int32_t exit_status = -1;
    std::int32_t signal = 0;
    bool signal_inferred = false;
    bool terminated = false;
    bool no_other_thread = false;
    std::int64_t gone_since_ns = 0;
  };
  std::vector<Process> processes;

  static Moment of(const Evidence& evidence, const Patience& patience, std::uint32_t stack_request);
  /// A line of words for the moment, and one for each process.
  std::string text() const;
  /// Nothing where that is not the text of a moment.
  static std::optional<Moment> parse(const std::string& text);
  /// Of a run directory; nothing where it holds none.
  static std::optional<Moment> read(int directory);

  /// Puts a process that has been read from its file back to how it was. False: it had not come up yet.
  bool restore(ProcessEvidence& process) const;
};

/// The file's name in a run directory.
inline constexpr const char* kMomentFile = "verdict.moment";

}  // namespace accel
