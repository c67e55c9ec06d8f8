// Another node's recorder files, as they arrive: copies of them in this run's directory.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nodes/frames.h"
#include "record/layout.h"
#include "record/run_directory.h"

namespace accel {

/// FrameKind::Chunk, followed by the bytes.
struct ChunkHead {
  std::int32_t pid;
  std::uint32_t unused;
  std::uint64_t offset;  ///< in the file
};

/// FrameKind::Process, followed by the header's page. Times are by the sender's clock.
struct ProcessHead {
  std::int32_t pid;
  std::uint32_t unused;
  CopyStatus status;
};

std::string chunk_body(std::int32_t pid, std::uint64_t offset, std::string_view bytes);
std::string process_body(std::int32_t pid, const CopyStatus& status, std::string_view header_page);

/// What two monotonic clocks differ by, from messages that went there and back: the quickest of the latest
/// ones tells it best.
class ClockOffset {
 public:
  /// Sent at `sent_ns` and answered at `back_ns` by the own clock, seen at `there_ns` by the other's.
  void add(std::int64_t sent_ns, std::int64_t there_ns, std::int64_t back_ns);
  /// To be added to the other's times.
  std::int64_t value() const { return offset_ns_; }
  /// How far off that may be, either way; -1: nothing is known.
  std::int64_t error() const { return round_trip_ns_ < 0 ? -1 : (round_trip_ns_ + 1) / 2; }

 private:
  std::int64_t offset_ns_ = 0;
  std::int64_t round_trip_ns_ = -1;
  std::int64_t found_ns_ = 0;
};

/// Of one node. What has come in shows only when all of a round is there. Used by one thread.
class RecordCopies {
 public:
  RecordCopies(const RunDirectory& run, std::uint32_t node) : run_(run), node_(node) {}

  /// A Chunk or a Process. False: it is neither, or cannot be right.
  bool take(const WireFrame& frame);
  /// Bytes taken and not shown yet.
  std::size_t waiting() const { return waiting_; }
  /// Shows what was taken; times become those of this node by `clock_offset_ns`. What went wrong; empty:
  /// nothing.
  std::string show(std::int64_t clock_offset_ns);
  /// Forgets what was taken and not shown.
  void drop();
  /// Removes what was shown.
  void forget();
  /// A process of the node is gone since then, unless it had left before; `pid` 0: all are.
  void lose(std::int32_t pid, std::int64_t since_ns);

  static constexpr std::size_t kMostProcesses = 1024;

 private:
  struct Arrived {
    CopyStatus status{};
    std::string header_page;  ///< empty: it has not come
    std::vector<std::pair<std::uint64_t, std::string>> chunks;
  };
  std::string show(std::int32_t pid, Arrived& arrived, std::int64_t clock_offset_ns);

  const RunDirectory& run_;
  std::uint32_t node_;
  std::map<std::int32_t, Arrived> arrived_;
  std::map<std::int32_t, std::uint64_t> shown_;  ///< start time, by process
  std::size_t waiting_ = 0;
};

}  // namespace accel
