#include "act/ending.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "record/futex.h"

namespace accel {
namespace {

std::atomic<std::uint32_t> flushed{0};

void* flush(void*) {
  std::fflush(nullptr);
  flushed.store(1);
  futex_wake_all(flushed);
  return nullptr;
}

}  // namespace

void flush_stdio() {
  constexpr std::int64_t kPatience = 100'000'000;
  pthread_t thread;
  if (pthread_create(&thread, nullptr, flush, nullptr) == 0) futex_wait(flushed, 0, kPatience);
}

void end_process(Board& board, int status, const RunDirectory* swept) {
  constexpr std::int64_t kPatience = 250'000'000;
  const std::int64_t deadline = monotonic_ns() + kPatience;
  board.end_ready.fetch_add(1);
  while (board.end_ready.load() < board.end_count.load() && monotonic_ns() < deadline) sched_yield();
  if (swept != nullptr) swept->remove();  // all others have read what they want to know
  // One moment for all, and asleep until then: who wakes is scheduled before those that already die.
  constexpr std::int64_t kNotice = 4'000'000;
  std::int64_t moment = 0;
  if (board.end_moment.compare_exchange_strong(moment, monotonic_ns() + kNotice))
    moment = board.end_moment.load();
  const timespec until{moment / 1'000'000'000, moment % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  // Past our own wrapper of _exit.
  syscall(SYS_exit_group, status);
  __builtin_unreachable();
}

}  // namespace accel
