// Out of memory: the command again with a smaller batch, decided once for all ranks, until it runs.
#pragma once
#include "launcher/batch/trainers.h"
#include "launcher/job.h"
#include "launcher/output.h"

namespace accel {

enum class OnOom { Retry, Requeue, Report };

struct RetryRequest {
  JobRequest job;
  Knobs knobs;           ///< batch empty: none is known, and an out-of-memory is only reported
  bool guessed = false;  ///< knobs.batch was not asked for: nothing may be changed
  SizePolicy policy;
  int max_attempts = 0;  ///< 0: as many as it takes
  bool shrink_training = true;
  bool shrink_evaluation = false;
  std::string resume;  ///< words that are added from the second attempt on
  OnOom on_oom = OnOom::Retry;
  std::string state_file;  ///< for Requeue
  bool retry_host_oom = false;
  bool remember = false;
  bool reuse = false;
  RankOutput::Request output;
  bool json = false;  ///< events for programs on stderr, a line each
};

/// Runs the command as often as it takes. Exit status of the contract.
int run_with_retries(const RetryRequest& request);

/// `accelrun --explain`: what was recognised, and the commands of the next attempts.
std::string explain(const RetryRequest& request);

}  // namespace accel
