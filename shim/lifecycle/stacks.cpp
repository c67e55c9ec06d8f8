// Runs in a signal handler (capture only): atomics, futex and the unwinder, nothing else.
#include "lifecycle/stacks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "lifecycle/own_memory.h"
#include "lifecycle/unwind.h"
#include "record/file_descriptor.h"
#include "record/futex.h"

namespace accel {
namespace {

constexpr std::int64_t kPatience = 20'000'000;           // for a handler to begin
constexpr std::int64_t kFinishPatience = 1'000'000'000;  // for one that has begun, on an overloaded machine

int stack_signal = 0;
std::atomic<StackRecord*> target{nullptr};
std::atomic<std::uint32_t> target_tid{0};
std::atomic<std::uint32_t> captured{0};
std::atomic<bool> parking{false};
std::atomic<std::uint32_t> never{0};

std::uint64_t interrupted_at(const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<std::uint64_t>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return machine.pc;
#else
  (void)machine;
  return 0;
#endif
}

void capture(int, siginfo_t* info, void* context) {
  const int saved = errno;
  while (parking.load() && info->si_code == SI_TKILL) futex_wait(never, 0, 1'000'000'000);
  // One that comes too late finds nothing to do, or somebody else's.
  const bool asked =
      info->si_code == SI_TKILL && target_tid.load() == static_cast<std::uint32_t>(syscall(SYS_gettid));
  StackRecord* stack = asked ? target.exchange(nullptr) : nullptr;
  if (stack != nullptr) {
    std::uint64_t pcs[kStackDepth + 8];
    const int depth = unwind(pcs, kStackDepth + 8);
    std::uint64_t* end = pcs + depth;
    std::uint64_t* begin = std::find(pcs, end, interrupted_at(context));
    if (begin == end) begin = pcs;
    stack->depth = static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(end - begin, kStackDepth));
    std::memcpy(stack->pcs, begin, stack->depth * sizeof *begin);
    captured.fetch_add(1);
    futex_wake_all(captured);
  }
  errno = saved;
}

/// What the kernel says of a thread: /proc/self/task/TID/{syscall,status}.
struct KernelState {
  char state = 0;                   ///< 'R', 'S', 'D', ...
  bool reachable = false;           ///< it does not block the signal
  bool running = false;             ///< in user space, as far as this moment goes
  long number = -1;                 ///< of the system call it is in; -1: none
  std::uint64_t sp = 0, pc = 0;     ///< with which it returns
  unsigned long long switches = 0;  ///< how often it has gone to sleep

  bool same_sleep(const KernelState& other) const {
    return !running && !other.running && number == other.number && sp == other.sp && pc == other.pc &&
           switches == other.switches;
  }
};

bool read_task(std::uint32_t tid, const char* name, char* text, std::size_t size) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%u/%s", tid, name);
  const FileDescriptor file(open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t got = file ? read(file.get(), text, size - 1) : -1;
  text[got > 0 ? got : 0] = '\0';
  return got > 0;
}

KernelState kernel_state(std::uint32_t tid) {
  KernelState state;
  char text[4096];
  if (read_task(tid, "status", text, sizeof text)) {
    const auto after = [&](const char* name) {
      const char* found = std::strstr(text, name);
      return found != nullptr ? found + std::strlen(name) : "";
    };
    state.state = *after("\nState:\t");
    const auto blocked = std::strtoull(after("\nSigBlk:\t"), nullptr, 16);
    state.reachable = (blocked >> (stack_signal - 1) & 1) == 0;
    state.switches = std::strtoull(after("\nvoluntary_ctxt_switches:\t"), nullptr, 10);
  }
  if (!read_task(tid, "syscall", text, sizeof text)) return state;
  state.running = std::strncmp(text, "running", 7) == 0;
  if (state.running) return state;
  state.number = std::strtol(text, nullptr, 10);
  if (const char* last = std::strrchr(text, ' ')) {
    state.pc = std::strtoull(last, nullptr, 16);
    while (last > text && last[-1] != ' ') --last;
    state.sp = std::strtoull(last, nullptr, 16);
  }
  return state;
}

/// Whether a signal leaves the thread's system call as it was: those not listed return EINTR after any
/// handler, SA_RESTART or not (signal(7)): poll, select, epoll_wait, nanosleep, pause and their like.
bool restarts(long number) {
  static constexpr long kRestarting[] = {SYS_futex, SYS_read,   SYS_write, SYS_readv, SYS_writev,
                                         SYS_wait4, SYS_waitid, SYS_flock, SYS_openat};
  return std::find(std::begin(kRestarting), std::end(kRestarting), number) != std::end(kRestarting);
}

/// The thread sleeps: its stack lies still. What is copied counts if it still sleeps the same sleep then.
void copy_stack(std::uint32_t tid, std::uint32_t request, const KernelState& asleep, StackCopy& copy) {
  __atomic_store_n(&copy.tid, 0, __ATOMIC_RELEASE);
  // It ends where the stack does.
  const ssize_t got = read_own_memory(asleep.sp, copy.memory, sizeof copy.memory);
  if (got <= 0 || !kernel_state(tid).same_sleep(asleep)) return;
  copy.pc = asleep.pc;
  copy.sp = asleep.sp;
  copy.bytes = static_cast<std::uint64_t>(got);
  copy.request = request;
  __atomic_store_n(&copy.tid, tid, __ATOMIC_RELEASE);
}

/// By the signal where the thread does not notice it; else by a copy of its stack, if there is room for one.
/// Whether it took the copy.
bool capture_thread(std::uint32_t tid, std::uint32_t request, StackRecord& stack, StackCopy* copy) {
  __atomic_store_n(&stack.tid, 0, __ATOMIC_RELEASE);
  stack.depth = 0;
  const KernelState state = kernel_state(tid);
  stack.state = static_cast<unsigned char>(state.state);
  const bool asleep = state.state == 'D' || state.state == 'T';  // no signal wakes it
  if (state.reachable && !asleep && (state.running || restarts(state.number))) {
    const std::uint32_t before = captured.load();
    target_tid.store(tid);
    target.store(&stack);
    if (syscall(SYS_tgkill, getpid(), tid, stack_signal) == 0) futex_wait(captured, before, kPatience);
    const bool begun = target.exchange(nullptr) == nullptr;
    if (begun) futex_wait(captured, before, kFinishPatience);
    if (captured.load() == before) stack.depth = 0;
  } else if (state.pc != 0) {
    stack.pcs[0] = state.pc;
    stack.depth = 1;
    if (copy != nullptr) copy_stack(tid, request, state, *copy);
  }
  const bool copied = stack.depth == 1 && copy != nullptr && copy->tid == tid && copy->request == request;
  stack.request = request;
  __atomic_store_n(&stack.tid, tid, __ATOMIC_RELEASE);
  return copied;
}

template <class Visit>
void for_threads_of_interest(Recorder& recorder, Visit&& visit) {
  if (stack_signal == 0) return;
  const auto main_thread = static_cast<std::uint32_t>(getpid());
  visit(main_thread);
  for (const ThreadRecord& thread : recorder.file().threads) {
    const std::uint32_t tid = __atomic_load_n(&thread.tid, __ATOMIC_ACQUIRE);
    const bool blocked =
        tid != 0 && tid != main_thread && __atomic_load_n(&thread.current, __ATOMIC_ACQUIRE) != 0;
    if (blocked) visit(tid);
  }
}

}  // namespace

void install_stack_signal() {
  if (stack_signal != 0) return;
  for (int signal = SIGRTMAX - 2; signal > SIGRTMIN; --signal) {
    struct sigaction present;
    if (sigaction(signal, nullptr, &present) != 0 || present.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_sigaction = capture;
    ours.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigfillset(&ours.sa_mask);
    if (sigaction(signal, &ours, nullptr) == 0) {
      stack_signal = signal;
      return;
    }
  }
}

void capture_stacks(Recorder& recorder, std::uint32_t request) {
  recorder.refresh_maps();
  std::size_t slot = 0;
  std::size_t copies = 0;
  RecorderFile& file = recorder.file();
  for_threads_of_interest(recorder, [&](std::uint32_t tid) {
    if (slot == kMaxStacks) return;
    StackCopy* const copy = copies < kMaxStackCopies ? &file.stack_copies[copies] : nullptr;
    if (capture_thread(tid, request, file.stacks[slot++], copy)) ++copies;
  });
}

void park_threads(Recorder& recorder) {
  parking.store(true);
  for_threads_of_interest(recorder,
                          [](std::uint32_t tid) { syscall(SYS_tgkill, getpid(), tid, stack_signal); });
}

}  // namespace accel
