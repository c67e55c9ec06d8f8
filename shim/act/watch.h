// The leader's work: look, judge, report, act; a turn at a time. The same in a rank's agent thread and in
// accelrun.
#pragma once
#include <optional>
#include <set>

#include "act/stack_request.h"
#include "collect/observer.h"
#include "judge/judge.h"
#include "nodes/coordinator.h"
#include "nodes/uplink.h"
#include "record/run_directory.h"
#include "settings/settings.h"

namespace accel {

class Watch {
 public:
  /// How often a leader looks when nobody rings: definite faults are reported within 250 ms.
  static constexpr std::int64_t kInterval = 20'000'000;

  Watch(const RunDirectory& run, Board& board, const Settings& settings);

  /// One turn. Exit status of the first fault found so far, here or by a coordinator; 0 if there is none.
  int look() { return turn(false); }
  /// The last turn, when the job is gone: nothing more will come.
  int look_back() { return turn(true); }

  /// Called after the ranks were asked for their stacks, when this process is one of them.
  void on_stack_request(AnswerStacks answer) { answer_ = std::move(answer); }
  /// Judges the nodes whose leaders come to that coordinator, together with this one.
  void lead(Coordinator& nodes);
  /// Judges nothing itself while that coordinator can be reached.
  void follow(const Invitation& invitation);
  /// Where nobody has called one of the two: does so when the run's processes find out where their hosts
  /// meet. `start`: starts a thread.
  using StartThread = bool (*)(void* (*run)(void*), void* argument);
  void meet_others(StartThread start) { start_thread_ = start; }
  /// Ranks disappear because somebody outside ends the job: that is no fault.
  void expect_end() { policy_.ending = true; }

  /// Sleeps until somebody rings, a process dies or it is time for the next turn.
  /// `also`: a descriptor whose becoming readable ends the sleep too; -1: none.
  void sleep(int also = -1);

  Observer& observer() { return observer_; }
  const Evidence& evidence() const { return evidence_; }
  /// The first fault, whoever reported it, and whom it is about.
  struct Fault {
    Verdict verdict;
    ProcessEvidence subject;
  };
  const std::optional<Fault>& fault() const { return fault_; }

 private:
  int turn(bool last);
  void look_at_nodes(bool last);
  bool is_news(const Verdict& verdict) const;
  void meet();
  void open_house();
  bool rests_on_doubt(const Verdict& verdict) const;
  void settle_doubt();
  bool is_led();
  void serve();
  void obey(const Uplink::Order& order);
  void report_upwards();
  void consider(const Verdict& verdict, bool last);
  bool is_first_to_say(std::uint64_t world, std::uint32_t what);
  void warn_of_setup();
  void warn_of_gpus();
  std::uint32_t ask_for_stacks(std::int64_t for_python);
  bool claim(std::uint64_t world);
  void publish(const std::string& json, std::uint32_t stack_request);
  void publish_file(const char* name, const std::string& text);
  bool stacks_say_more() const;
  void expect_ends(std::uint64_t world);
  void end_world(std::uint64_t world, int status);

  const RunDirectory& run_;
  Board& board_;
  const Settings& settings_;
  Observer observer_;
  FileDescriptor bell_;
  JudgePolicy policy_;
  Evidence evidence_;
  AnswerStacks answer_;
  Coordinator* nodes_ = nullptr;
  std::optional<Uplink> superior_;
  StartThread start_thread_ = nullptr;
  std::uint32_t met_ = 0;           ///< MeetingPoint::stamp, as it was followed
  bool house_open_ = false;         ///< leaders of other hosts are received here, or cannot be
  std::uint32_t stacks_asked_ = 0;  ///< the latest request that other nodes know of
  bool rung_ = false;               ///< since the last turn
  std::size_t left_ = 0;            ///< processes that had left at the last alarm
  std::set<std::pair<std::uint64_t, VerdictKind>> alarmed_;
  bool said_alone_ = false;
  int ordered_ = 0;  ///< with which status a coordinator ends the job; 0: it does not
  /// A verdict on a process of which it is not known yet whether it has died, and what was known then.
  struct Doubtful {
    Verdict verdict;
    Evidence evidence;
  };
  std::optional<Doubtful> doubtful_;
  std::set<std::uint64_t> reported_worlds_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> warned_;  ///< communicator, number
  std::int64_t last_look_ns_ = 0;
  std::optional<Fault> fault_;
};

/// Takes over the level of the log that somebody has asked for from outside.
void follow_log_level(const Board& board);

/// Rings for the leader and waits until it has completed a look that began after this call, at most
/// `timeout_ns`. False: nobody answered. Any thread; signal-safe.
bool wait_for_look(const RunDirectory& run, Board& board, std::int64_t timeout_ns);

}  // namespace accel
