#include "launcher/control.h"

#include <accel/accel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>

#include "collect/observer.h"
#include "judge/members.h"
#include "launcher/command_line.h"
#include "launcher/failure.h"
#include "launcher/runs.h"
#include "launcher/stacks.h"
#include "record/futex.h"
#include "report/shape.h"
#include "settings/settings.h"

namespace accel {
namespace {

constexpr useconds_t kInterval = 10'000;
/// How long ranks may take to say that they look out for a stop; each of them looks at the board a few times
/// a second at least.
constexpr std::int64_t kPatience = 5'000'000'000;

/// "TERM", "SIGTERM" or "15"; 0: none.
int signal_named(std::string name) {
  if (name.starts_with("SIG")) name.erase(0, 3);
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* known = sigabbrev_np(signal);
    if ((known != nullptr && name == known) || name == std::to_string(signal)) return signal;
  }
  return 0;
}

/// What is asked of a run, by one at a time.
class Control {
 public:
  explicit Control(RunDirectory run) : run_(std::move(run)), board_(run_.map_board()) {
    if (board_ == nullptr) throw Failure(ACCEL_EXIT_INTERNAL, "cannot map the board of " + run_.path());
    constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    lock_ = FileDescriptor(openat(run_.fd(), "control.lock", kFlags, 0600));
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
      throw Failure(ACCEL_EXIT_USAGE, "another accelrun ctl is at work on this run");
    look();
    if (std::none_of(evidence_.processes.begin(), evidence_.processes.end(),
                     [](const ProcessEvidence& process) { return process.alive; }))
      throw Failure(ACCEL_EXIT_USAGE, fmt::format("no process of {} lives", run_.path()));
  }

  int set_log_level(LogLevel level) {
    board_->log_level.store(1 + static_cast<std::uint32_t>(level));
    call();
    return 0;
  }

  /// Exit status: 0 when all ranks have stopped, or are gone.
  int stop_all(int signal, std::int64_t patience_ns) {
    StopRequest& request = board_->stop;
    if (request.communicator.load() != 0 && request.stopped.load() < request.armed.load() &&
        living(request.communicator.load()) != 0) {
      throw Failure(ACCEL_EXIT_USAGE,
                    fmt::format("an earlier trigger is under way: {} of {} ranks have stopped",
                                request.stopped.load(), request.armed.load()));
    }
    const Members members = meeting_place();
    ask(request, members, signal);
    const std::int64_t deadline = monotonic_ns() + kPatience;
    while (request.armed.load() < members.seen.size()) {
      if (monotonic_ns() > deadline) withdraw(request, members.seen.size());
      usleep(kInterval);
    }
    look();
    // Whoever looks out for it from now on has not come further than this.
    std::uint64_t furthest = request.base.load();
    for (const Member& member : members_of(evidence_)[members.key].seen)
      furthest = std::max(furthest, member.communicator.record.sequence);
    request.stop.ask(static_cast<std::uint32_t>(furthest - request.base.load()));
    std::cout << fmt::format("all {} ranks stop before call #{} on communicator {}, with SIG{}\n",
                             members.seen.size(), request.base.load() + request.stop.latest(),
                             communicator_name(members.key), sigabbrev_np(signal))
              << std::flush;
    return wait_for_all(request, patience_ns);
  }

 private:
  void look() {
    observer_.rescan();
    evidence_ = observer_.observe();
  }
  void call() {
    board_->command.fetch_add(1);
    futex_wake_all(board_->command);
    run_.ring();
  }
  std::size_t living(std::uint64_t communicator) const {
    const auto all = members_of(evidence_);
    const auto found = all.find(communicator);
    if (found == all.end()) return 0;
    return static_cast<std::size_t>(
        std::count_if(found->second.seen.begin(), found->second.seen.end(),
                      [&](const Member& member) { return !evidence_.processes[member.process].has_left(); }));
  }

  /// The communicator of all ranks on which most has been called.
  Members meeting_place() const {
    Members best;
    std::uint64_t most = 0;
    std::string why = "no communicator of all ranks is known yet";
    for (auto& [key, members] : members_of(evidence_)) {
      if (members.seen.empty() || members.inter || members.aborted) continue;
      if (members.size != evidence_.processes[members.seen.front().process].world_size || members.size < 2)
        continue;
      if (!members.complete()) {
        why = fmt::format("only {} of {} ranks are on this host", members.seen.size(), members.size);
        continue;
      }
      if (living(key) != members.seen.size()) {
        why = fmt::format("only {} of {} ranks are still there", living(key), members.seen.size());
        continue;
      }
      std::uint64_t calls = 1;
      for (const Member& member : members.seen)
        calls = std::max(calls, member.communicator.record.sequence + 1);
      if (calls <= most) continue;
      most = calls;
      best = members;
    }
    if (best.key == 0) throw Failure(ACCEL_EXIT_USAGE, why + ": they cannot be stopped together");
    return best;
  }

  void ask(StopRequest& request, const Members& members, int signal) {
    std::uint64_t base = UINT64_MAX;
    for (const Member& member : members.seen) base = std::min(base, member.communicator.record.sequence);
    request.signal.store(signal);
    request.communicator.store(members.key);
    request.base.store(base);
    request.armed.store(0);
    request.stopped.store(0);
    request.stop.clear();
    request.number.fetch_add(1);
    call();
  }

  [[noreturn]] void withdraw(StopRequest& request, std::size_t members) {
    const std::uint32_t armed = request.armed.load();
    request.communicator.store(0);
    request.number.fetch_add(1);
    call();
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("{} of {} ranks do not answer: all go on; accelrun stacks shows where they are",
                              members - armed, members));
  }

  int wait_for_all(const StopRequest& request, std::int64_t patience_ns) {
    const std::int64_t deadline = monotonic_ns() + patience_ns;
    for (;;) {
      look();
      const std::uint32_t stopped = request.stopped.load();
      const bool all = stopped == request.armed.load();
      const bool over = living(request.communicator.load()) == 0;
      const bool late = monotonic_ns() > deadline;
      if (!all && !over && !late) {
        usleep(kInterval);
        continue;
      }
      std::cout << fmt::format("{} of {} ranks have stopped there", stopped, request.armed.load());
      if (!all) std::cout << (over ? "; the job has ended" : "; the others will when they come to it");
      std::cout << "\n";
      return all || over ? 0 : 1;
    }
  }

  RunDirectory run_;
  Board* board_;
  FileDescriptor lock_;
  Observer observer_{run_};
  Evidence evidence_;
};

RunDirectory run_named(const std::string& name) {
  std::vector<std::string> complaints;
  auto run = RunDirectory::at(find_run(name, Settings::from_environment(complaints)));
  if (!run) throw Failure(ACCEL_EXIT_USAGE, run.error);
  return std::move(*run);
}

}  // namespace

int control_main(int argc, char** argv) {
  CLI::App app("Asks something of a job that runs; nothing of the program has to know of it.",
               "accelrun ctl");
  app.require_subcommand(1);
  std::string name;
  app.add_option("RUN", name,
                 "a run's directory or id, or the process id of a rank or of a launcher above it")
      ->required();

  std::string signal = "TERM";
  double patience = 60;
  CLI::App* trigger = app.add_subcommand(
      "trigger", "Stops all ranks before the same collective: each of them sends itself a signal there");
  trigger->add_option("--signal", signal, "which: TERM, or what the program saves a checkpoint on")
      ->type_name("NAME")
      ->capture_default_str();
  trigger->add_option("--wait", patience, "how long to wait until all have come to it")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);

  std::string level;
  CLI::App* log_level = app.add_subcommand(
      "log-level", "Logs more or less from now on, as ACCEL_LOG_LEVEL does from the start");
  log_level->add_option("LEVEL", level, "DEBUG, INFO, WARNING, ERROR or CRITICAL")->required();

  CLI::App* stacks = app.add_subcommand("stacks", "Shows where every rank stands: accelrun stacks RUN");
  stacks->prefix_command();

  if (int status = 0; !parse(app, argc, argv, status)) return status;
  if (*stacks) {
    std::vector<std::string> words = stacks->remaining();
    words.insert(words.begin(), {"stacks", name});
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return stacks_main(static_cast<int>(words.size()), pointers.data());
  }
  if (*log_level) {
    if (!accepts("ACCEL_LOG_LEVEL", level)) {
      throw Failure(ACCEL_EXIT_USAGE,
                    fmt::format("{} is no level: expected DEBUG, INFO, WARNING, ERROR or CRITICAL", level));
    }
    setenv("ACCEL_LOG_LEVEL", level.c_str(), 1);
    std::vector<std::string> complaints;
    return Control(run_named(name)).set_log_level(Settings::from_environment(complaints).log_level);
  }
  const int number = signal_named(signal);
  if (number == 0) {
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("--signal {} is not valid: expected a name such as TERM or USR1", signal));
  }
  return Control(run_named(name)).stop_all(number, static_cast<std::int64_t>(patience * 1e9));
}

}  // namespace accel
