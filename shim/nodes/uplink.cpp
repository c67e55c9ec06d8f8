#include "nodes/uplink.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <sstream>

#include "collect/observer.h"
#include "nodes/record_copies.h"
#include "report/log.h"

namespace accel {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kBeatInterval = 250'000'000;
/// How long an address may take to answer before the next one is tried.
constexpr std::int64_t kConnectPatience = 700'000'000;
constexpr std::int64_t kRetryInterval = 200'000'000;
/// The coordinator says something every two seconds.
constexpr std::int64_t kSilence = 5'000'000'000;
/// More than this is not taken into memory for one process: of a longer file the latest calls only.
constexpr std::uint64_t kMostWhole = 32 << 20;

/// Of this node, the same whoever leads it.
std::uint64_t node_of(Board& board) {
  std::uint64_t drawn = 0;
  while (drawn == 0) {
    if (getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) != sizeof drawn) drawn = ticks_now();
  }
  std::uint64_t there = 0;
  return board.node.compare_exchange_strong(there, drawn) ? drawn : there;
}

}  // namespace

std::optional<Invitation> Invitation::from_environment(const std::string& run_id) {
  const char* const where = std::getenv("ACCEL_COORDINATOR");
  const char* const secret = std::getenv("ACCEL_TOKEN");
  if (where == nullptr || secret == nullptr) return std::nullopt;
  const auto token = Token::parse(secret);
  if (!token) return std::nullopt;
  Invitation invitation{run_id, {}, *token};
  std::istringstream words(where);
  for (std::string word; std::getline(words, word, ',');) {
    if (const auto address = SocketAddress::parse(word)) invitation.addresses.push_back(*address);
  }
  if (invitation.addresses.empty()) return std::nullopt;
  return invitation;
}

Uplink::Uplink(const RunDirectory& run, Board& board, Invitation invitation)
    : run_(run),
      board_(board),
      invitation_(std::move(invitation)),
      now_ns_(monotonic_ns()),
      alone_since_ns_(now_ns_) {}

void Uplink::disconnect() {
  link_.close();
  link_ = Link();
  introduction_.reset();
  if (connected_) alone_since_ns_ = now_ns_;
  connecting_ = proved_ = connected_ = false;
  fetch_.reset();
}

void Uplink::connect() {
  if (!link_.is_open() && (connecting_ || introduction_)) disconnect();
  if (!link_.is_open()) {
    if (is_relieved() || (tried_ns_ != 0 && now_ns_ - tried_ns_ < kRetryInterval)) return;
    tried_ns_ = now_ns_;
    FileDescriptor socket =
        start_connecting(invitation_.addresses[next_address_++ % invitation_.addresses.size()]);
    if (!socket) return;
    link_ = Link(std::move(socket), kLongestOfStranger);
    connecting_ = true;
  }
  if (connecting_) {
    const auto decided = has_connected(link_.fd());
    if (!decided && now_ns_ - tried_ns_ < kConnectPatience) return;
    if (!decided.value_or(false)) {
      ++refusals_;
      return disconnect();
    }
    refusals_ = 0;
    connecting_ = false;
    introduction_.emplace(invitation_.token, invitation_.run, host_name(), node_of(board_));
    link_.send(FrameKind::Hello, introduction_->hello());
    tried_ns_ = now_ns_;
  }
  // A stranger on that port may say nothing at all.
  if (!connected_ && now_ns_ - tried_ns_ > 2 * kConnectPatience) disconnect();
}

bool Uplink::take(const WireFrame& frame) {
  std::string_view body = frame.body;
  if (!connected_) {
    if (frame.kind == FrameKind::Welcome && proved_) {
      connected_ = true;
      heard_ns_ = now_ns_;
      sources_.clear();
      marked_.clear();
      beat_ns_ = 0;
      return true;
    }
    Challenge challenge;
    if (frame.kind != FrameKind::Challenge || proved_ || !take_value(body, challenge)) return false;
    const auto proof = introduction_->answer(challenge);
    if (!proof) return false;
    link_.send(FrameKind::Proof, *proof);
    link_.trust();
    proved_ = true;
    return true;
  }
  heard_ns_ = now_ns_;
  switch (frame.kind) {
    case FrameKind::Ping: {
      Ping ping;
      if (!take_value(body, ping)) return false;
      link_.send(FrameKind::Pong, Pong{ping.sent_ns, monotonic_ns()});
      return true;
    }
    case FrameKind::Fetch: {
      Fetch fetch;
      if (!take_value(body, fetch)) return false;
      fetch_ = fetch;
      return true;
    }
    case FrameKind::Seen:
    case FrameKind::Bye: {
      Alarm alarm;
      if (!take_value(body, alarm)) return false;
      seen_ = alarm.number;
      return true;
    }
    case FrameKind::End: {
      Order order;
      if (!take_value(body, order.end)) return false;
      order.verdict = body;
      order_ = std::move(order);
      return true;
    }
    default:
      return false;
  }
}

void Uplink::hear() {
  if (!link_.is_open() || connecting_) return;
  link_.pump();
  while (const auto frame = link_.next()) {
    if (!take(*frame)) return disconnect();
  }
  if (!link_.is_open() || (connected_ && now_ns_ - heard_ns_ > kSilence)) disconnect();
}

void Uplink::turn(const Evidence& evidence) {
  now_ns_ = monotonic_ns();
  connect();
  hear();
  if (connected_ && now_ns_ - beat_ns_ >= kBeatInterval && link_.unsent() == 0) {
    beat_ns_ = now_ns_;
    beat(evidence);
  }
  if (!connecting_) link_.flush();
}

/// Of the process that waits longest without having done anything meanwhile.
std::int64_t Uplink::standing_ns(const Evidence& evidence) {
  std::int64_t longest = 0;
  for (const ProcessEvidence& process : evidence.processes) {
    if (process.copy || process.has_left()) continue;
    bool waits = !process.blocked.empty() || !process.driver_waits.empty() ||
                 process.phase == Phase::Initializing || process.phase == Phase::InFinalize;
    std::uint64_t state = mix(static_cast<std::uint64_t>(process.phase), 0);
    for (const BlockedCall& call : process.blocked) state = mix(state, call.record.started + call.tid);
    for (const CommunicatorEvidence& one : process.communicators)
      state = mix(state, one.record.key + one.record.sequence);
    for (const StreamEvidence& stream : process.streams) {
      waits = waits || (stream.record.tracked != 0 && stream.record.completed < stream.record.launched);
      state = mix(state, stream.record.completed);
    }
    Progress& progress = progress_[process.file];
    if (progress.state != state || !waits) progress = {state, evidence.now_ns};
    longest = std::max(longest, evidence.now_ns - progress.since_ns);
  }
  return longest;
}

/// Once or twice a second for each communicator: of the latest call whose number divides by a power of two,
/// which is as large as there are calls in a second. So other nodes' marks coincide with ours.
void Uplink::add_marks(const Evidence& evidence, std::vector<Mark>& marks) {
  std::map<std::uint64_t, std::int32_t> here;
  for (const ProcessEvidence& process : evidence.processes) {
    for (const CommunicatorEvidence& one : process.communicators) ++here[one.record.key];
  }
  constexpr std::uint32_t kNotComparable = kCommunicatorFreed | kCommunicatorOpaque | kCommunicatorInter |
                                           kCommunicatorAborted | kCommunicatorReused;
  for (const ProcessEvidence& process : evidence.processes) {
    for (const CommunicatorEvidence& one : process.communicators) {
      const CommunicatorRecord& record = one.record;
      if ((record.flags & kNotComparable) != 0 || record.size <= here[record.key]) continue;
      Marking& marking = marked_[record.key];
      const std::int64_t elapsed = now_ns_ - marking.chosen_ns;
      if (elapsed > kSecond) {
        const double calls =
            static_cast<double>(record.sequence - std::min(marking.sequence, record.sequence));
        const double rate = calls * static_cast<double>(kSecond) / static_cast<double>(elapsed);
        marking.step = std::bit_floor(std::max<std::uint64_t>(static_cast<std::uint64_t>(rate), 1));
        marking.sequence = record.sequence;
        marking.chosen_ns = now_ns_;
      }
      const std::uint64_t latest = record.sequence & ~(marking.step - 1);
      if (latest <= marking.marked || marks.size() >= kMostMarks) continue;
      marking.marked = latest;
      if (const auto call = process.history->call(one.slot, latest)) {
        marks.push_back({static_cast<std::uint32_t>(record.key), static_cast<std::uint32_t>(latest),
                         static_cast<std::uint32_t>(call->chain)});
      }
    }
  }
}

void Uplink::beat(const Evidence& evidence) {
  Beat beat{standing_ns(evidence), 0, board_.stack_request.load(),
            static_cast<std::uint32_t>(evidence.processes.size())};
  for (const ProcessEvidence& process : evidence.processes) {
    beat.shape = mix(beat.shape, static_cast<std::uint64_t>(process.pid));
    beat.shape = mix(beat.shape, static_cast<std::uint64_t>(process.world_rank));
    for (const CommunicatorEvidence& one : process.communicators)
      beat.shape = mix(beat.shape, one.record.key);
  }
  std::vector<Mark> marks;
  add_marks(evidence, marks);
  std::string body;
  put(body, beat);
  for (const Mark& mark : marks) put(body, mark);
  link_.send(FrameKind::Beat, std::string_view(body));
}

void Uplink::send_copies(const Fetch& fetch, const Evidence& evidence) {
  if (fetch.anew != 0) sources_.clear();
  for (const ProcessEvidence& process : evidence.processes) {
    if (process.copy || !connected_) continue;
    CopyStatus status{};
    status.now = ClockPair::now();
    status.at_ns = status.now.monotonic_ns;
    status.gone_since_ns = process.gone_since_ns;
    status.signal = process.signal;
    status.signal_inferred = process.signal_inferred ? 1 : 0;
    status.alive = process.alive ? 1 : 0;
    status.no_other_thread = process.no_other_thread ? 1 : 0;
    RecordSource& source = sources_.try_emplace(process.file, run_.fd(), process.file).first->second;
    const bool whole = fetch.everything != 0 && source.size() <= kMostWhole;
    std::string header_page;
    const bool read = source.read(whole, header_page, [&](std::uint64_t offset, std::string_view bytes) {
      link_.send(FrameKind::Chunk, std::string_view(chunk_body(process.pid, offset, bytes)));
    });
    if (read) {
      link_.send(FrameKind::Process, std::string_view(process_body(process.pid, status, header_page)));
    } else {
      sources_.erase(process.file);
    }
  }
  link_.send(FrameKind::Copied, Copied{fetch.round, 0});
  link_.flush();
}

std::uint32_t Uplink::alarm(FrameKind kind) {
  link_.send(kind, Alarm{++alarms_, 0});
  link_.flush();
  return alarms_;
}

void say_goodbye(const RunDirectory& run, Board& board, const Invitation& invitation,
                 std::int64_t patience_ns) {
  Observer observer(run);
  observer.only_this_node();
  Uplink uplink(run, board, invitation);
  uplink.leave();
  std::optional<std::uint32_t> alarm;
  const std::int64_t deadline = monotonic_ns() + patience_ns;
  while (monotonic_ns() < deadline && !(alarm && uplink.is_seen(*alarm)) && !uplink.is_refused()) {
    const Evidence evidence = observer.observe();
    uplink.turn(evidence);
    if (!uplink.is_connected()) alarm.reset();
    if (uplink.is_connected() && !alarm) alarm = uplink.alarm(FrameKind::Leaving);
    if (const auto fetch = uplink.take_fetch()) uplink.send_copies(*fetch, evidence);
    pollfd waiting = uplink.waits_for();
    poll(&waiting, 1, 5);
  }
}

}  // namespace accel
