#include "act/watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "judge/setup.h"
#include "nodes/meeting.h"
#include "record/futex.h"
#include "record/process_stat.h"
#include "report/log.h"
#include "report/names.h"
#include "report/rank_set.h"
#include "report/report.h"

namespace accel {
namespace {

/// A leader that slept longer than this between two turns did not see what happened meanwhile.
constexpr std::int64_t kBlindAfter = 3'000'000'000;
/// What other nodes' processes have not done, by a copy older than this, they may have done by now.
constexpr std::int64_t kCopiesFresh = 1'000'000'000;
/// How long a look is held up until the coordinator has looked, too.
constexpr std::int64_t kAlarmPatience = 1'000'000'000;
/// Who has waited for long already can wait for an interpreter, too.
std::int64_t patience_for(const Verdict& verdict) {
  const bool late = verdict.kind == VerdictKind::TimeOut || verdict.kind == VerdictKind::Late;
  return late ? kLatePatience : kPythonPatience;
}

/// What a warning is said once for. Of different datatypes once a communicator: a program that does so does
/// so in every step.
std::pair<std::uint64_t, std::uint64_t> once_of(const Verdict& verdict) {
  const bool datatypes = verdict.kind == VerdictKind::Datatypes;
  return {verdict.communicator, datatypes ? (verdict.fields.empty() ? 0 : UINT64_MAX) : verdict.sequence};
}

}  // namespace

Watch::Watch(const RunDirectory& run, Board& board, const Settings& settings)
    : run_(run), board_(board), settings_(settings), observer_(run), bell_(run.open_bell()) {
  show_full_names(settings.full_names);
  policy_.timeout_ns = settings.timeout_ns;
  policy_.warn_after_ns = settings.warn_after_ns;
  policy_.oom_grace_ns = settings.oom_grace_ns;
}

void Watch::sleep(int also) {
  std::vector<pollfd> waiting{{bell_.get(), POLLIN, 0}, {also, POLLIN, 0}};
  if (superior_) waiting.push_back(superior_->waits_for());
  if (nodes_ != nullptr) waiting.push_back({nodes_->bell(), POLLIN, 0});
  observer_.add_pollfds(waiting);
  poll(waiting.data(), waiting.size(), kInterval / 1'000'000);
  for (const pollfd& one : waiting) {
    // The application has closed all descriptors it did not know: sleep by the clock from now on.
    if ((one.revents & POLLNVAL) != 0) usleep(kInterval / 1000);
  }
  if ((waiting[0].revents & POLLIN) == 0) return;
  char bytes[256];
  while (read(bell_.get(), bytes, sizeof bytes) == sizeof bytes) {}
  observer_.rescan();
  rung_ = true;
}

void Watch::lead(Coordinator& nodes) {
  nodes_ = &nodes;
  nodes.expect_waits(settings_.warn_after_ns, settings_.timeout_ns);
}

void Watch::follow(const Invitation& invitation) { superior_.emplace(run_, board_, invitation); }

void Watch::meet() {
  if (!house_open_ && board_.meeting.wanted.load() != 0) open_house();
  const std::uint32_t stamp = board_.meeting.stamp.load();
  if (stamp == met_ || stamp % 2 != 0) return;
  met_ = stamp;
  superior_.reset();
  if (const auto invitation = invitation_of(board_)) follow(*invitation);
}

/// For as long as the process lives: its thread goes on.
void Watch::open_house() {
  FileDescriptor socket = open_meeting(board_);
  if (!socket) return;
  house_open_ = true;
  Token token;
  std::memcpy(token.bytes.data(), board_.meeting.host.token, token.bytes.size());
  std::vector<FileDescriptor> sockets;
  sockets.push_back(std::move(socket));
  auto* const nodes = new Coordinator(run_, board_, token, kMeetingName, std::move(sockets));
  const auto run = [](void* argument) -> void* {
    static const std::atomic<bool> never{false};
    try {
      static_cast<Coordinator*>(argument)->run(never);
    } catch (...) {
      log().say(LogLevel::Warning, "other hosts are not received any more: each judges its own ranks");
    }
    return nullptr;
  };
  if (start_thread_(run, nodes)) lead(*nodes);
}

void Watch::look_at_nodes(bool last) {
  if (!last && nodes_->look(std::exchange(rung_, false))) observer_.rescan();
  if (const std::uint32_t asked = board_.stack_request.load();
      asked != stacks_asked_ && nodes_->has_nodes()) {
    stacks_asked_ = asked;
    nodes_->refresh(asked, kLatePatience);
  }
  observer_.expect_copies_since(last ? 0 : monotonic_ns() - kCopiesFresh);
  for (const Coordinator::Notice& notice : nodes_->take_notices()) log().say(notice.level, notice.text);
}

/// Another node's leader, or accelrun, decides.
bool Watch::is_led() {
  serve();
  if (superior_->is_led()) {
    report_upwards();
    return true;
  }
  if (superior_->is_alone_for_long() && !std::exchange(said_alone_, true)) {
    log().say(LogLevel::Warning,
              fmt::format("accelrun cannot be reached from {}: its ranks are judged without those of other "
                          "hosts until it can be",
                          host_name()));
  }
  return false;
}

/// What the coordinator wants.
void Watch::serve() {
  superior_->turn(evidence_);
  if (const auto fetch = superior_->take_fetch()) {
    if (fetch->stack_request != 0 && settings_.stacks != Stacks::Off) {
      request_stacks(board_, observer_, evidence_, fetch->patience_ns, answer_, fetch->stack_request);
      evidence_ = observer_.observe();
    }
    superior_->send_copies(*fetch, evidence_);
  }
  if (const auto order = superior_->take_order()) obey(*order);
}

void Watch::obey(const Uplink::Order& order) {
  publish_file("verdict.json", order.verdict + "\n");
  ordered_ = static_cast<int>(order.end.status);
  if (ordered_ == 0) return;
  expect_ends(order.end.world);
  end_world(order.end.world, static_cast<int>(order.end.status));
}

/// Raises the alarm where something has happened that may concern other nodes, and waits until it has been
/// looked at: a rank that is about to go is held up for that, and a job that dies is looked at before.
void Watch::report_upwards() {
  const auto left = static_cast<std::size_t>(
      std::count_if(evidence_.processes.begin(), evidence_.processes.end(),
                    [](const ProcessEvidence& process) { return process.has_left(); }));
  bool news = std::exchange(rung_, false) || left != left_;
  left_ = left;
  if (settings_.check != Check::Off) {
    for (const Verdict& verdict : judge(evidence_, policy_)) {
      const std::uint64_t world = evidence_.processes[verdict.parties.front().process].world_key;
      news = (verdict.settled && alarmed_.emplace(world, verdict.kind).second) || news;
    }
  }
  if (!news) return;
  std::optional<std::uint32_t> alarm;
  const std::int64_t deadline = monotonic_ns() + kAlarmPatience;
  while (superior_->is_led() && !superior_->is_relieved() && monotonic_ns() < deadline) {
    if (superior_->is_connected() && !alarm) alarm = superior_->alarm();
    if (alarm && superior_->is_seen(*alarm)) return;
    pollfd waiting = superior_->waits_for();
    poll(&waiting, 1, 5);
    evidence_ = observer_.observe();
    serve();
  }
}

bool Watch::rests_on_doubt(const Verdict& verdict) const {
  if (nodes_ == nullptr || !nodes_->is_in_doubt()) return false;
  return std::any_of(verdict.parties.begin(), verdict.parties.end(), [&](const Party& party) {
    const ProcessEvidence& process = evidence_.processes[party.process];
    return party.blamed && process.copy && !process.alive && process.signal_inferred;
  });
}

/// Meanwhile a launcher may have ended everybody else: what is told is how they were then. Only who else of
/// that host was gone by then is known better now.
void Watch::settle_doubt() {
  const Verdict& verdict = doubtful_->verdict;
  Evidence& then = doubtful_->evidence;
  const auto blamed = std::find_if(verdict.parties.begin(), verdict.parties.end(),
                                   [](const Party& party) { return party.blamed; });
  const ProcessEvidence gone = then.processes[blamed->process];
  bool has_died = false;
  for (const ProcessEvidence& now : evidence_.processes) {
    if (!now.copy || now.host != gone.host || now.alive || !now.signal_inferred) continue;
    has_died = has_died || now.file == gone.file;
    const auto place = std::find_if(then.processes.begin(), then.processes.end(),
                                    [&](const ProcessEvidence& one) { return one.file == now.file; });
    ProcessEvidence& one =
        place != then.processes.end() ? *place : then.processes.emplace_back(ProcessEvidence());
    one = now;
    one.gone_since_ns = gone.gone_since_ns;
  }
  if (has_died) {
    evidence_ = then;
    const std::vector<Verdict> verdicts = judge(evidence_, policy_);
    const auto certain = std::find_if(verdicts.begin(), verdicts.end(),
                                      [&](const Verdict& one) { return one.kind == verdict.kind; });
    if (certain != verdicts.end() && observer_.recall(evidence_)) consider(*certain, false);
    evidence_ = observer_.observe();
  }
  doubtful_.reset();
}

bool Watch::is_news(const Verdict& verdict) const {
  if (doubtful_) return false;
  if (verdict.is_fault())
    return !reported_worlds_.contains(evidence_.processes[verdict.parties.front().process].world_key);
  return !warned_.contains(once_of(verdict));
}

int Watch::turn(bool last) {
  const std::uint32_t number = board_.looks_started.fetch_add(1) + 1;
  follow_log_level(board_);
  if (start_thread_ != nullptr && !last) meet();
  observer_.expect_copies_since(monotonic_ns() - kCopiesFresh);
  if (nodes_ != nullptr) look_at_nodes(last);
  if (last) observer_.rescan();
  evidence_ = observer_.observe();
  if (board_.stop.ends.load() != 0) expect_end();
  if (evidence_.now_ns - last_look_ns_ > kBlindAfter) policy_.not_before_ns = evidence_.now_ns;
  last_look_ns_ = evidence_.now_ns;
  if (last) policy_.timeout_ns = policy_.warn_after_ns = 0;
  for (const std::string& complaint : observer_.take_complaints()) log().say(LogLevel::Warning, complaint);
  const bool judges = !superior_ || last || !is_led();
  if (doubtful_ && !nodes_->is_in_doubt()) settle_doubt();
  if (settings_.check != Check::Off && judges) {
    std::set<std::uint64_t> unsettled;
    std::vector<Verdict> verdicts = judge(evidence_, policy_);
    if (std::any_of(verdicts.begin(), verdicts.end(),
                    [&](const Verdict& verdict) { return is_news(verdict); })) {
      // A process that has come up since the last look at the directory belongs into the report too, and what
      // other nodes' processes are about now.
      if (nodes_ != nullptr && !last) {
        nodes_->refresh(0, 0);
        observer_.expect_copies_since(monotonic_ns() - kCopiesFresh);
      }
      observer_.rescan();
      evidence_ = observer_.observe();
      verdicts = judge(evidence_, policy_);
    }
    for (const Verdict& verdict : verdicts) {
      const std::uint64_t world = evidence_.processes[verdict.parties.front().process].world_key;
      // The causes come first: what follows them waits until they are clear.
      if (unsettled.contains(world)) continue;
      if (!verdict.settled && !last) {
        unsettled.insert(world);
      } else if (rests_on_doubt(verdict)) {
        if (!doubtful_) doubtful_ = {verdict, evidence_};
        unsettled.insert(world);
      } else {
        consider(verdict, last);
      }
    }
  }
  if (settings_.check != Check::Off && judges) warn_of_setup();
  if (judges) warn_of_gpus();
  if (nodes_ != nullptr) nodes_->looked();
  board_.looks_completed.store(number);
  futex_wake_all(board_.looks_completed);
  return fault_ ? exit_status(fault_->verdict.kind) : ordered_;
}

/// Also of the leaders before us.
bool Watch::is_first_to_say(std::uint64_t world, std::uint32_t what) {
  World* const place = board_.world(world);
  return place != nullptr && place->is_first_to_say(what);
}

/// Once for each world, when all its processes have come to NCCL. Only a warning: NCCL may still work.
void Watch::warn_of_setup() {
  std::map<std::uint64_t, std::int32_t> present;
  for (const ProcessEvidence& process : evidence_.processes) {
    if (process.nccl.empty()) continue;
    const std::int32_t count = ++present[process.world_key];
    if (count != process.world_size || !is_first_to_say(process.world_key, kSaidSetup)) continue;
    for (const std::string& difference : differences_of_setup(evidence_, process.world_key))
      log().say(LogLevel::Warning, difference + "; all processes of a job should have the same");
  }
}

/// Once for each world, when all its processes have taken memory on a GPU.
void Watch::warn_of_gpus() {
  std::map<std::uint64_t, std::map<std::string, std::vector<int>>> worlds;
  std::map<std::uint64_t, std::int32_t> missing;
  for (const ProcessEvidence& process : evidence_.processes) {
    if (process.gpu.empty() || process.world_rank < 0) continue;
    worlds[process.world_key][process.gpu].push_back(process.world_rank);
    --missing.try_emplace(process.world_key, process.world_size).first->second;
  }
  for (auto& [world, models] : worlds) {
    if (missing[world] > 0 || models.size() < 2 || !is_first_to_say(world, kSaidGpus)) continue;
    std::string list;
    for (auto& [model, ranks] : models)
      list += fmt::format("{}{} [{}]", list.empty() ? "" : ", ", model, rank_set(ranks));
    log().say(
        LogLevel::Warning,
        fmt::format("GPUs differ: {}. The one with the least memory limits the batch of all, the slowest "
                    "sets the pace",
                    list));
  }
}

void Watch::consider(const Verdict& verdict, bool last) {
  const std::uint64_t world = evidence_.processes[verdict.parties.front().process].world_key;
  if (!verdict.is_fault()) {
    if (!warned_.insert(once_of(verdict)).second) return;
    const std::uint32_t request = settings_.stacks != Stacks::Off ? ask_for_stacks(patience_for(verdict)) : 0;
    const Report report = make_report(verdict, evidence_, observer_, request);
    if (log().level() <= LogLevel::Warning) {
      log().print(log().format() == LogFormat::Json ? report.json + "\n" : report.text);
    }
    return;
  }
  if (!reported_worlds_.insert(world).second) return;
  if (!fault_) {
    const auto blamed = std::find_if(verdict.parties.begin(), verdict.parties.end(),
                                     [](const Party& party) { return party.blamed; });
    const Party& subject = blamed != verdict.parties.end() ? *blamed : verdict.parties.front();
    fault_ = Fault{verdict, evidence_.processes[subject.process]};
  }
  if (!claim(world)) return;  // a leader before us has said it
  const bool ask = settings_.stacks != Stacks::Off && !last && stacks_say_more();
  const std::uint32_t request = ask ? ask_for_stacks(patience_for(verdict)) : 0;
  const Report report = make_report(verdict, evidence_, observer_, request);
  log().print(log().format() == LogFormat::Json ? report.json + "\n" : report.text);
  publish(report.json, request);
  // In sync mode the ranks themselves fail the call, where the program can catch it.
  const bool ranks_raise = settings_.check == Check::Sync && settings_.on_error == OnError::Raise &&
                           verdict.kind == VerdictKind::Mismatch;
  const bool ends = settings_.on_error != OnError::Report && !ranks_raise;
  const int status = ends ? exit_status(verdict.kind) : 0;
  if (nodes_ != nullptr) nodes_->end_world(world, static_cast<std::uint32_t>(status), report.json);
  if (settings_.on_error == OnError::Report) return;
  expect_ends(world);
  if (ends) end_world(world, status);
}

/// Of this node's processes and of the others'.
std::uint32_t Watch::ask_for_stacks(std::int64_t for_python) {
  return request_stacks(board_, observer_, evidence_, for_python, [&](std::uint32_t number) {
    if (answer_) answer_(number);
    if (nodes_ == nullptr) return;
    stacks_asked_ = number;
    nodes_->refresh(number, for_python);
  });
}

/// One report a fault, also when the leader changes: whoever makes the file reports. It holds the reporter's
/// pid: one that died before its report was out is succeeded.
bool Watch::claim(std::uint64_t world) {
  const std::string name = fmt::format("verdict.{:016x}", world);
  const FileDescriptor before(openat(run_.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  char text[16] = {};
  if (before && read(before.get(), text, sizeof text - 1) > 0) {
    const bool reported = faccessat(run_.fd(), "verdict.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if (!reported && !process_stat(std::atoi(text))) unlinkat(run_.fd(), name.c_str(), 0);
  }
  const FileDescriptor file(
      openat(run_.fd(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return errno != EEXIST;
  const std::string own = std::to_string(getpid());
  [[maybe_unused]] const ssize_t written = write(file.get(), own.data(), own.size());
  return true;
}

void Watch::publish(const std::string& json, std::uint32_t stack_request) {
  const Moment::Patience patience{policy_.timeout_ns, policy_.warn_after_ns, policy_.oom_grace_ns,
                                  policy_.not_before_ns, policy_.ending};
  publish_file(kMomentFile, Moment::of(evidence_, patience, stack_request).text());
  publish_file("verdict.json", json + "\n");
}

/// The first one of a run stands.
void Watch::publish_file(const char* name, const std::string& text) {
  const std::string unfinished = std::string(name) + ".new";
  const FileDescriptor file(
      openat(run_.fd(), unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return;
  const bool whole = write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  // link, not rename, which would put it in another one's place.
  if (whole) linkat(run_.fd(), unfinished.c_str(), run_.fd(), name, 0);
  unlinkat(run_.fd(), unfinished.c_str(), 0);
}

/// Those inside calls are known by their call sites, unless they run Python; asking takes time that a dying
/// job may not have.
bool Watch::stacks_say_more() const {
  return std::any_of(
      evidence_.processes.begin(), evidence_.processes.end(), [](const ProcessEvidence& process) {
        return !process.has_left() && process.world_rank >= 0 && (process.blocked.empty() || process.python);
      });
}

void Watch::expect_ends(std::uint64_t world) {
  const auto count =
      std::count_if(evidence_.processes.begin(), evidence_.processes.end(), [&](const auto& process) {
        return process.world_key == world && process.alive && !process.copy && process.signal == 0;
      });
  board_.end_ready.store(0);
  board_.end_moment.store(0);
  board_.end_count.store(static_cast<std::uint32_t>(count));
}

void Watch::end_world(std::uint64_t world, int status) {
  board_.end_status.store(static_cast<std::uint32_t>(status));
  board_.end_world.store(world);
  board_.command.fetch_add(1);
  futex_wake_all(board_.command);
}

void follow_log_level(const Board& board) {
  if (const std::uint32_t asked = board.log_level.load(std::memory_order_relaxed); asked != 0)
    log().set_level(static_cast<LogLevel>(asked - 1));
}

bool wait_for_look(const RunDirectory& run, Board& board, std::int64_t timeout_ns) {
  const std::uint32_t wanted = board.looks_started.load() + 1;
  run.ring();
  const std::int64_t deadline = monotonic_ns() + timeout_ns;
  for (;;) {
    const std::uint32_t completed = board.looks_completed.load();
    if (static_cast<std::int32_t>(completed - wanted) >= 0) return true;
    const std::int64_t left = deadline - monotonic_ns();
    if (left <= 0) return false;
    futex_wait(board.looks_completed, completed, left);
  }
}

}  // namespace accel
