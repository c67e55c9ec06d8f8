// Reads another process's recorder file. Every byte in it is foreign: nothing is believed without a bound,
// and nothing here can fault, whatever the file holds or whoever truncates it meanwhile (pread, not mmap).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "record/evidence.h"
#include "record/result.h"
#include "record/run_directory.h"

namespace accel {

/// Whether it is the header of a recorder file of this version, whose sizes can be relied on.
bool is_sane(const RecorderHeader& header);

class RecordReader : public History {
 public:
  /// Opens `name` in a run directory; the error says why it is no recorder file of ours.
  static Result<std::shared_ptr<RecordReader>> open(int directory, const std::string& name);

  /// Reads header, threads and communicators into `process` (all but liveness). False: not readable any more.
  bool read(ProcessEvidence& process) const;

  const RecorderHeader& header() const { return header_; }
  /// What is now said of the process, where this is a copy of another node's file.
  CopyStatus copied() const;

  /// Of a process that is gone: the clocks at a moment of its life, which give the ticks' rate. Without it
  /// that is now. A copy is by the clock of its making.
  void set_now(const ClockPair& now) { now_ = now; }

  std::optional<CallRecord> call(std::uint16_t communicator, std::uint64_t sequence) const override;
  std::optional<CallRecord> pair_call(Function function, std::uint16_t communicator, std::int32_t peer,
                                      std::uint64_t number) const override;
  std::vector<CallRecord> recent_on_streams(std::size_t most) const override;
  std::int64_t started_ns(const CallRecord& record) const override;
  std::optional<VectorEvidence> vectors(const CallRecord& record) const override;
  DatatypeEvidence datatype(DatatypeId id) const override;
  SiteEvidence site(const CallRecord& record) const override;

  /// How many entries a ring holds at most, and how many were ever begun in it: the latest of those are
  /// there.
  std::uint64_t capacity(Ring ring) const {
    return ring == Ring::Collectives ? header_.collectives : ring == Ring::Unnumbered ? kUnnumbered : kNotes;
  }
  std::uint64_t begun(Ring ring) const;
  /// Reads the entries from `first` on into `entries`, of the ring's own type and zeroed before: at most
  /// `count`, and none beyond the ring's end in memory. How many. Those that are unfinished or gone have
  /// another stamp than whole_stamp(); those that were overwritten meanwhile lie `capacity` before begun().
  std::size_t copy_entries(Ring ring, std::uint64_t first, std::size_t count, void* entries) const;
  /// Ticks to monotonic ns.
  std::int64_t monotonic(std::uint64_t ticks) const { return to_monotonic(ticks, header_.begin, now()); }
  /// Of the devices on which it has allocated, or tried to.
  std::vector<std::pair<int, DeviceMemory>> memory() const;
  /// How much device memory it has held, by monotonic ns.
  std::vector<std::pair<std::int64_t, std::int64_t>> memory_history() const;

  /// Stacks taken in answer to `request`, or to a later one.
  std::vector<StackRecord> stacks(std::uint32_t request) const;
  /// The copy of a thread's stack that was taken with those.
  std::unique_ptr<StackCopy> stack_copy(const StackRecord& stack) const;
  /// What the interpreter has answered to `request`; nothing: it has not.
  std::optional<std::string> python(std::uint32_t request) const;
  /// Lines of /proc/PID/maps that name a file.
  std::string maps() const;

 private:
  explicit RecordReader(FileDescriptor file) : file_(std::move(file)) {}

  bool copy(std::size_t offset, void* target, std::size_t bytes) const;
  bool copy_stable(std::size_t offset, void* target, std::size_t bytes) const;
  bool read_header(RecorderHeader& header) const;
  std::optional<CallRecord> record_at(Ring ring, std::uint64_t position) const;
  std::vector<BlockedCall> blocked(const RecorderHeader& header,
                                   std::vector<DriverWait>* driver_waits = nullptr) const;
  std::vector<CallRecord> latest(Ring ring, std::size_t most) const;

  FileDescriptor file_;
  ClockPair now() const {
    if (header_.copied.at_ns != 0) return header_.copied.now;
    return now_.ticks != 0 ? now_ : ClockPair::now();
  }

  mutable RecorderHeader header_{};
  ClockPair now_;
};

}  // namespace accel
