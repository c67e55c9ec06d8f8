// The stacks that a process has left in its record, as a reader wants to see them.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "record/evidence.h"
#include "record/reader.h"
#include "report/symbols.h"

namespace accel {

struct ThreadStack {
  std::int32_t tid = 0;
  std::string name;           ///< Python's: "MainThread", and the asyncio task that it runs; else empty
  char state = 0;             ///< as /proc/PID/stat writes it; 'D': in uninterruptible sleep
  std::vector<Frame> frames;  ///< innermost first
  std::string call;           ///< "MPI_Allreduce", where it is inside one
};

/// Return addresses of a thread that was asked, innermost first.
std::vector<std::uint64_t> addresses_of(const RecordReader& reader, const ProcessEvidence& process,
                                        const StackRecord& stack);

/// The frames that the interpreter tells of a thread; empty: none, or it has not answered.
std::vector<Frame> python_frames_of(const std::string& text, const ProcessEvidence& process,
                                    std::int32_t tid);

/// All threads that answered `request`, the main one first. Of a process that did not answer: those inside
/// calls, by where the calls were made.
std::vector<ThreadStack> thread_stacks(const RecordReader& reader, const ProcessEvidence& process,
                                       std::uint32_t request);

/// Frames as reports hold them, outermost first.
nlohmann::json frames_json(const std::vector<Frame>& frames);

/// Each frame in a few words, "reduce (train.cpp:12)", outermost first; three and more equal ones in a row
/// are one, "recurse (a.c:3) ×500".
std::vector<std::string> labels_of(const std::vector<Frame>& frames);

}  // namespace accel
