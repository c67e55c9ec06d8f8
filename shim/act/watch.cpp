#include "act/watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "act/stack_request.h"
#include "judge/setup.h"
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
/// Who has waited for long already can wait for an interpreter, too.
std::int64_t patience_for(const Verdict& verdict) {
  const bool late = verdict.kind == VerdictKind::TimeOut || verdict.kind == VerdictKind::Late;
  return late ? kLatePatience : kPythonPatience;
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
}

int Watch::turn(bool last) {
  const std::uint32_t number = board_.looks_started.fetch_add(1) + 1;
  follow_log_level(board_);
  if (last) observer_.rescan();
  evidence_ = observer_.observe();
  if (board_.stop.ends.load() != 0) expect_end();
  if (evidence_.now_ns - last_look_ns_ > kBlindAfter) policy_.not_before_ns = evidence_.now_ns;
  last_look_ns_ = evidence_.now_ns;
  if (last) policy_.timeout_ns = policy_.warn_after_ns = 0;
  for (const std::string& complaint : observer_.take_complaints()) log().say(LogLevel::Warning, complaint);
  if (settings_.check != Check::Off) {
    std::set<std::uint64_t> unsettled;
    std::vector<Verdict> verdicts = judge(evidence_, policy_);
    if (std::any_of(verdicts.begin(), verdicts.end(),
                    [](const Verdict& verdict) { return verdict.is_fault(); })) {
      // A process that has come up since the last look at the directory belongs into the report too.
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
      } else {
        consider(verdict, last);
      }
    }
  }
  if (settings_.check != Check::Off) warn_of_setup();
  warn_of_gpus();
  board_.looks_completed.store(number);
  futex_wake_all(board_.looks_completed);
  return fault_ ? exit_status(fault_->verdict.kind) : 0;
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
    // Of different datatypes once a communicator: a program that does so does so in every step.
    const bool datatypes = verdict.kind == VerdictKind::Datatypes;
    const std::uint64_t once = datatypes ? (verdict.fields.empty() ? 0 : UINT64_MAX) : verdict.sequence;
    if (!warned_.emplace(verdict.communicator, once).second) return;
    const std::uint32_t request =
        settings_.stacks != Stacks::Off
            ? request_stacks(board_, observer_, evidence_, patience_for(verdict), answer_)
            : 0;
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
  const std::uint32_t request =
      ask ? request_stacks(board_, observer_, evidence_, patience_for(verdict), answer_) : 0;
  const Report report = make_report(verdict, evidence_, observer_, request);
  log().print(log().format() == LogFormat::Json ? report.json + "\n" : report.text);
  publish(report.json, request);
  // In sync mode the ranks themselves fail the call, where the program can catch it.
  const bool ranks_raise = settings_.check == Check::Sync && settings_.on_error == OnError::Raise &&
                           verdict.kind == VerdictKind::Mismatch;
  if (settings_.on_error == OnError::Report) return;
  expect_ends(world);
  if (!ranks_raise) end_world(world, exit_status(verdict.kind));
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
