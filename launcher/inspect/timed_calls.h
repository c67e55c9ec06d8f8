// The calls of one rank with their beginning and end, for pictures.
//
// When a call ended is measured only at level DEBUG. Otherwise it is shown for as long as it is known to have
// lasted: until the last one came whom it needed, a microsecond at least. What was enqueued on a stream, too.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/inspect/collectives.h"

namespace accel {

struct TimedCall {
  /// Calls of one track follow one another: what waits on a stream is on the stream's.
  static constexpr int kHost = 0;
  static constexpr int kPointToPoint = 1;
  static constexpr int kFirstStream = 2;

  int track = kHost;
  Function function = Function::None;
  std::uint64_t communicator = 0;  ///< key; 0: not known
  std::uint64_t sequence = 0;      ///< 0: not numbered
  std::int64_t begin_ns = 0;       ///< monotonic
  std::int64_t end_ns = 0;     ///< at least `begin_ns`; never beyond the next one's beginning on its track
  std::int64_t waited_ns = 0;  ///< of that, for another rank
  std::int64_t bytes = 0;
  std::string shape;      ///< "float32[1024], sum"; empty where it is not asked for
  bool returned = true;   ///< false: it has not, as far as is known
  bool is_first = false;  ///< of all ranks that came to this collective
  bool is_last = false;
  bool is_shared = false;       ///< more ranks than one came to it
  std::int32_t last_rank = -1;  ///< world rank of the one that came last
};

/// The latest `most` collectives of a rank, and what the record still holds of its other calls since the
/// first of those, by beginning. What has not returned lasts until now, or as long as the process is known to
/// have lived.
std::vector<TimedCall> timed_calls(Collectives& collectives, Collectives::Rank& rank, std::uint64_t most,
                                   bool with_shapes);

}  // namespace accel
