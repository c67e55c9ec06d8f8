// The numbered calls of all ranks of a run, from its records, and when the ranks came to each. Reading them
// takes memory for the collectives but not for the calls: whoever wants those visits them once more.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "collect/observer.h"
#include "record/tail.h"
#include "settings/settings.h"
#include "timing/arrivals.h"
#include "timing/process_calls.h"

namespace accel {

/// Which ranks and calls count: all where a part is empty.
struct Selection {
  LogRanks ranks{.all = true, .ranges = {}};
  std::string function;      ///< a part of its name
  std::string communicator;  ///< the beginning of its name
  bool operator()(const ProcessEvidence& process) const { return ranks.contains(process.world_rank); }
};

class Collectives {
 public:
  struct Call {
    const CallRecord& record;
    const ProcessCalls::Membership& communicator;
    Arrival arrival;  ///< its `process` is an index into ranks()
  };
  /// One process. Only one thread at a time may visit its calls.
  struct Rank {
    ProcessEvidence process;
    ProcessCalls calls;
    std::uint64_t unread = 0;  ///< records that were overwritten before we came

    std::uint32_t index() const { return calls.index(); }
    const RecordReader& reader() const { return calls.reader(); }
  };

  /// Reads them all.
  Collectives(const Observer& observer, const Evidence& evidence, const Selection& selection);

  std::vector<Rank>& ranks() { return ranks_; }                                    ///< by world rank
  const std::map<std::uint64_t, Meetings>& meetings() const { return meetings_; }  ///< by communicator key
  std::uint64_t records() const { return records_; }
  /// Monotonic: the first and the last call that was seen; both 0 where none was.
  std::int64_t begin_ns() const { return begin_ns_; }
  std::int64_t end_ns() const { return end_ns_; }
  /// To be added to those.
  std::int64_t realtime_offset_ns() const { return realtime_offset_ns_; }

  /// The collective that a call took part in.
  const Meeting* meeting_of(const Call& call) const {
    const auto found = meetings_.find(call.communicator.key);
    return found != meetings_.end() ? found->second.find(call.arrival.sequence) : nullptr;
  }
  /// What meeting_of() found is of a communicator of that many ranks.
  std::int32_t size_of_meeting(const Call& call) const {
    const auto found = meetings_.find(call.communicator.key);
    return found != meetings_.end() ? found->second.size : call.communicator.size;
  }

  /// visit(const Call&) for each selected call of a rank, in order: the latest `most` records. How many
  /// records were read.
  template <class Visit>
  std::uint64_t each(Rank& rank, Visit visit, std::uint64_t most = UINT64_MAX) const {
    const std::uint64_t begun = rank.reader().begun(Ring::Collectives);
    CollectiveTail tail(rank.calls.shared_reader(), begun > most ? begun - most : 0);
    tail.writer_is_gone();
    std::uint64_t records = 0;
    rank.unread = tail.read([&](const CallRecord& record, std::uint64_t position) {
      ++records;
      if (is_wanted(record.function) && rank.calls.is_current(record, position))
        visit(Call{record, rank.calls.membership(record), rank.calls.arrival_of(record)});
    });
    return records;
  }

  /// work(share, of): ranks with index % of == share are its own. As many at once as there are processors.
  static void in_parallel(const std::function<void(std::size_t, std::size_t)>& work);
  static std::size_t shares();

 private:
  bool is_wanted(Function function) const {
    return static_cast<std::size_t>(function) < wanted_.size() && wanted_[static_cast<std::size_t>(function)];
  }

  std::vector<bool> wanted_;  ///< by Function
  std::vector<Rank> ranks_;
  std::map<std::uint64_t, Meetings> meetings_;
  std::uint64_t records_ = 0;
  std::int64_t begin_ns_ = 0, end_ns_ = 0, realtime_offset_ns_ = 0;
};

}  // namespace accel
