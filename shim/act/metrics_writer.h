// Keeps a file up to date that says in the OpenMetrics text format what the ranks of this node have done so
// far, for Prometheus' node_exporter (textfile collector) and its like.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "collect/observer.h"
#include "record/tail.h"
#include "settings/settings.h"
#include "timing/process_calls.h"
#include "timing/wait_tally.h"

namespace accel {

/// Used by one thread. Counters begin anew with each writer, as when the leader changes.
class MetricsWriter {
 public:
  MetricsWriter(const RunDirectory& run, const Settings& settings);

  /// Writes the file if it is time for that, or if this is the `last` turn; says once if it cannot be
  /// written.
  void turn(bool last = false);

 private:
  struct Source {
    Source(const std::shared_ptr<const RecordReader>& reader, std::uint32_t index)
        : calls(reader, index), tail(reader) {}
    ProcessCalls calls;
    CollectiveTail tail;
    ProcessEvidence process;
    std::map<Function, std::uint64_t> collectives;
    std::int64_t bytes = 0;
    std::uint64_t overwritten = 0;
  };

  void count(const Evidence& evidence);
  std::string text() const;
  bool write(const std::string& text) const;

  const RunDirectory& run_;
  std::string path_;
  Observer observer_;
  std::map<std::int32_t, std::unique_ptr<Source>> sources_;  ///< by pid
  WaitTally waits_;
  std::int64_t next_ns_ = 0;
  bool complained_ = false;
};

}  // namespace accel
