// What is known of the job at one moment: the judge's input, and all of it plain values.
//
// Reading many processes takes time. It still supports certain conclusions, by the order in which each
// process is read: first whether it lives and its phase, then what its threads are blocked in, then its
// communicators, then the threads again; a thread counts as blocked only if it was in the same call both
// times. So "blocked" held while the communicators were read, and "has left" held before.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "record/layout.h"

namespace accel {

/// A datatype of a process, by what it means.
struct DatatypeEvidence {
  TypeSignature signature;
  std::string name;  ///< "float32"
  bool known = false;
};

/// A vector collective's blocks; empty vectors where a side does not apply.
struct VectorEvidence {
  std::vector<PeerBlock> sends, expects;
  bool same_everywhere = false;
};

/// Where a call was made.
struct SiteEvidence {
  std::vector<std::uint64_t> addresses;  ///< return addresses, innermost first; empty: not known
  std::string python;                    ///< the interpreter's frames, see report/python_frames.h
};

/// A process's past, as far as its ring still holds it. Slots are those of its communicators.
class History {
 public:
  virtual ~History() = default;
  /// The call with that number, unless it was overwritten.
  virtual std::optional<CallRecord> call(std::uint16_t communicator, std::uint64_t sequence) const = 0;
  /// The n-th call on a pair: `function` NcclSend or NcclRecv.
  virtual std::optional<CallRecord> pair_call(Function function, std::uint16_t communicator,
                                              std::int32_t peer, std::uint64_t number) const = 0;
  /// The latest calls that wait on streams, oldest first: at most `most`.
  virtual std::vector<CallRecord> recent_on_streams(std::size_t most) const = 0;
  /// When a call was started; monotonic.
  virtual std::int64_t started_ns(const CallRecord& record) const = 0;
  virtual std::optional<VectorEvidence> vectors(const CallRecord& record) const = 0;
  virtual DatatypeEvidence datatype(DatatypeId id) const = 0;
  virtual SiteEvidence site(const CallRecord& record) const = 0;
};

struct CommunicatorEvidence {
  std::uint16_t slot = 0;
  CommunicatorRecord record{};
};

/// A thread that is inside a call.
struct BlockedCall {
  std::uint32_t tid = 0;
  CallRecord record{};        ///< function None: it is in a call whose record was overwritten
  std::int64_t since_ns = 0;  ///< monotonic
};

struct StreamEvidence {
  StreamRecord record{};
  std::int64_t since_ns = 0;  ///< record.since; monotonic

  /// Whether a call on this stream is known to be complete.
  bool knows_complete(const CallRecord& call) const {
    return static_cast<std::int16_t>(static_cast<std::uint16_t>(record.completed) - call.launch) >= 0;
  }
};

struct ProcessEvidence {
  std::string file;   ///< its recorder file's name in the run directory
  bool copy = false;  ///< it lives on another node: that is a copy of its file, and the pid is of there
  std::int32_t pid = 0;
  std::string host;
  std::string program;
  std::string library;
  std::string gpu;               ///< "NVIDIA A100-SXM4-80GB"; empty: it has taken no memory on any
  std::string nccl;              ///< "NCCL 2.28.9 (path)"
  std::string nccl_environment;  ///< NCCL_* as NAME=value lines, sorted
  std::uint64_t world_key = 0;
  std::int32_t world_rank = -1;  ///< -1: not known yet
  std::int32_t world_size = 0;
  Phase phase = Phase::Initializing;
  bool alive = true;
  std::int64_t gone_since_ns = 0;  ///< monotonic; when it was first seen gone
  std::int32_t exit_status = -1;
  std::int32_t signal = 0;       ///< what killed it, or is about to, as far as known
  bool signal_inferred = false;  ///< nobody said so: it is gone without a word, as only SIGKILL does
  bool terminated = false;       ///< SIGTERM came from outside
  std::int64_t started_ns = 0;   ///< monotonic; when it called MPI_Init
  /// No other thread of the process can make the call that others wait for: MPI_THREAD_SERIALIZED or less, or
  /// all its threads are inside calls.
  bool no_other_thread = false;
  std::vector<BlockedCall> blocked;
  std::vector<DriverWait> driver_waits;  ///< of threads that wait for the GPU
  std::vector<PairRecord> pairs;
  std::vector<StreamEvidence> streams;
  std::uint32_t libraries = 0;          ///< kUses*
  bool python = false;                  ///< runs Python
  std::vector<MemoryEpisode> episodes;  ///< oldest first; those that are not Recovered
  BrokenContext broken{};
  std::vector<CommunicatorEvidence> communicators;
  std::shared_ptr<const History> history;

  /// Will never make another call.
  bool has_left() const {
    return !alive || signal != 0 || phase == Phase::Finalized || phase == Phase::Exiting ||
           phase == Phase::Aborting;
  }
};

struct Evidence {
  std::int64_t now_ns = 0;  ///< monotonic
  std::vector<ProcessEvidence> processes;
};

}  // namespace accel
