#include "nodes/coordinator.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>

#include "record/fixed_text.h"

namespace accel {
namespace {

constexpr int kTickMs = 50;
constexpr std::int64_t kPingInterval = 2'000'000'000;
/// A stranger has so long to prove who it is.
constexpr std::int64_t kStrangerPatience = 5'000'000'000;
/// Whoever leads a node after the one that died has so long to come back.
constexpr std::int64_t kReturnPatience = 2'000'000'000;
/// Who says nothing for so long may have lost the way to us.
constexpr std::int64_t kSilence = 5'000'000'000;
/// Who has not been heard for so long is not waited for.
constexpr std::int64_t kFresh = 2'000'000'000;
/// A process that waits for longer than this, and for half as long again as is usual in the job, is worth a
/// look; and then each time when it has waited for as long again.
constexpr std::int64_t kStanding = 250'000'000;
constexpr std::int64_t kMostUsual = 5'000'000'000;
constexpr std::int64_t kMostBetweenLooks = 30'000'000'000;
/// What is usual is forgotten by half in this time.
constexpr std::int64_t kUsualHalves = 60'000'000'000;
/// The shape of a node is asked for no more often than this.
constexpr std::int64_t kShapeInterval = 250'000'000;
using Alarms = std::vector<std::pair<FrameKind, std::uint32_t>>;
bool is_leaving(const Alarms& alarms) {
  return std::any_of(alarms.begin(), alarms.end(),
                     [](const auto& alarm) { return alarm.first == FrameKind::Leaving; });
}

constexpr std::size_t kMostSequences = 64;
constexpr std::size_t kMostCommunicators = std::size_t{1} << 20;

}  // namespace

Coordinator::Coordinator(const RunDirectory& run, Board& board, const Token& token, std::string name,
                         std::vector<FileDescriptor> listeners, std::size_t most_copied)
    : run_(run),
      board_(board),
      token_(token),
      name_(std::move(name)),
      most_copied_(most_copied),
      listeners_(std::move(listeners)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  for (const FileDescriptor& listener : listeners_) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = listener.get();
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener.get(), &event);
  }
}

Coordinator::~Coordinator() = default;

std::string Coordinator::addresses() const {
  std::string all;
  for (const FileDescriptor& listener : listeners_) {
    if (const auto address = SocketAddress::of(listener.get()))
      all += (all.empty() ? "" : ",") + address->text();
  }
  return all;
}

void Coordinator::expect_waits(std::int64_t warn_after_ns, std::int64_t timeout_ns) {
  const std::lock_guard lock(mutex_);
  warn_after_ns_ = warn_after_ns;
  timeout_ns_ = timeout_ns;
}

void Coordinator::run(const std::atomic<bool>& over) {
  epoll_event events[256];
  while (!over.load()) {
    const int count = epoll_wait(epoll_.get(), events, std::size(events), kTickMs);
    const std::int64_t now_ns = monotonic_ns();
    bool full = false;
    {
      const std::lock_guard lock(mutex_);
      full = queued_ > kMostQueued;
      for (int i = 0; i < count && !full; ++i) {
        const int fd = events[i].data.fd;
        const bool listens = std::any_of(listeners_.begin(), listeners_.end(),
                                         [&](const FileDescriptor& one) { return one.get() == fd; });
        if (listens) {
          accept_all(fd, now_ns);
        } else {
          hear(fd, now_ns);
        }
        full = queued_ > kMostQueued;
      }
      tick(now_ns);
      watch_doors();
    }
    changed_.notify_all();
    if (full) usleep(kTickMs * 1000);  // the judge has to take it first
  }
}

void Coordinator::accept_all(int listener, std::int64_t now_ns) {
  while (strangers_ < kMostStrangers) {
    FileDescriptor socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) return;
    const int fd = socket.get();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) continue;
    Connection connection;
    const auto peer = SocketAddress::of_peer(fd);
    connection.peer = peer ? peer->text() : "?";
    connection.since_ns = now_ns;
    connection.link = Link(std::move(socket), kLongestOfStranger);
    connections_.insert_or_assign(fd, std::move(connection));
    ++strangers_;
  }
}

/// More wait outside: all hosts of a large job come at once.
void Coordinator::watch_doors() {
  const bool open = strangers_ < kMostStrangers;
  if (open == std::exchange(doors_open_, open)) return;
  for (const FileDescriptor& listener : listeners_) {
    epoll_event event{};
    event.events = open ? EPOLLIN : 0U;
    event.data.fd = listener.get();
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener.get(), &event);
  }
}

/// One line for all of them: whoever scans ports fills no log.
void Coordinator::refuse(const Connection& connection, const std::string& why) {
  if (std::exchange(refused_, true)) return;
  warn(fmt::format("a connection from {} was refused: {}; others are refused without a word", connection.peer,
                   why));
}

void Coordinator::send_now(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  Link& link = found->second.link;
  link.flush();
  if (!link.is_open()) return;
  epoll_event event{};
  event.events = EPOLLIN | (link.unsent() != 0 ? EPOLLOUT : 0U);
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Coordinator::hear(int fd, std::int64_t now_ns) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  connection.link.pump();
  bool good = true;
  while (good) {
    const auto frame = connection.link.next();
    if (!frame) break;
    good = connection.node != nullptr ? take(connection, *frame, now_ns)
                                      : take_of_stranger(connection, *frame, now_ns);
  }
  if (connection.link.is_broken() && connection.node == nullptr) refuse(connection, "it is no libaccel");
  if (!good || !connection.link.is_open()) return drop(fd, now_ns);
  send_now(fd);
}

void Coordinator::drop(int fd, std::int64_t now_ns) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  if (Node* const node = found->second.node; node != nullptr && node->connection == fd) {
    node->connection = -1;
    const bool ended = found->second.link.was_ended();
    node->gone_ns = ended ? now_ns : 0;
    node->incoming.clear();
    queued_ -= std::exchange(node->incoming_bytes, 0);
    node->standing_ns = 0;
    node->alarms.clear();
    node->answering.clear();
    if (ended && !node->left) {
      // Before a launcher ends the others for it: how they are now is what will be told.
      node->doubt = true;
      rounds_.push_back({node->number, 0, {}, 0, now_ns, node->leader, false});
      want_look();
    }
  }
  if (found->second.node == nullptr) --strangers_;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  connections_.erase(found);
}

bool Coordinator::take_of_stranger(Connection& connection, const WireFrame& frame, std::int64_t now_ns) {
  std::string_view body = frame.body;
  if (!connection.reception) {
    if (frame.kind != FrameKind::Hello || !take_value(body, connection.hello)) {
      refuse(connection, "it is no libaccel");
      return false;
    }
    connection.reception.emplace(token_, name_);
    auto challenge = connection.reception->challenge(connection.hello);
    if (!challenge) {
      refuse(connection, challenge.error);
      return false;
    }
    connection.link.send(FrameKind::Challenge, *challenge);
    return true;
  }
  Proof proof;
  if (frame.kind != FrameKind::Proof || !take_value(body, proof) || !connection.reception->accepts(proof)) {
    refuse(connection, "it does not know the run's token");
    return false;
  }
  const std::uint64_t id = connection.hello.node;
  if (!nodes_.contains(id) && nodes_.size() >= kMostNodes) return false;
  Node& node = nodes_[id];
  const int own = connection.link.fd();
  if (node.number == 0) node.number = static_cast<std::uint32_t>(nodes_.size());
  if (node.connection >= 0) {
    node.left = true;  // whoever led there before has handed it over
    drop(node.connection, now_ns);
  }
  hear_again(node);
  node.host = text_of(connection.hello.host);
  node.leader = connection.hello.leader;
  node.connection = own;
  node.heard_ns = now_ns;
  node.gone_ns = 0;
  node.left = node.lost = node.silent = false;
  node.shape = node.asked_shape = 0;
  node.asked = node.copied = 0;
  node.copied_at_all = false;
  ++node.sessions;
  connection.node = &node;
  --strangers_;
  connection.link.trust();
  if (is_crowd() && !std::exchange(crowded_, true)) {
    warn(fmt::format("more than {} hosts: a report shows the ranks of those that say most", most_copied_));
  }
  connection.link.send(FrameKind::Welcome, std::string_view("1"));
  connection.link.send(FrameKind::Ping, Ping{monotonic_ns()});
  return true;
}

bool Coordinator::take_beat(Node& node, std::string_view body) {
  Beat beat;
  if (!take_value(body, beat)) return false;
  // Whoever has waited and goes on shows how long one waits here.
  if (beat.standing_ns < node.standing_ns && node.standing_ns > usual_ns_) {
    usual_ns_ = std::min(node.standing_ns, kMostUsual);
    usual_since_ns_ = monotonic_ns();
  }
  node.standing_ns = beat.standing_ns;
  node.shape = beat.shape;
  std::uint32_t own = board_.stack_request.load();
  while (static_cast<std::int32_t>(beat.stack_request - own) > 0 &&
         !board_.stack_request.compare_exchange_weak(own, beat.stack_request)) {}
  for (Mark mark; take_value(body, mark);) {
    if (!marks_.contains(mark.communicator) && marks_.size() >= kMostCommunicators) continue;
    Marks& marks = marks_[mark.communicator];
    const auto [place, is_new] = marks.chains.emplace(mark.sequence, Marks::First{mark.chain, &node});
    if (!is_new && place->second.chain != mark.chain && !std::exchange(marks.differ, true)) {
      node.differs = place->second.node->differs = true;
      want_look();
    }
    if (marks.chains.size() > kMostSequences) marks.chains.erase(marks.chains.begin());
  }
  return true;
}

bool Coordinator::take(Connection& connection, const WireFrame& frame, std::int64_t now_ns) {
  Node& node = *connection.node;
  std::string_view body = frame.body;
  node.heard_ns = now_ns;
  switch (frame.kind) {
    case FrameKind::Pong: {
      Pong pong;
      if (!take_value(body, pong)) return false;
      node.clock.add(pong.sent_ns, pong.there_ns, monotonic_ns());
      return true;
    }
    case FrameKind::Beat:
      return take_beat(node, body);
    case FrameKind::Chunk:
    case FrameKind::Process:
      node.incoming.push_back(frame);
      node.incoming_bytes += frame.body.size();
      queued_ += frame.body.size();
      // Each process is whole in itself: many need not wait for one another.
      if (frame.kind == FrameKind::Process && node.incoming_bytes > kMostQueued / 16) hand_over(node);
      return node.incoming_bytes < kMostQueued / 2;
    case FrameKind::Copied: {
      Copied copied;
      if (!take_value(body, copied)) return false;
      node.copied = copied.round;
      hand_over(node);
      return true;
    }
    case FrameKind::Alarm:
    case FrameKind::Leaving: {
      Alarm alarm;
      constexpr std::size_t kMostAlarms = 1024;
      if (!take_value(body, alarm) || node.alarms.size() >= kMostAlarms) return false;
      node.alarms.emplace_back(frame.kind, alarm.number);
      ring();
      return true;
    }
    default:
      return false;
  }
}

void Coordinator::hand_over(Node& node) {
  node.copied_at_all = true;
  rounds_.push_back({node.number, node.clock.value(), std::exchange(node.incoming, {}),
                     std::exchange(node.incoming_bytes, 0), 0, 0, false});
}

void Coordinator::want_look() {
  wanted_ = true;
  ring();
}

void Coordinator::ring() const {
  const std::uint64_t once = 1;
  [[maybe_unused]] const ssize_t written = write(bell_.get(), &once, sizeof once);
}

bool Coordinator::is_heard(const Node& node, std::int64_t now_ns) const {
  return node.connection >= 0 && now_ns - node.heard_ns < kFresh;
}

void Coordinator::ask(Node& node, const Fetch& fetch, std::int64_t now_ns) {
  const auto found = connections_.find(node.connection);
  if (found == connections_.end()) return;
  Fetch one = fetch;
  one.round = ++node.asked;
  node.asked_shape = node.shape;
  node.asked_ns = now_ns;
  found->second.link.send(FrameKind::Fetch, one);
  send_now(node.connection);
}

void Coordinator::hear_again(Node& node) {
  if (!std::exchange(node.silent, false)) return;
  notices_.push_back(
      {LogLevel::Info, fmt::format("{} is heard again; its ranks are judged with the others", node.host)});
}

void Coordinator::lose(Node& node, std::int64_t now_ns) {
  if (node.left || std::exchange(node.lost, true)) return;
  if (!node.copied_at_all) {
    warn(fmt::format("the connection to {} has ended, and its ranks are gone with it or cannot be asked",
                     node.host));
  }
  rounds_.push_back({node.number, 0, {}, 0, node.gone_ns != 0 ? node.gone_ns : now_ns, 0, false});
  want_look();
}

/// A process that stands still may wait for one of another node.
void Coordinator::schedule(std::int64_t now_ns) {
  if (usual_ns_ != 0 && now_ns - usual_since_ns_ > kUsualHalves) {
    usual_ns_ /= 2;
    usual_since_ns_ = now_ns;
  }
  std::int64_t longest = 0;
  for (const auto& [id, node] : nodes_) longest = std::max(longest, node.standing_ns);
  if (longest < looked_at_ns_) looked_at_ns_ = 0;
  std::int64_t next = looked_at_ns_ == 0 ? std::max(kStanding, usual_ns_ + usual_ns_ / 2)
                                         : std::min(2 * looked_at_ns_, looked_at_ns_ + kMostBetweenLooks);
  for (const std::int64_t said : {warn_after_ns_, timeout_ns_}) {
    if (said > looked_at_ns_ && said < next) next = std::max(said, kStanding);
  }
  if (longest < next) return;
  looked_at_ns_ = longest;
  want_look();
}

void Coordinator::tick(std::int64_t now_ns) {
  if (now_ns - ticked_ns_ < kTickMs * 1'000'000LL) return;
  // Whoever was asleep itself (a suspended job, a laptop) has heard nobody.
  const bool was_asleep = ticked_ns_ != 0 && now_ns - ticked_ns_ > kFresh;
  ticked_ns_ = now_ns;
  std::vector<int> late;
  for (const auto& [fd, connection] : connections_) {
    if (connection.node == nullptr && now_ns - connection.since_ns > kStrangerPatience) late.push_back(fd);
  }
  for (const int fd : late) {
    refuse(connections_[fd], "it said nothing for five seconds");
    drop(fd, now_ns);
  }
  const bool ping = now_ns - pinged_ns_ >= kPingInterval;
  if (ping) pinged_ns_ = now_ns;
  for (auto& [id, node] : nodes_) {
    if (was_asleep) {
      node.heard_ns = now_ns;
      if (node.gone_ns != 0) node.gone_ns = now_ns;
    }
    if (node.gone_ns != 0) {
      if (now_ns - node.gone_ns > kReturnPatience) lose(node, now_ns);
      continue;
    }
    if (!node.left && now_ns - node.heard_ns > kSilence && !std::exchange(node.silent, true)) {
      warn(fmt::format("nothing has been heard of {} for {} s: its ranks are not judged until it is back",
                       node.host, kSilence / 1'000'000'000));
    }
    if (node.connection < 0) continue;
    if (is_heard(node, now_ns)) hear_again(node);
    if (ping) {
      connections_[node.connection].link.send(FrameKind::Ping, Ping{monotonic_ns()});
      send_now(node.connection);
    }
    const bool news = !is_crowd() && node.shape != node.asked_shape && node.copied == node.asked;
    if (news && now_ns - node.asked_ns > kShapeInterval) ask(node, Fetch{}, now_ns);
  }
  schedule(now_ns);
}

bool Coordinator::is_in_doubt() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& one) { return one.second.doubt; });
}

bool Coordinator::has_nodes() const {
  const std::lock_guard lock(mutex_);
  return !nodes_.empty();
}

bool Coordinator::look(bool asked) {
  std::uint64_t rung = 0;
  [[maybe_unused]] const ssize_t got = read(bell_.get(), &rung, sizeof rung);
  bool all = asked;
  bool leaving = false;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, node] : nodes_) {
      for (const auto& alarm : node.alarms) {
        (alarm.first == FrameKind::Leaving ? leaving : all) = true;
        node.answering.push_back(alarm);
      }
      node.alarms.clear();
    }
    all = std::exchange(wanted_, false) || all;
  }
  if (all || leaving) fetch(all ? Whom::All : Whom::Leaving, 0, 0);
  return show() || all || leaving;
}

void Coordinator::refresh(std::uint32_t stack_request, std::int64_t patience_ns) {
  fetch(Whom::All, stack_request, patience_ns);
  show();
}

/// Of a crowd only some; what was kept of the others goes.
std::vector<Coordinator::Node*> Coordinator::chosen(Whom whom, std::int64_t now_ns) {
  std::vector<Node*> heard;
  for (auto& [id, node] : nodes_) {
    if (is_heard(node, now_ns) && (whom == Whom::All || is_leaving(node.answering))) heard.push_back(&node);
  }
  if (!is_crowd()) return heard;
  if (whom == Whom::Leaving) return {};
  const auto says_more = [](const Node* a, const Node* b) {
    const auto rank = [](const Node* node) { return std::pair(node->answering.empty(), !node->differs); };
    return rank(a) != rank(b) ? rank(a) < rank(b) : a->standing_ns > b->standing_ns;
  };
  std::sort(heard.begin(), heard.end(), says_more);
  if (heard.size() > most_copied_) {
    // The end of the list goes on while others wait: a quarter of the places is for whom they may wait for.
    const auto last = static_cast<std::ptrdiff_t>(most_copied_ / 4);
    std::rotate(heard.begin() + static_cast<std::ptrdiff_t>(most_copied_) - last, heard.end() - last,
                heard.end());
    heard.resize(most_copied_);
  }
  for (auto& [id, node] : nodes_) {
    if (!node.copied_at_all || std::find(heard.begin(), heard.end(), &node) != heard.end()) continue;
    node.copied_at_all = false;
    rounds_.push_back({node.number, 0, {}, 0, 0, 0, true});
  }
  return heard;
}

void Coordinator::fetch(Whom whom, std::uint32_t stack_request, std::int64_t patience_ns) {
  std::unique_lock lock(mutex_);
  const std::int64_t now_ns = monotonic_ns();
  struct Asked {
    const Node* node;
    std::uint32_t session;
    std::uint32_t round;
  };
  std::vector<Asked> asked;
  for (Node* const node : chosen(whom, now_ns)) {
    const bool whole = is_leaving(node->answering);
    ask(*node, {0, whole ? 1U : 0U, stack_request, node->copied_at_all ? 0U : 1U, patience_ns}, now_ns);
    asked.push_back({node, node->sessions, node->asked});
  }
  constexpr std::int64_t kOnTheWay = 500'000'000;
  changed_.wait_for(lock, std::chrono::nanoseconds(patience_ns + kOnTheWay), [&] {
    return std::all_of(asked.begin(), asked.end(), [](const Asked& one) {
      return one.node->connection < 0 || one.node->sessions != one.session ||
             static_cast<std::int32_t>(one.node->copied - one.round) >= 0;
    });
  });
}

bool Coordinator::show() {
  std::vector<Round> rounds;
  std::vector<std::uint32_t> resolved;
  {
    const std::lock_guard lock(mutex_);
    rounds.swap(rounds_);
    for (const Round& round : rounds) queued_ -= round.bytes;
  }
  for (const Round& round : rounds) {
    RecordCopies& copies = copies_.try_emplace(round.node, run_, round.node).first->second;
    if (round.forgotten) copies.forget();
    if (round.lost_ns != 0) copies.lose(round.lost, round.lost_ns);
    if (round.lost == 0 && !round.forgotten) resolved.push_back(round.node);
    bool good = true;
    for (const WireFrame& frame : round.frames) good = good && copies.take(frame);
    std::string wrong = good ? copies.show(round.clock_offset_ns) : "what a node sent makes no sense";
    if (!good) copies.drop();
    if (wrong.empty()) continue;
    const std::lock_guard lock(mutex_);
    warn(std::move(wrong));
  }
  const std::lock_guard lock(mutex_);
  for (auto& [id, node] : nodes_) {
    const bool known = std::find(resolved.begin(), resolved.end(), node.number) != resolved.end();
    if (known && (node.connection >= 0 || node.lost)) node.doubt = false;
  }
  return !rounds.empty();
}

void Coordinator::looked() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, node] : nodes_) {
    if (node.answering.empty() || node.connection < 0) continue;
    for (const auto& [kind, number] : node.answering) {
      const bool bye = kind == FrameKind::Leaving;
      connections_[node.connection].link.send(bye ? FrameKind::Bye : FrameKind::Seen, Alarm{number, 0});
      node.left = node.left || bye;
    }
    node.answering.clear();
    send_now(node.connection);
  }
}

void Coordinator::end_world(std::uint64_t world, std::uint32_t status, const std::string& verdict) {
  std::string body;
  put(body, End{world, status, 0});
  body += verdict;
  if (body.size() >= kLongestFrame) body.resize(sizeof(End));
  const std::lock_guard lock(mutex_);
  for (auto& [id, node] : nodes_) {
    if (node.connection < 0) continue;
    connections_[node.connection].link.send(FrameKind::End, std::string_view(body));
    send_now(node.connection);
  }
}

void Coordinator::finish(std::int64_t patience_ns) {
  {
    std::unique_lock lock(mutex_);
    const auto all_gone = [&] {
      return std::all_of(nodes_.begin(), nodes_.end(),
                         [](const auto& one) { return one.second.connection < 0 || one.second.left; });
    };
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(patience_ns);
    while (!all_gone() && std::chrono::steady_clock::now() < deadline) {
      lock.unlock();
      look();
      looked();
      lock.lock();
      changed_.wait_for(lock, std::chrono::milliseconds(kTickMs));
    }
    const std::int64_t now_ns = monotonic_ns();
    for (auto& [id, node] : nodes_) {
      if (node.gone_ns != 0) lose(node, now_ns);
    }
  }
  show();
}

std::vector<Coordinator::Notice> Coordinator::take_notices() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notices_, {});
}

}  // namespace accel
