// What the user asked for, by ACCEL_* variables. accelrun's options set the same variables.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace accel {

enum class Check { Async, Sync, Off };
enum class OnError { Raise, Abort, Report };
enum class Stacks { Native, Sites, Hang, Off };
enum class LogLevel { Debug, Info, Warning, Error, Critical };
enum class LogFormat { Text, Json };
enum class LogOrder { Arrival, Rank };

/// Whose lines are logged.
struct LogRanks {
  bool all = false;
  bool by_default = false;                                    ///< nobody has chosen them
  std::vector<std::pair<std::int32_t, std::int32_t>> ranges;  ///< first and last; empty and not `all`: rank 0

  bool contains(std::int32_t rank) const;
};

struct Settings {
  Check check = Check::Async;
  OnError on_error = OnError::Raise;
  std::int64_t timeout_ns = 600'000'000'000;    ///< 0: never
  std::int64_t warn_after_ns = 30'000'000'000;  ///< 0: never
  std::int64_t oom_grace_ns = 60'000'000'000;   ///< 0: never
  LogLevel log_level = LogLevel::Warning;
  LogFormat log_format = LogFormat::Text;
  LogRanks log_ranks{.all = false, .by_default = true, .ranges = {}};
  LogOrder log_order = LogOrder::Arrival;
  std::string log_file;               ///< empty: stderr
  std::int64_t log_rotate_bytes = 0;  ///< a log file that grows beyond is put aside; 0: never
  int log_rotate_keep = 3;            ///< so many are kept aside
  std::string metrics;                ///< file with OpenMetrics text; empty: none
  std::int64_t records = 16384;       ///< collectives that a rank remembers
  Stacks stacks = Stacks::Native;
  bool full_names = false;
  std::string interfaces;  ///< on which accelrun listens for other hosts: "eth0,ib0"; empty: all
  std::string run_base;    ///< directory under which accel-UID/RUN_ID lies
  std::string run_id;      ///< empty: derived, see run_directory.h
  bool disabled = false;

  /// Reads the environment. A value that does not parse keeps the default and adds one line to `complaints`
  /// that names the variable, the value and what is accepted. Not signal-safe (allocates).
  static Settings from_environment(std::vector<std::string>& complaints);
};

/// One variable for `accelrun --help` and its options: the option's name follows from the variable's.
struct Variable {
  const char* name;      ///< "ACCEL_CHECK"
  const char* accepted;  ///< "async, sync or off"
  const char* meaning;
  bool often = true;  ///< listed by --help; the others by --help-all
};
const std::vector<Variable>& variables();

/// Whether `value` parses for the variable `name`; unknown names accept nothing.
bool accepts(const std::string& name, const std::string& value);

}  // namespace accel
