// All that is written of a run while it goes on, beside the leader's own work: the log of calls and messages,
// and the metrics.
#pragma once
#include "act/call_log_writer.h"
#include "act/metrics_writer.h"

namespace accel {

/// Used by one thread.
class RunWriters {
 public:
  RunWriters(const RunDirectory& run, const Board& board, const Settings& settings)
      : board_(board), log_(run, settings), metrics_(run, settings) {}

  /// Whether there is anything to write, so far.
  static bool wanted(const Board& board, const Settings& settings) {
    return wants_call_log(board) || !settings.metrics.empty();
  }
  /// Writes what is due.
  void turn() {
    if (wants_call_log(board_)) log_.turn();
    metrics_.turn();
  }
  /// The job is gone: writes all that is left, the log at most for `patience_ns`.
  void finish(std::int64_t patience_ns) {
    metrics_.turn(true);
    if (wants_call_log(board_)) log_.finish(patience_ns);
  }

 private:
  const Board& board_;
  CallLogWriter log_;
  MetricsWriter metrics_;
};

}  // namespace accel
