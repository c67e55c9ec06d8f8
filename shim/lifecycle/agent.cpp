#include "lifecycle/agent.h"

#include <pthread.h>
#include <unistd.h>

#include <memory>

#include "act/ending.h"
#include "act/run_writers.h"
#include "act/verdict_file.h"
#include "act/watch.h"
#include "collect/leader.h"
#include "lifecycle/own_thread.h"
#include "lifecycle/process.h"
#include "lifecycle/python.h"
#include "lifecycle/stacks.h"
#include "lifecycle/stop_point.h"
#include "record/futex.h"
#include "report/log.h"

namespace accel {
namespace {

/// How soon somebody who does not lead notices that nobody does.
constexpr std::int64_t kFollowInterval = 200'000'000;
/// How long a program that has been told of a verdict may take to end by itself.
constexpr std::int64_t kGrace = 2'000'000'000;
/// How often there is something else to do.
constexpr std::int64_t kTaskInterval = 30'000'000;
/// How often the log is written, in microseconds.
constexpr useconds_t kLogInterval = 10'000;
/// What a killed job left behind is swept away after an hour.
constexpr std::int64_t kSweepAge = 3600;

std::atomic<void (*)()> task{nullptr};
std::atomic<bool (*)()> tell_program{nullptr};
std::atomic<bool> stopping{false};
std::atomic<bool> busy{false};  ///< in a turn, which may have a verdict to report

std::atomic<bool> logging{false};  ///< the log's thread is in a round

/// Of the process that leads: waits for nobody, so that a log that cannot be written holds up no verdict.
void* run_log(void*) {
  pthread_setname_np(pthread_self(), "accel log");
  try {
    Process& process = Process::self();
    RunWriters writers(process.run(), process.board(), process.settings());
    while (!stopping.load()) {
      logging.store(true);
      if (!stopping.load()) writers.turn();
      logging.store(false);
      usleep(kLogInterval);
    }
  } catch (...) {
    log().say(LogLevel::Warning, "the log of the ranks' calls has failed and ends here");
  }
  logging.store(false);
  return nullptr;
}

class Agent {
 public:
  void run() {
    while (!stopping.load()) {
      const std::uint32_t command = process_.board().command.load();
      busy.store(true);
      obey();
      if (auto* also = task.load()) also();
      if (leadership_.held() || leadership_.acquire(process_.run())) {
        lead();
      } else {
        busy.store(false);
        futex_wait(process_.board().command, command,
                   task.load() != nullptr ? kTaskInterval : kFollowInterval);
      }
    }
  }

 private:
  void obey() {
    if (const int status = process_.ordered_end(); status != 0 && !program_is_told()) {
      flush_stdio();
      if (const auto verdict = read_verdict(process_.run())) leave_elastic_error(*verdict);
      park_threads(*process_.recorder());
      const bool sweeps = leadership_.held() && process_.invitation_of_launcher();
      end_process(process_.board(), status, sweeps ? &process_.run() : nullptr);
    }
    process_.recorder()->header().latest = ClockPair::now();
    process_.recorder()->sample_memory();
    follow_log_level(process_.board());
    follow_stop_request(*process_.recorder(), process_.board(), process_.settings().check == Check::Sync);
    if (log().level() == LogLevel::Debug) process_.recorder()->measure_durations();
    answer_stack_request();
  }

  /// Whether the program still has time to end by itself.
  bool program_is_told() {
    if (process_.recorder()->header().phase == Phase::Exiting) return false;
    if (told_ns_ == 0) {
      auto* const tell = tell_program.load();
      told_ns_ =
          tell != nullptr && process_.settings().on_error == OnError::Raise && !main_thread_waits() && tell()
              ? monotonic_ns()
              : -1;
    }
    return told_ns_ > 0 && monotonic_ns() - told_ns_ < kGrace;
  }
  /// In a call that nothing brings to an end.
  bool main_thread_waits() const {
    for (const ThreadRecord& thread : process_.recorder()->file().threads) {
      if (static_cast<std::int32_t>(thread.tid) != getpid()) continue;
      return __atomic_load_n(&thread.current, __ATOMIC_ACQUIRE) != 0 ||
             __atomic_load_n(&thread.driver_wait, __ATOMIC_ACQUIRE) != 0;
    }
    return false;
  }

  void answer_stack_request() {
    const std::uint32_t request = process_.board().stack_request.load();
    if (request == answered_) return;
    answered_ = request;
    if (process_.settings().stacks == Stacks::Off) return;
    if (process_.recorder()->header().phase != Phase::Exiting) capture_python(*process_.recorder(), request);
    capture_stacks(*process_.recorder(), request);
  }

  void lead() {
    if (!watch_) {
      watch_ = std::make_unique<Watch>(process_.run(), process_.board(), process_.settings());
      watch_->on_stack_request([this](std::uint32_t) { answer_stack_request(); });
      if (const auto invitation = process_.invitation_of_launcher()) {
        watch_->follow(*invitation);
      } else {
        watch_->meet_others(start_own_thread);
      }
      sweep_dead_runs(process_.settings().run_base, kSweepAge);
    }
    watch_->look();
    if (!logs_ && RunWriters::wanted(process_.board(), process_.settings()))
      logs_ = start_own_thread(run_log);
    busy.store(false);
    watch_->sleep();
  }

  Process& process_ = Process::self();
  Leadership leadership_;
  std::unique_ptr<Watch> watch_;
  bool logs_ = false;
  std::int64_t told_ns_ = 0;  ///< 0: no verdict yet; -1: it is not told
  std::uint32_t answered_ = Process::self().board().stack_request.load();
};

void* run_agent(void*) {
  pthread_setname_np(pthread_self(), "accel");
  try {
    Agent().run();
  } catch (...) {
    // Out of memory, most likely. The job must not notice.
    log().say(LogLevel::Warning, "the agent thread has failed; this process is no longer observed");
  }
  return nullptr;
}

}  // namespace

void start_agent() {
  static std::atomic<bool> started{false};
  if (started.exchange(true)) return;
  if (!start_own_thread(run_agent))
    log().say(LogLevel::Warning, "no thread can be created; this process answers no requests");
}

void on_each_turn(void (*new_task)()) { task.store(new_task); }

void on_verdict(bool (*tell)()) { tell_program.store(tell); }

void stop_agent() {
  stopping.store(true);
  // A verdict that is on its way out comes out.
  constexpr int kPatienceMs = 2000;
  for (int waited = 0; (busy.load() || logging.load()) && waited < 10 * kPatienceMs; ++waited) usleep(100);
}

}  // namespace accel
