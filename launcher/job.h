// One run of the user's command, from its start to the last word on it.
#pragma once
#include <signal.h>
#include <sys/signalfd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "act/watch.h"
#include "launcher/engine.h"
#include "record/run_directory.h"
#include "settings/settings.h"

namespace accel {

struct JobRequest {
  std::vector<std::string> command;
  Engine engine = Engine::Plain;
  /// ACCEL_* and LD_PRELOAD, for the ranks.
  std::map<std::string, std::string> variables;
  Settings settings;
  bool several_hosts = false;  ///< the command may start ranks on other hosts
  bool keep = false;           ///< the run directory stays
  nlohmann::json sizes;        ///< for the manifest; null: not known
  std::string manifest;        ///< where a copy of the manifest goes; empty: nowhere
};

/// Signals as a descriptor, so that one poll waits for everything. From its construction on they are blocked.
class Signals {
 public:
  Signals();
  int fd() const { return fd_.get(); }
  /// For a child: the mask it would have had without us.
  void restore() const;
  std::optional<signalfd_siginfo> next() const;
  /// Takes what has come in; the first signal by which the user wants an end, 0 if there was none.
  int ending() const;

 private:
  sigset_t before_{};
  FileDescriptor fd_;
};

struct JobOutcome {
  int status = 0;      ///< of the contract: the verdict's, else the command's own
  int own_status = 0;  ///< the command's
  std::optional<Watch::Fault> fault;
  bool interrupted = false;         ///< the user has ended it
  std::vector<std::int32_t> ranks;  ///< process ids
};

/// Starts the command, leads its run, passes signals on, waits for it and gives the last look back. Throws
/// Failure if it cannot be started.
JobOutcome run_job(const JobRequest& request, const Signals& signals);

}  // namespace accel
