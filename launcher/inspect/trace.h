// A run as Chrome's trace event format has it, which Perfetto (ui.perfetto.dev) and chrome://tracing show.
#pragma once
#include <cstdint>
#include <string>

#include "launcher/inspect/collectives.h"

namespace accel {

/// What the trace says of the run as a whole.
struct TraceTitle {
  std::string run;
  std::string command;
  std::string verdict;          ///< the report; empty: none
  std::int64_t verdict_ns = 0;  ///< monotonic
};

/// Writes `path`: a process a rank, in it a track for its calls and one for each stream, the waiting in them
/// as slices of their own, the ranks of one collective joined by a flow, device memory as a counter, messages
/// and regions of accel.h. Of each rank the latest `most` collectives; times in microseconds since the first
/// call that was seen. Throws Failure where it cannot be written.
void write_trace(const std::string& path, Collectives& collectives, const Selection& selection,
                 const TraceTitle& title, std::uint64_t most);

}  // namespace accel
