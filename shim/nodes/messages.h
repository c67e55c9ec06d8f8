// The bodies of the frames between a leader and the coordinator. Times are by the sender's monotonic clock.
#pragma once
#include <cstdint>

namespace accel {

/// FrameKind::Ping, and returned in a Pong.
struct Ping {
  std::int64_t sent_ns;
};
struct Pong {
  std::int64_t sent_ns;   ///< of the Ping
  std::int64_t there_ns;  ///< when it was seen
};

/// FrameKind::Beat, followed by Marks. What a leader says unasked: a healthy job costs no more than that.
struct Beat {
  std::int64_t standing_ns;     ///< how long the process that waits longest without progress has done so
  std::uint64_t shape;          ///< changes with the processes, their ranks and their communicators
  std::uint32_t stack_request;  ///< the number of the latest on this node
  std::uint32_t processes;
};
/// The hash of all calls up to one, of a communicator that other nodes have part in: the same on all of them.
struct Mark {
  std::uint32_t
      communicator;  ///< low bits of the key, and of the others: what differs here is worth a look, no more
  std::uint32_t sequence;
  std::uint32_t chain;
};
inline constexpr std::size_t kMostMarks = 1024;  ///< in a Beat

/// FrameKind::Fetch.
struct Fetch {
  std::uint32_t round;          ///< returned when it is done
  std::uint32_t everything;     ///< 1: whole rings, 0: their latest calls
  std::uint32_t stack_request;  ///< the processes are to leave their stacks under this number first; 0: no
  std::uint32_t anew;           ///< 1: the coordinator has kept nothing of what was sent before
  std::int64_t patience_ns;     ///< for the stacks of interpreters
};
/// FrameKind::Copied.
struct Copied {
  std::uint32_t round;
  std::uint32_t unused;
};

/// FrameKind::Alarm, and returned in a Seen.
struct Alarm {
  std::uint32_t number;
  std::uint32_t unused;
};

/// FrameKind::End, followed by the verdict as JSON.
struct End {
  std::uint64_t world;   ///< key
  std::uint32_t status;  ///< 80 to 85; 0: the ranks go on
  std::uint32_t unused;
};

}  // namespace accel
