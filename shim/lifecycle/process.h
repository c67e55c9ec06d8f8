// This process as part of a job: what exists of us between MPI_Init and the end.
#pragma once
#include <atomic>
#include <optional>

#include "nodes/uplink.h"
#include "record/call_sites.h"
#include "record/recorder.h"
#include "record/run_directory.h"
#include "settings/settings.h"

namespace accel {

class Process {
 public:
  /// The one and only. Constructed before first use, never destroyed.
  static Process& self();

  /// Opens the run directory and starts recording; at the first use of a library, `library` (kUses*). False:
  /// dormant, and why has been said.
  bool start(std::uint32_t library);
  /// The job that this process belongs to is known by no launcher, but it has met others: `key` is the same
  /// in all of them. Before join; ignored where a launcher names the job.
  void meet(std::uint64_t key);
  /// We know who we are: MPI_Init says so. Starts the agent thread and the signal handlers. `library`:
  /// kUses*.
  void join(int world_rank, int world_size, std::uint32_t library);
  /// The same where the program has no MPI: who we are is what its launcher says, else `rank` of `size`,
  /// which is what NCCL was told, or that we are alone. Does nothing where somebody who knows more has
  /// spoken: MPI before NCCL before CUDA and the program itself (`library` 0).
  void introduce(int rank, int size, std::uint32_t library);

  /// A library has asked for what we stand in front of, though it may never call it (kUses*).
  void reached(std::uint32_t library) { reached_.fetch_or(library, std::memory_order_relaxed); }

  /// Null while dormant: then every wrapper only passes through. In a forked child it is null again.
  Recorder* recorder() const { return recorder_.load(std::memory_order_acquire); }
  CallSites& sites() { return sites_; }
  const Settings& settings() const { return settings_; }
  const RunDirectory& run() const { return *run_; }
  Board& board() const { return *board_; }
  std::uint64_t world_key() const { return world_key_; }

  /// Of the accelrun that has started this job from another host.
  std::optional<Invitation> invitation_of_launcher() const;

  /// Whether accelrun brings the job's hosts together.
  static bool is_invited();

  /// Exit status of a verdict by which this process is to end; 0: none. Signal-safe.
  int ordered_end() const;

  /// Rings for the leader and waits until it has looked; then, if it has ordered the end, for our agent to
  /// bring it about. So it may not return. Signal-safe.
  void wait_for_leader(std::int64_t timeout_ns) const;

  /// The process is about to end by exit or _exit with `status`. Without MPI_Finalize behind it, others may
  /// wait for it in vain and its launcher may kill them before anybody can say so (MPICH does, within 0.1 s
  /// and with status 0): gives the leader a moment to find out. May not return.
  void leave(int status);
  /// At the end, at level INFO: MPI, NCCL and the driver where they are loaded and were of no use to us.
  void say_what_was_not_seen() const;

 private:
  static void forget_in_child();
  void linger();
  void answer_those_who_wait();
  void look_back(int status);
  void sum_up_memory() const;
  void finish_log() const;
  void take_leave() const;
  bool has_verdict() const;
  bool others_live() const;

  Settings settings_;
  std::optional<RunDirectory> run_;
  Board* board_ = nullptr;
  std::atomic<Recorder*> recorder_{nullptr};
  CallSites sites_;
  std::uint64_t world_key_ = 0;
  std::uint64_t member_of_ = 0;  ///< the world in which this process is counted
  bool launcher_names_job_ = true;
  bool owns_run_ = false;  ///< no accelrun: the last one out removes the run directory
  std::atomic<bool> left_{false};
  std::atomic<std::uint32_t> reached_{0};
};

}  // namespace accel
