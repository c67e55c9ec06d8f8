// A node's leader, as the coordinator's hands and eyes there: says several times a second how its node gets
// on, raises the alarm, and sends the recorder files when asked. Nothing here ever blocks, and no rank waits
// for it.
#pragma once
#include <poll.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nodes/handshake.h"
#include "nodes/link.h"
#include "nodes/messages.h"
#include "nodes/record_source.h"
#include "record/evidence.h"
#include "record/run_directory.h"

namespace accel {

/// Where the run's coordinator listens, and the secret that it knows us by.
struct Invitation {
  std::string run;  ///< as the coordinator calls it
  std::vector<SocketAddress> addresses;
  Token token;

  /// From ACCEL_COORDINATOR ("10.0.0.1:4711,[fd00::1]:4711") and ACCEL_TOKEN. Nothing: we are not invited.
  static std::optional<Invitation> from_environment(const std::string& run_id);
};
/// What all hosts call a run in which they meet by themselves: each has a run id of its own.
inline constexpr const char* kMeetingName = "meeting";

/// Used by one thread.
class Uplink {
 public:
  Uplink(const RunDirectory& run, Board& board, Invitation invitation);

  /// To be called before each turn of the leader: connects, hears, is heard. `evidence`: of this node, the
  /// latest.
  void turn(const Evidence& evidence);
  /// What makes another turn worth while; when it is due anyway.
  pollfd waits_for() const { return {link_.fd(), link_.events(), 0}; }

  /// The coordinator judges: we do not. Also for a moment after the connection is lost, or before it stands.
  bool is_led() const { return connected_ || now_ns_ - alone_since_ns_ < kAloneAfter; }
  bool is_connected() const { return connected_; }
  /// Somebody says goodbye for this node: a connection of ours would only end theirs.
  bool is_relieved() const { return !leaves_ && board_.leaving.load() != 0; }
  /// We do.
  void leave() { leaves_ = true; }
  static constexpr std::int64_t kAloneAfter = 5'000'000'000;
  /// It is worth a line.
  bool is_alone_for_long() const { return !connected_ && now_ns_ - alone_since_ns_ >= kAloneForLong; }
  static constexpr std::int64_t kAloneForLong = 60'000'000'000;

  /// What the coordinator wants, once.
  std::optional<Fetch> take_fetch() { return std::exchange(fetch_, std::nullopt); }
  struct Order {
    End end;
    std::string verdict;
  };
  std::optional<Order> take_order() { return std::exchange(order_, std::nullopt); }

  /// Nobody listens there, as often as it was tried.
  bool is_refused() const { return refusals_ > 2 * invitation_.addresses.size(); }

  /// Sends what has changed in the recorder files of the evidence's processes.
  void send_copies(const Fetch& fetch, const Evidence& evidence);

  /// Somebody should look now. The alarm's number; is_seen() says when that has happened.
  std::uint32_t alarm(FrameKind kind = FrameKind::Alarm);
  bool is_seen(std::uint32_t alarm) const { return static_cast<std::int32_t>(seen_ - alarm) >= 0; }

 private:
  void connect();
  void hear();
  bool take(const WireFrame& frame);
  void disconnect();
  void beat(const Evidence& evidence);
  std::int64_t standing_ns(const Evidence& evidence);
  void add_marks(const Evidence& evidence, std::vector<Mark>& marks);

  const RunDirectory& run_;
  Board& board_;
  Invitation invitation_;
  Link link_;
  std::optional<Introduction> introduction_;
  bool connecting_ = false;
  bool proved_ = false;
  bool connected_ = false;
  bool leaves_ = false;
  std::size_t next_address_ = 0;
  std::size_t refusals_ = 0;  ///< one after another
  std::int64_t now_ns_ = 0;
  std::int64_t alone_since_ns_ = 0;
  std::int64_t tried_ns_ = 0;
  std::int64_t heard_ns_ = 0;
  std::int64_t beat_ns_ = 0;
  std::optional<Fetch> fetch_;
  std::optional<Order> order_;
  std::uint32_t alarms_ = 0;
  std::uint32_t seen_ = 0;
  std::map<std::string, RecordSource> sources_;
  struct Progress {
    std::uint64_t state = 0;
    std::int64_t since_ns = 0;
  };
  std::map<std::string, Progress> progress_;
  /// Of a communicator that other nodes have part in.
  struct Marking {
    std::uint64_t marked = 0;    ///< sequence of the latest mark
    std::uint64_t step = 1;      ///< marks are made of calls whose number divides by it; a power of two
    std::uint64_t sequence = 0;  ///< when the step was chosen
    std::int64_t chosen_ns = 0;
  };
  std::map<std::uint64_t, Marking> marked_;  ///< by key
};

/// The last process of a node is about to exit: lets the coordinator have all that it wants, at most for
/// `patience_ns`. Any thread, while no Uplink of this process is in use.
void say_goodbye(const RunDirectory& run, Board& board, const Invitation& invitation,
                 std::int64_t patience_ns);

}  // namespace accel
