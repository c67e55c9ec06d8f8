// Who waits for whom.
#pragma once
#include <map>
#include <optional>
#include <vector>

#include "judge/judge.h"
#include "judge/members.h"

namespace accel {

class Waits {
 public:
  Waits(const Evidence& evidence, const std::map<std::uint64_t, Members>& communicators);

  std::optional<Verdict> find_early_exit(const JudgePolicy& policy) const;
  std::optional<Verdict> find_circle() const;
  std::optional<Verdict> find_standstill(const JudgePolicy& policy) const;
  /// What the process waits in: a call that a thread is inside, else one that stands on a stream.
  std::optional<CallRecord> waits_in(std::size_t process) const;
  /// Since when another process has waited for this one; nullopt: none does.
  std::optional<std::int64_t> waited_for_since(std::size_t process) const;
  /// TimeOut or Late, whichever has come; the longest wait first.
  std::optional<Verdict> find_late(const JudgePolicy& policy) const;

 private:
  /// One blocked call and the processes without which it cannot return.
  struct Wait {
    std::size_t process = 0;
    BlockedCall call;
    const Members* members = nullptr;
    std::vector<std::size_t> needs;                ///< certain: must come before this call can return
    std::vector<std::size_t> missing;              ///< have not made the call, needed or not
    bool certain_only_when_gone_for_long = false;  ///< point-to-point, MPI_Finalize
    bool on_stream = false;                        ///< the thread has returned from it; its stream waits
    bool all_called = false;                       ///< and nobody is missing
  };

  Wait describe(std::size_t process, const BlockedCall& call) const;
  void add_absentees(Wait& wait) const;
  void add_stream_waits(const Members& members);
  void add_pair_waits(const Members& members);
  void add_standing_streams(const Members& members);
  bool gone(const Wait& wait, std::size_t process) const;
  bool needs_peer(const Wait& wait, const CallRecord& record, std::int32_t rank, std::int32_t peer) const;
  bool departed_in_vain(const Wait& wait, std::size_t missing, const JudgePolicy& policy) const;
  Verdict verdict_for(VerdictKind kind, const Wait& wait) const;

  const Evidence& evidence_;
  const std::map<std::uint64_t, Members>& communicators_;
  std::vector<Wait> waits_;
};

}  // namespace accel
