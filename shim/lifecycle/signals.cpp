// Runs in signal handlers: atomics and system calls only.
#include "lifecycle/signals.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "act/watch.h"
#include "lifecycle/process.h"
#include "lifecycle/stacks.h"
#include "record/base_name.h"
#include "record/futex.h"

namespace accel {
namespace {

constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction previous[NSIG];
bool handled_by_application[NSIG];

/// Handlers of libraries under MPI print a backtrace and die: not the application's own way with the signal.
bool belongs_to_mpi(const struct sigaction& action) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(action.sa_handler), &info) == 0 || info.dli_fname == nullptr)
    return false;
  const std::string_view name = base_name(info.dli_fname);
  return name.starts_with("libucs.so") || name.starts_with("libopen-pal.so") || name.starts_with("libmpi.so");
}

/// How long a terminated rank waits for the leader's last look; launchers give seconds before SIGKILL.
constexpr std::int64_t kLastWords = 700'000'000;

void die_by(int signal) {
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(signal, &plain, nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  syscall(SYS_tgkill, getpid(), static_cast<pid_t>(syscall(SYS_gettid)), signal);
}

void on_fatal(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  Recorder* recorder = Process::self().recorder();
  if (signal == SIGBUS && recorder != nullptr && recorder->owns(info->si_addr)) {
    // Somebody truncated our file: the job goes on unrecorded.
    recorder->detach();
    errno = saved;
    return;
  }
  if (recorder != nullptr && recorder->header().pid == getpid() && recorder->header().fatal_signal == 0) {
    recorder->header().fatal_signal = signal;
    // If there is no other reason than this crash, it takes its course: core dump, status.
    Process::self().wait_for_leader(kLastWords);
  }
  const struct sigaction& before = previous[signal];
  errno = saved;
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr)
    return before.sa_sigaction(signal, info, context);
  if (before.sa_handler == SIG_IGN) return;
  if (before.sa_handler != SIG_DFL) return before.sa_handler(signal);
  // The default. A fault repeats on return, with the same address in the core dump; others are sent again.
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(signal, &plain, nullptr);
  const bool repeats = signal != SIGABRT && info->si_code > 0;
  if (!repeats) die_by(signal);
}

void on_terminate(int signal, siginfo_t*, void*) {
  Process& process = Process::self();
  Recorder* recorder = process.recorder();
  if (recorder != nullptr && recorder->header().pid == getpid()) {
    recorder->header().terminated = 1;
    Board& board = process.board();
    board.command.fetch_add(1);  // wakes our agent: the leader may be gone
    futex_wake_all(board.command);
    process.wait_for_leader(kLastWords);
  }
  die_by(signal);
}

}  // namespace

void note_application_handlers() {
  for (const int signal : kFatal) {
    struct sigaction present;
    const bool known = sigaction(signal, nullptr, &present) == 0;
    const bool is_default = (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == SIG_DFL;
    handled_by_application[signal] = !known || !(is_default || belongs_to_mpi(present));
  }
}

void install_signal_handlers() {
  static std::atomic<bool> installed{false};
  if (installed.exchange(true)) return;
  Process::self();
  install_stack_signal();
  for (const int signal : kFatal) {
    if (handled_by_application[signal]) continue;
    struct sigaction ours {};
    sigaction(signal, nullptr, &previous[signal]);
    ours.sa_sigaction = on_fatal;
    ours.sa_flags = SA_SIGINFO | (previous[signal].sa_flags & (SA_ONSTACK | SA_NODEFER));
    ours.sa_mask = previous[signal].sa_mask;
    sigaction(signal, &ours, nullptr);
  }
  struct sigaction present;
  if (sigaction(SIGTERM, nullptr, &present) == 0 && (present.sa_flags & SA_SIGINFO) == 0 &&
      present.sa_handler == SIG_DFL) {
    struct sigaction ours {};
    ours.sa_sigaction = on_terminate;
    ours.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGTERM, &ours, nullptr);
  }
}

}  // namespace accel
