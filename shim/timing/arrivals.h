// When ranks came to their collectives, and so who waited for whom. Pure: records in, figures out.
//
// A rank waits in a collective from its own coming to that of the last one whose data it needs. Where clocks
// of several nodes are compared, whoever calls add() has made them one.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "signature/function.h"

namespace accel {

/// A numbered call of one process.
struct Arrival {
  std::uint32_t process = 0;  ///< index, the caller's own
  Function function = Function::None;
  std::int32_t root = -1;         ///< communicator rank
  std::int32_t rank = -1;         ///< of the process, in the communicator
  std::uint64_t sequence = 0;     ///< number on the communicator
  std::int64_t started_ns = 0;    ///< monotonic
  std::int64_t duration_ns = -1;  ///< -1: not measured
  std::int64_t bytes = 0;         ///< that this rank gave or got
};

/// What is known of one collective of all its members.
struct Meeting {
  std::int64_t first_ns = INT64_MAX;
  std::int64_t last_ns = INT64_MIN;
  std::int64_t second_ns = INT64_MIN;  ///< when the last but one came
  std::int64_t root_ns = INT64_MIN;    ///< when the root came
  std::int64_t bytes = 0;
  std::uint32_t last = 0;  ///< the process that came last
  std::int32_t seen = 0;
  Function function = Function::None;

  /// As its only guest has seen it.
  static Meeting of(const Arrival& arrival);
  /// The same one, as others have seen it.
  void merge(const Meeting& other);
};

/// The collectives of one communicator, by number.
class Meetings {
 public:
  void add(const Arrival& arrival);
  /// Those that others have seen.
  void merge(const Meetings& others);
  /// nullptr: nobody was seen in that one.
  const Meeting* find(std::uint64_t sequence) const;

  std::int32_t size = 0;    ///< ranks of the communicator
  std::uint64_t first = 0;  ///< number of all.front(); 0: none yet
  std::vector<Meeting> all;

 private:
  /// nullptr: too far from all others.
  Meeting* at(std::uint64_t sequence);
};

/// How long this rank waited in it for the others; 0 where it needs nobody, or where not all were seen.
std::int64_t waited(const Arrival& arrival, const Meeting& meeting, std::int32_t size);

/// By how much everybody would have been faster had the last one come with the last but one; 0 where the last
/// one keeps nobody waiting.
std::int64_t lost(const Meeting& meeting, std::int32_t size);

/// What one rank's calls come to.
struct RankTiming {
  std::uint64_t calls = 0;
  std::int64_t bytes = 0;
  std::int64_t waited_ns = 0;
  std::uint64_t last = 0;             ///< how often it came last of all
  std::int64_t lost_ns = 0;           ///< that it cost the others
  std::vector<std::int64_t> late_ns;  ///< each time that it came last: after the last but one
};

/// A rank that keeps the others waiting again and again.
struct Straggler {
  std::uint32_t process = 0;
  std::uint64_t last = 0;  ///< how often it came last,
  std::uint64_t of = 0;    ///< of so many collectives
  std::int64_t median_late_ns = 0;
  std::int64_t lost_ns = 0;  ///< in the time that was seen,
  std::int64_t span_ns = 0;  ///< which is so long
};

/// Those that cost at least a hundredth of the time, and half of what all stragglers cost: one at most.
/// Nothing is said of fewer than 20 collectives.
std::vector<Straggler> stragglers(std::vector<RankTiming>& ranks, std::uint64_t collectives,
                                  std::int64_t span_ns);

}  // namespace accel
