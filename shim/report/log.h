// Where our words go: stderr or ACCEL_LOG_FILE, each message in one write so that ranks do not interleave.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#include "settings/settings.h"

namespace accel {

class Log {
 public:
  /// `rank` -1: not known. A file that cannot be opened falls back to stderr and says so.
  void configure(const Settings& settings, const std::string& run_id, int rank);

  /// One line, "[accel] LEVEL: ..." for warnings and worse; nothing below the level asked for.
  void say(LogLevel level, const std::string& line) const;
  /// A whole report, as it is.
  void print(const std::string& text) const;
  LogLevel level() const { return level_.load(std::memory_order_relaxed); }
  /// Another level than the settings', from now on. Any thread.
  void set_level(LogLevel level) { level_.store(level, std::memory_order_relaxed); }
  LogFormat format() const { return format_; }
  bool on_stderr() const { return path_.empty(); }

 private:
  std::atomic<LogLevel> level_{LogLevel::Warning};
  LogFormat format_ = LogFormat::Text;
  std::string path_;  ///< empty: stderr
};

/// ACCEL_LOG_FILE with %r, %h, %p, %j and %% replaced. `rank` -1: not known.
std::string expand_log_file(const std::string& pattern, const std::string& run_id, int rank, std::int32_t pid,
                            const std::string& host);

/// A moment as strftime's `format` has it.
std::string local_time(std::int64_t realtime_ns, const char* format);

/// "WARNING".
const char* name_of(LogLevel level);

/// The process's log.
Log& log();

}  // namespace accel
