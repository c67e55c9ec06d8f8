// What the judge finds: plain values that hold all a report needs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/evidence.h"

namespace accel {

enum class VerdictKind {
  Mismatch,     ///< ranks called something else, or the same with other arguments
  OutOfMemory,  ///< a rank failed after an allocation on the GPU had failed
  Crash,        ///< a rank died by a fatal signal of its own
  EarlyExit,    ///< a rank has left while others wait for it
  Deadlock,     ///< ranks wait for each other in a circle
  TimeOut,      ///< a rank waits longer than ACCEL_TIMEOUT
  Datatypes,    ///< ranks call the same bytes by different datatypes: a warning
  Late,         ///< a rank waits longer than ACCEL_WARN_AFTER: a warning
};

/// Which parts of a call differ between ranks.
enum class Field {
  Kind,
  Count,
  Datatype,
  ReduceOp,
  Root,
  Peers,
  Size,
  Rank,
  Captured,
  UniqueId,
  Configuration
};

/// What one process has to do with it.
struct Party {
  std::size_t process = 0;  ///< index into Evidence::processes
  std::int32_t world_rank = -1;
  std::optional<CallRecord> call;
  DatatypeEvidence datatype;         ///< of that call
  std::vector<std::int64_t> counts;  ///< of a vector collective: per peer, or this rank's own block alone
  SiteEvidence site;                 ///< where the call was made
  bool blamed = false;
  bool inside = false;  ///< has not returned from that call, or it waits on its stream
  std::string state;  ///< where there is no call to show: "has called MPI_Finalize", "was killed by signal 9"
};

struct Verdict {
  VerdictKind kind = VerdictKind::Mismatch;
  Function function = Function::None;   ///< of the call in question (a majority's, for a mismatch)
  std::uint64_t communicator = 0;       ///< key
  std::uint64_t sequence = 0;           ///< number of the call on the communicator; 0 for point-to-point
  std::int32_t size = 0;                ///< of the communicator
  std::vector<Field> fields;            ///< for Mismatch
  std::vector<Party> parties;           ///< by world rank
  std::vector<std::int32_t> absent;     ///< communicator ranks that no known process claims
  std::vector<std::string> details;     ///< further findings, a sentence each
  std::optional<MemoryEpisode> memory;  ///< for OutOfMemory
  bool settled = true;                  ///< false: more ranks may still arrive and make it clearer
  std::int64_t waited_ns = 0;           ///< for TimeOut, Late, and a Deadlock by standstill

  bool is_fault() const { return kind != VerdictKind::Late && kind != VerdictKind::Datatypes; }
};

/// Exit status of the contract (accel.h) for a fault.
int exit_status(VerdictKind kind);
/// "collective mismatch", "early exit", ...
const char* title(VerdictKind kind);
const char* name_of(Field field);

}  // namespace accel
