// Writes the log of all ranks' calls and messages while the job runs, beside the leader's own work: a log
// that cannot be written keeps nobody waiting.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "record/run_directory.h"
#include "report/call_log.h"

namespace accel {

/// Whether there is anything to log: calls, by the log's level, or messages of the program.
bool wants_call_log(const Board& board);

/// One at a time in a run, whoever it is: the file "logged" is locked, and says how far the log has come, so
/// that whoever comes next goes on from there.
class CallLogWriter {
 public:
  CallLogWriter(const RunDirectory& run, const Settings& settings);
  /// Says what could not be logged.
  ~CallLogWriter();
  CallLogWriter(const CallLogWriter&) = delete;
  CallLogWriter& operator=(const CallLogWriter&) = delete;

  /// Writes the lines that are due. False: somebody else is at it.
  bool turn();
  /// Writes all that is left, at most for `patience_ns`: the job is gone.
  void finish(std::int64_t patience_ns);

 private:
  bool lock();
  void round(bool everything);
  FileDescriptor open_log(const std::string& path, std::size_t& room) const;
  void write(const std::string& path, std::string_view text);
  void write(const std::string& path, int fd, std::string_view text);
  void put_aside(const std::string& path) const;
  void save_places();

  const RunDirectory& run_;
  const Settings& settings_;
  FileDescriptor logged_;
  bool locked_ = false;
  Observer observer_;
  CallLog calls_;
  std::map<std::string, std::string> lines_;  ///< of this round, by file; "": stderr
  std::uint64_t dropped_ = 0;                 ///< lines that could not be written
  std::string why_dropped_;
  CallLog::Places saved_;
};

}  // namespace accel
