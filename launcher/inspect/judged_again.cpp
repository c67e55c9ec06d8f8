#include "launcher/inspect/judged_again.h"

#include <algorithm>

#include "judge/judge.h"

namespace accel {

std::optional<JudgedAgain> judge_again(const RunDirectory& run) {
  Observer observer(run);
  const std::optional<Moment> moment = Moment::read(run.fd());
  JudgePolicy policy;
  if (moment) {
    policy.timeout_ns = moment->patience.timeout_ns;
    policy.warn_after_ns = moment->patience.warn_after_ns;
    policy.oom_grace_ns = moment->patience.oom_grace_ns;
    policy.not_before_ns = moment->patience.not_before_ns;
    policy.ending = moment->patience.ending;
    observer.go_back_to(*moment);
  } else {
    policy.timeout_ns = policy.warn_after_ns = 0;
  }
  const Evidence evidence = observer.observe();
  const bool anybody_lives = std::any_of(evidence.processes.begin(), evidence.processes.end(),
                                         [](const ProcessEvidence& process) { return process.alive; });
  if (evidence.processes.empty() || (!moment && anybody_lives)) return std::nullopt;
  for (const Verdict& verdict : judge(evidence, policy)) {
    if (!verdict.is_fault()) continue;
    return JudgedAgain{verdict, make_report(verdict, evidence, observer, moment ? moment->stack_request : 0)};
  }
  return std::nullopt;
}

}  // namespace accel
