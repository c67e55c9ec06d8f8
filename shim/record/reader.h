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

class RecordReader : public History {
 public:
  /// Opens `name` in a run directory; the error says why it is no recorder file of ours.
  static Result<std::shared_ptr<RecordReader>> open(int directory, const std::string& name);

  /// Reads header, threads and communicators into `process` (all but liveness). False: not readable any more.
  bool read(ProcessEvidence& process) const;

  const RecorderHeader& header() const { return header_; }

  std::optional<CallRecord> call(std::uint16_t communicator, std::uint64_t sequence) const override;
  std::optional<CallRecord> pair_call(Function function, std::uint16_t communicator, std::int32_t peer,
                                      std::uint64_t number) const override;
  std::vector<CallRecord> recent_on_streams(std::size_t most) const override;
  std::int64_t started_ns(const CallRecord& record) const override;
  std::optional<VectorEvidence> vectors(const CallRecord& record) const override;
  DatatypeEvidence datatype(DatatypeId id) const override;
  SiteEvidence site(const CallRecord& record) const override;

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
  mutable RecorderHeader header_{};
};

}  // namespace accel
