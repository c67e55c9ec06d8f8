// Starts real jobs and looks at what came of them.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace accel::testing {

/// Nccl: no MPI; the ranks are started as torchrun does, on the stand-ins for GPUs.
enum class Mpi { OpenMpi, Mpich, Nccl };
/// How the library comes in front of the program.
enum class Way { Launcher, Bare, None };

std::string name_of(Mpi mpi);
std::string name_of(Way way);
inline constexpr Mpi kBoth[] = {Mpi::OpenMpi, Mpi::Mpich};

struct Outcome {
  int status = -1;      ///< exit status; 128 + signal
  std::string output;   ///< stdout and stderr of the whole job
  std::string report;   ///< what libaccel wrote to ACCEL_LOG_FILE
  std::string command;  ///< to start it again by hand
  double seconds = 0;
};

/// A directory for one test: run directories below it, log files in it. Removed with the test; a failed test
/// keeps it and says where it is.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }
  /// Files below accel-UID: what runs have left behind.
  std::vector<std::string> left_behind() const;

 private:
  std::string path_;
};

struct Job {
  Mpi mpi = Mpi::OpenMpi;
  Way way = Way::Launcher;
  int ranks = 4;
  std::string
      program;  ///< below build/programs/MPI, with its arguments; or a whole command if it starts with "/"
  std::map<std::string, std::string> variables;
  std::string options;  ///< of accelrun
};

/// Runs it, at most a minute. ACCEL_RUN_DIR and ACCEL_LOG_FILE lie in `scratch`.
Outcome run(const Scratch& scratch, const Job& job);
/// Runs any shell command, with the same bound.
Outcome run_shell(const std::string& command);

/// The report with what differs from run to run replaced: host, pids, communicators, paths.
std::string normalise(std::string report);
/// tests/golden/NAME.txt. With ACCEL_TEST_UPDATE=1 it is written from `actual` first.
std::string golden(const std::string& name, const std::string& actual);

std::string build_directory();
std::string source_directory();
std::string library();
std::string program(Mpi mpi, const std::string& name);
std::string launcher(Mpi mpi, int ranks);

/// Whether no process of that program is left, zombies aside, which are init's to collect. A launcher may
/// return while its ranks are still on their way out: they get a moment.
::testing::AssertionResult none_left(const std::string& program);

/// A rank's `status` as the job's launcher returns it without accelrun: hydra kills what is left when the
/// first rank exits, and if that comes before the others have exited too, it returns 9.
::testing::AssertionResult ended_with(const Outcome& outcome, const Job& job, int status);

std::ostream& operator<<(std::ostream& out, const Outcome& outcome);

}  // namespace accel::testing
