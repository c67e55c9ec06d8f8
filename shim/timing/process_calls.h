// One process's numbered calls as arrivals: its records with the clock, the communicators and the datatypes
// that they refer to.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "record/reader.h"
#include "timing/arrivals.h"

namespace accel {

class ProcessCalls {
 public:
  /// As a process knows a communicator; `key` 0: it does not count.
  struct Membership {
    std::uint64_t key = 0;
    std::int32_t rank = -1;
    std::int32_t size = 0;
    std::uint64_t sequence = 0, born = 0;
  };

  /// `index`: what the arrivals call the process.
  ProcessCalls(std::shared_ptr<const RecordReader> reader, std::uint32_t index);

  /// The communicators that it has by now; `counts`: of which, by key. Of a process that lives, calls may
  /// follow that are not known yet.
  void update(const ProcessEvidence& process, const std::function<bool(std::uint64_t)>& counts = {});

  const RecordReader& reader() const { return *reader_; }
  const std::shared_ptr<const RecordReader>& shared_reader() const { return reader_; }
  std::uint32_t index() const { return index_; }

  std::int64_t monotonic(std::uint64_t ticks) const {
    return begin_ns_ + nanoseconds(static_cast<std::int64_t>(ticks - begin_ticks_));
  }
  std::int64_t nanoseconds(std::int64_t ticks) const {
    return static_cast<std::int64_t>(static_cast<double>(ticks) * ns_per_tick_);
  }
  /// That the call gives or gets; 0 where it is not known.
  std::int64_t bytes_of(const CallRecord& call);
  const Membership& membership(const CallRecord& call) const {
    return memberships_[call.communicator % kMaxCommunicators];
  }
  /// Whether the record at that place of the ring is a call on the communicator that its slot has now.
  bool is_current(const CallRecord& call, std::uint64_t position) const {
    const Membership& in = membership(call);
    // What stood in the slot before was another communicator.
    return in.key != 0 && position >= in.born && call.sequence != 0 && call.sequence <= in.sequence;
  }
  Arrival arrival_of(const CallRecord& call);

 private:
  std::shared_ptr<const RecordReader> reader_;
  std::uint32_t index_;
  std::int64_t begin_ns_ = 0;
  std::uint64_t begin_ticks_ = 0;
  double ns_per_tick_ = 1;
  std::vector<Membership> memberships_;                    ///< by slot
  std::map<DatatypeId, std::int64_t> datatype_bytes_;      ///< of those that have been asked for
  std::pair<DatatypeId, std::int64_t> latest_datatype_{};  ///< of those
};

}  // namespace accel
