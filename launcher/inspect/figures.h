// What a run comes to, counted from all records of all its ranks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/inspect/collectives.h"

namespace accel {

struct Figures {
  struct Rank {
    ProcessEvidence process;
    RankTiming timing;
    std::vector<std::pair<int, DeviceMemory>> memory;  ///< of the devices it has used
    std::uint64_t unread = 0;                          ///< records that were overwritten before we came
    /// How long it waited, by when: in parts of equal length from begin_ns to end_ns.
    std::vector<std::int64_t> waited_by_time;
  };
  struct Communicator {
    std::uint64_t key = 0;
    std::int32_t size = 0;
    std::uint32_t flags = 0;
    std::uint64_t collectives = 0;  ///< made on it, as far as the member that made most
    std::vector<int> ranks;         ///< world ranks of its members
  };
  struct Kind {
    Function function = Function::None;
    std::uint64_t collectives = 0;  ///< that were seen, whole or not
    std::int64_t bytes = 0;         ///< a rank's, summed over them
    std::int64_t waited_ns = 0;     ///< by all ranks
    std::int64_t longest_ns = 0;    ///< that one rank waited in one
    int longest_rank = -1;          ///< which
  };

  std::vector<Rank> ranks;  ///< by world rank
  std::vector<Communicator> communicators;
  std::vector<Kind> kinds;            ///< by the time waited in them
  std::vector<Straggler> stragglers;  ///< `process` is an index into `ranks`
  std::uint64_t records = 0;
  std::int64_t begin_ns = 0, end_ns = 0;  ///< monotonic: the first and the last call that was seen
  std::int64_t realtime_offset_ns = 0;    ///< to be added to those

  /// `parts`: into how many the time is cut for Rank::waited_by_time.
  static Figures of(Collectives& collectives, const Selection& selection, std::size_t parts = 0);
};

}  // namespace accel
