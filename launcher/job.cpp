#include "launcher/job.h"

#include <accel/accel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include "act/run_writers.h"
#include "act/watch.h"
#include "collect/leader.h"
#include "launcher/descendants.h"
#include "launcher/failure.h"
#include "launcher/manifest.h"
#include "report/log.h"
#include "report/report.h"

namespace accel {
namespace {

/// After a verdict, or when asked to end: how long the launcher has to end the job before it is told to, and
/// then before it is killed.
constexpr std::int64_t kGrace = 5'000'000'000;

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};

bool ends_a_job(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kForwarded) sigaddset(&set, signal);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, &before_);
  fd_ = FileDescriptor(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

void Signals::restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }

std::optional<signalfd_siginfo> Signals::next() const {
  signalfd_siginfo info;
  if (read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return info;
}

int Signals::ending() const {
  int first = 0;
  while (const auto signal = next()) {
    if (first == 0 && ends_a_job(static_cast<int>(signal->ssi_signo)))
      first = static_cast<int>(signal->ssi_signo);
  }
  return first;
}

namespace {

class Job {
 public:
  Job(const JobRequest& request, RunDirectory run, const Signals& signals)
      : request_(request), run_(std::move(run)), board_(run_.map_board()), signals_(signals) {
    if (board_ == nullptr || !leadership_.acquire(run_)) {
      throw Failure(ACCEL_EXIT_INTERNAL, fmt::format("cannot prepare {}: is the disk full?", run_.path()));
    }
    watch_.emplace(run_, *board_, request_.settings);
    log().configure(request_.settings, run_.run_id(), -1);
    if (request_.several_hosts) {
      listen();
    } else {
      // An accelrun on each host, in front of torchrun: the ranks' NCCL tells where they meet.
      watch_->meet_others([](void* (*run)(void*), void* argument) {
        std::thread(run, argument).detach();
        return true;
      });
    }
  }
  ~Job() {
    over_.store(true);
    if (logger_.joinable()) logger_.join();
    nodes_over_.store(true);
    if (listener_.joinable()) listener_.join();
    if (!request_.keep) run_.remove();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  JobOutcome run() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    start();
    while (!status_) {
      const int verdict = watch_->look();
      if (!logger_.joinable() && wants_log()) start_log();
      if (verdict != 0 && request_.settings.on_error != OnError::Report) hurry();
      watch_->sleep(signals_.fd());
      while (const auto signal = signals_.next()) handle(*signal);
    }
    constexpr std::int64_t kFarewell = 2'000'000'000;
    if (nodes_) nodes_->finish(kFarewell);
    const int verdict = watch_->look_back();
    finish_log();
    end_lost_ranks();
    ending_ = ending_ || board_->stop.ends.load() != 0;
    if (verdict == 0 && *status_ != 0 && !ending_) {
      if (const std::string text = make_obituary(watch_->evidence()); !text.empty()) log().print(text);
    }
    // On a screen the root cause stands last, below what dying ranks and their launcher have said meanwhile.
    if (watch_->fault() && request_.settings.log_file.empty() && isatty(STDERR_FILENO) != 0)
      log().print(
          fmt::format("[accel] {} (the report stands above)\n", error_line(watch_->fault()->verdict)));
    write_manifest(verdict != 0 ? verdict : *status_);
    if (request_.keep) log().print(fmt::format("[accel] records kept in {}\n", run_.path()));
    return {verdict != 0 ? verdict : *status_, *status_, watch_->fault(), ending_, pids()};
  }

 private:
  /// For the leaders of other hosts.
  void listen() {
    const Token token = Token::random();
    nodes_.emplace(run_, *board_, token, run_.run_id(), listeners(request_.settings.interfaces));
    const std::string addresses = nodes_->addresses();
    if (addresses.empty()) {
      const std::string& asked = request_.settings.interfaces;
      log().say(LogLevel::Warning,
                fmt::format("no network interface{} can be listened on: each host's ranks are judged alone",
                            asked.empty() ? "" : " called " + asked));
      nodes_.reset();
      return;
    }
    variables_["ACCEL_COORDINATOR"] = addresses;
    token_ = token.text();
    listener_ = std::thread([this] { nodes_->run(nodes_over_); });
    watch_->lead(*nodes_);
  }

  std::vector<std::int32_t> pids() const {
    std::vector<std::int32_t> all;
    for (const ProcessEvidence& process : watch_->evidence().processes) {
      if (!process.copy) all.push_back(process.pid);
    }
    return all;
  }

  /// What the run was, beside its records.
  void write_manifest(int status) const {
    if (!request_.keep && request_.manifest.empty()) return;
    const std::string text =
        make_manifest(request_.command, request_.sizes, status, watch_->evidence()).dump(2) + "\n";
    for (const std::string& path :
         {request_.keep ? run_.path() + "/manifest.json" : std::string(), request_.manifest}) {
      if (path.empty()) continue;
      std::ofstream stream(path);
      stream << text;
      if (!stream.flush()) log().say(LogLevel::Warning, path + " cannot be written: no manifest of this run");
    }
  }

  void start() {
    const char* const kToken = "ACCEL_TOKEN";
    const std::vector<std::string> words =
        command_for(request_.engine, request_.command, variables_,
                    token_.empty() ? std::vector<std::string>{} : std::vector<std::string>{kToken});
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    std::map<std::string, std::string> handed_on = variables_;
    if (!token_.empty()) handed_on[kToken] = token_;
    const std::string deepspeed = run_.path() + "/deepspeed_env";
    if (request_.engine == Engine::DeepSpeed) std::ofstream(deepspeed) << deepspeed_environment(handed_on);
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0) throw Failure(ACCEL_EXIT_CANNOT_START, "no pipe can be made");
    child_ = fork();
    if (child_ < 0)
      throw Failure(ACCEL_EXIT_CANNOT_START, fmt::format("cannot fork: {}", std::strerror(errno)));
    if (child_ == 0) {
      signals_.restore();
      if (inherits(request_.engine)) {
        for (const auto& [name, value] : handed_on) setenv(name.c_str(), value.c_str(), 1);
        if (request_.engine == Engine::DeepSpeed) setenv("DS_ENV_FILE", deepspeed.c_str(), 1);
      } else if (!token_.empty()) {
        setenv(kToken, token_.c_str(), 1);
      }
      execv(arguments[0], arguments.data());
      const int error = errno;
      [[maybe_unused]] const ssize_t told = write(failure[1], &error, sizeof error);
      _exit(ACCEL_EXIT_CANNOT_START);
    }
    close(failure[1]);
    int error = 0;
    const bool failed = read(failure[0], &error, sizeof error) == sizeof error;
    close(failure[0]);
    if (!failed) return;
    waitpid(child_, nullptr, 0);
    throw Failure(error == EACCES || error == ENOEXEC ? ACCEL_EXIT_NOT_EXECUTABLE : ACCEL_EXIT_CANNOT_START,
                  fmt::format("cannot run {}: {}", words[0], std::strerror(error)));
  }

  void handle(const signalfd_siginfo& info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) return collect();
    if (ends_a_job(signal)) {
      watch_->expect_end();
      if (ending_ && signal == SIGINT) return kill_descendants();
      ending_ = true;
    }
    // From the terminal the whole process group has got it.
    if (info.ssi_code != SI_KERNEL) kill(child_, signal);
  }

  void collect() {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == child_) status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
  }

  /// In a thread of its own: a terminal that is stopped holds up no verdict.
  void write_log() {
    RunWriters writers(run_, *board_, request_.settings);
    while (!over_.load()) {
      writers.turn();
      usleep(10'000);
    }
    constexpr std::int64_t kPatience = 600'000'000'000;
    writers.finish(kPatience);
  }
  void finish_log() {
    if (!logger_.joinable() && wants_log()) start_log();
    over_.store(true);
    if (logger_.joinable()) logger_.join();
  }
  bool wants_log() const { return RunWriters::wanted(*board_, request_.settings); }
  void start_log() {
    logger_ = std::thread([this] { write_log(); });
  }

  /// The ranks have been told to end; a launcher that does not follow is ended too.
  void hurry() {
    const std::int64_t now = monotonic_ns();
    if (deadline_ == 0) deadline_ = now + kGrace;
    if (now < deadline_) return;
    if (told_) return kill_descendants();
    kill(child_, SIGTERM);
    told_ = true;
    deadline_ = now + kGrace;
  }

  /// Ranks whose launcher is gone.
  void end_lost_ranks() {
    for (const pid_t pid : descendants()) {
      for (const ProcessEvidence& process : watch_->evidence().processes) {
        if (process.pid == pid && !process.copy) kill(pid, SIGKILL);
      }
    }
    collect();
  }

  const JobRequest& request_;
  std::map<std::string, std::string> variables_ = request_.variables;
  std::string token_;
  RunDirectory run_;
  Board* board_;
  Leadership leadership_;
  std::optional<Coordinator> nodes_;
  std::atomic<bool> nodes_over_{false};
  std::thread listener_;
  std::optional<Watch> watch_;
  std::thread logger_;
  std::atomic<bool> over_{false};
  const Signals& signals_;
  pid_t child_ = -1;
  std::optional<int> status_;
  bool ending_ = false;
  bool told_ = false;
  std::int64_t deadline_ = 0;
};

}  // namespace

JobOutcome run_job(const JobRequest& request, const Signals& signals) {
  auto run =
      RunDirectory::open(request.settings.run_base, request.settings.run_id, RunDirectory::Missing::Make);
  if (!run) throw Failure(ACCEL_EXIT_INTERNAL, run.error + "; --run-dir DIR chooses another place");
  return Job(request, std::move(*run), signals).run();
}

}  // namespace accel
