#include "interpose/sync_check.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "collect/observer.h"
#include "judge/members.h"
#include "lifecycle/process.h"
#include "report/log.h"
#include "report/report.h"

namespace accel {
namespace {

/// How long the other ranks' records may take to appear after MPI_Init.
constexpr std::int64_t kAppear = 5'000'000'000;

/// This process's view of the others. One thread looks at a time.
class SyncCheck {
 public:
  int verify(const CheckedCommunicator& communicator, std::uint64_t sequence, const Raise& raise) {
    if (communicator.size == 1 || elsewhere_) return 0;
    const std::lock_guard lock(mutex_);
    const std::int64_t begun = monotonic_ns();
    for (int turn = 0;; ++turn) {
      const Evidence evidence = observer_.observe();
      const auto all = members_of(evidence);
      const auto found = all.find(communicator.key);
      if (found == all.end() || found->second.opaque) return 0;
      const Members& members = found->second;
      bool somebody_left = false;
      bool everybody_here = members.complete();
      for (const Member& member : members.seen) {
        const bool here = member.communicator.record.sequence >= sequence;
        everybody_here = everybody_here && here;
        somebody_left = somebody_left || (!here && evidence.processes[member.process].has_left());
      }
      if (everybody_here) return compare(evidence, members, sequence, raise);
      // The leader's verdict on a rank that has left ends us, or (ACCEL_ON_ERROR=report) lets us run into it.
      if (somebody_left && !wait_a_turn()) return 0;
      if (!members.complete()) {
        observer_.rescan();
        if (monotonic_ns() - begun > kAppear) return give_up();
      }
      if (turn < 100) {
        sched_yield();
      } else {
        usleep(50);
      }
    }
  }

 private:
  int compare(const Evidence& evidence, const Members& members, std::uint64_t sequence, const Raise& raise) {
    auto verdict = find_mismatch(evidence, members, evidence.now_ns, 0);
    if (!verdict || verdict->sequence != sequence) return 0;
    // The leader's report first; it looks at the same records.
    Process::self().wait_for_leader(500'000'000);
    if (Process::self().settings().on_error == OnError::Report) return 0;
    return raise(*verdict, make_report(*verdict, evidence, observer_, 0).text);
  }

  static bool wait_a_turn() {
    Process::self().wait_for_leader(500'000'000);
    usleep(1000);
    return Process::self().settings().on_error != OnError::Report;
  }

  int give_up() {
    elsewhere_ = true;
    log().say(LogLevel::Warning,
              "ACCEL_CHECK=sync: not all ranks are on this node; calls are verified after the fact");
    return 0;
  }

  std::mutex mutex_;
  Observer observer_{Process::self().run()};
  std::atomic<bool> elsewhere_{false};
};

}  // namespace

int verify_before(const CheckedCommunicator& communicator, std::uint64_t sequence, const Raise& raise) {
  static SyncCheck* const check = new SyncCheck;
  return check->verify(communicator, sequence, raise);
}

}  // namespace accel
