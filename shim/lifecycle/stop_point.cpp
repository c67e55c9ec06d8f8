#include "lifecycle/stop_point.h"

#include <linux/membarrier.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace accel {
namespace {

/// What this process looks out for; written by the agent's thread, which then makes all others attentive.
struct Lookout {
  std::atomic<StopRequest*> request{nullptr};  ///< null: nothing
  std::uint64_t communicator = 0;
  std::uint64_t base = 0;
};
Lookout lookout;

/// Whoever was on the way past the place where `attentive` is read has been recorded when this returns.
void wait_for_passers() {
  constexpr useconds_t kLongEnough = 10'000;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0) usleep(kLongEnough);
}

bool is_member(Recorder& recorder, std::uint64_t communicator) {
  const std::uint32_t used = __atomic_load_n(&recorder.header().communicators, __ATOMIC_ACQUIRE);
  for (std::uint32_t slot = 0; slot < used; ++slot) {
    const CommunicatorRecord& one = recorder.file().communicators[slot];
    const bool freed = (__atomic_load_n(&one.flags, __ATOMIC_RELAXED) & kCommunicatorFreed) != 0;
    if (!freed && __atomic_load_n(&one.key, __ATOMIC_RELAXED) == communicator) return true;
  }
  return false;
}

/// Whether processes are expected to go by it.
bool ends_processes(int signal) {
  if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT || signal == SIGKILL)
    return true;
  struct sigaction present;
  if (sigaction(signal, nullptr, &present) != 0) return true;
  const bool by_default = (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == SIG_DFL;
  const bool harmless = signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU ||
                        signal == SIGCONT || signal == SIGCHLD || signal == SIGURG || signal == SIGWINCH;
  return by_default && !harmless;
}

}  // namespace

void follow_stop_request(Recorder& recorder, Board& board, bool always_attentive) {
  static std::uint32_t followed = 0;
  StopRequest& request = board.stop;
  const std::uint32_t number = request.number.load();
  if (number == followed) return;
  followed = number;
  lookout.request.store(nullptr);
  attentive.store(always_attentive);
  if (!is_member(recorder, request.communicator.load())) return;
  lookout.communicator = request.communicator.load();
  lookout.base = request.base.load();
  lookout.request.store(&request);
  attentive.store(true);
  wait_for_passers();
  request.armed.fetch_add(1);
}

void stop_before(std::uint64_t communicator, std::uint64_t sequence) {
  StopRequest* request = lookout.request.load();
  if (request == nullptr || communicator != lookout.communicator || sequence <= lookout.base) return;
  if (!request->stop.check(static_cast<std::uint32_t>(sequence - lookout.base))) return;
  if (!lookout.request.compare_exchange_strong(request, nullptr)) return;
  const int signal = request->signal.load();
  if (ends_processes(signal)) request->ends.store(1);
  request->stopped.fetch_add(1);
  sigset_t blocked;
  const bool somebody_waits_for_it =
      pthread_sigmask(SIG_SETMASK, nullptr, &blocked) == 0 && sigismember(&blocked, signal) == 1;
  if (somebody_waits_for_it) {
    kill(getpid(), signal);
  } else {
    raise(signal);  // its handler has run before the call is made
  }
}

}  // namespace accel
