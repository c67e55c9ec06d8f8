#include "tests/jobs/harness.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace accel::testing {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::string name_of(Mpi mpi) {
  return mpi == Mpi::OpenMpi ? "openmpi" : mpi == Mpi::Mpich ? "mpich" : "nccl";
}
std::string name_of(Way way) {
  return way == Way::Launcher ? "accelrun" : way == Way::Bare ? "bare" : "none";
}

Scratch::Scratch() {
  char name[] = "/tmp/accel-job-XXXXXX";
  path_ = mkdtemp(name);
}

Scratch::~Scratch() {
  if (::testing::Test::HasFailure()) {
    std::fprintf(stderr, "kept for you: %s\n", path_.c_str());
  } else {
    fs::remove_all(path_);
  }
}

std::vector<std::string> Scratch::left_behind() const {
  std::vector<std::string> files;
  const fs::path runs = path_ + "/accel-" + std::to_string(geteuid());
  if (!fs::exists(runs)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(runs)) files.push_back(entry.path());
  return files;
}

std::string build_directory() { return variable("ACCEL_TEST_BUILD", fs::current_path().string() + "/build"); }
std::string source_directory() { return variable("ACCEL_TEST_SOURCE", fs::current_path().string()); }
std::string library() { return build_directory() + "/libaccel.so"; }
std::string program(Mpi mpi, const std::string& name) {
  return build_directory() + "/programs/" + name_of(mpi) + "/" + name;
}

std::string launcher(Mpi mpi, int ranks) {
  if (mpi == Mpi::Nccl) return source_directory() + "/tests/programs/spawn.py " + std::to_string(ranks);
  return (mpi == Mpi::OpenMpi ? "mpirun.openmpi -n " : "mpiexec.mpich -n ") + std::to_string(ranks);
}

Outcome run_shell(const std::string& command) {
  Outcome outcome;
  outcome.command = command;
  const auto begin = std::chrono::steady_clock::now();
  FILE* pipe = popen(("exec timeout -s KILL 60 sh -c '" + command + "' 2>&1 </dev/null").c_str(), "r");
  char chunk[4096];
  while (const std::size_t got = fread(chunk, 1, sizeof chunk, pipe)) outcome.output.append(chunk, got);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

Outcome run(const Scratch& scratch, const Job& job) {
  static int number = 0;
  const std::string log = scratch.path() + "/log." + std::to_string(++number);
  std::map<std::string, std::string> variables = {{"ACCEL_RUN_DIR", scratch.path()}, {"ACCEL_LOG_FILE", log}};
  for (const auto& [name, value] : job.variables) variables[name] = value;

  const std::string what = job.program.front() == '/' ? job.program : program(job.mpi, job.program);
  std::string command;
  if (job.way == Way::Launcher) {
    for (const auto& [name, value] : variables) command += name + "=" + value + " ";
    command +=
        build_directory() + "/accelrun " + job.options + " " + launcher(job.mpi, job.ranks) + " " + what;
  } else {
    command = launcher(job.mpi, job.ranks);
    if (job.way == Way::Bare) variables["LD_PRELOAD"] = library();
    for (const auto& [name, value] : variables) {
      if (job.mpi == Mpi::Nccl) {
        command = name + "=" + value + " " + command;
        continue;
      }
      command += job.mpi == Mpi::OpenMpi ? " -x " + name + "=" + value : " -genv " + name + " " + value;
    }
    command += " " + what;
  }
  Outcome outcome = run_shell(command);
  outcome.report = read_file(log);
  return outcome;
}

std::string normalise(std::string report) {
  report = std::regex_replace(report, std::regex("on [^ ]+ \\(pid [0-9]+\\)"), "on HOST (pid PID)");
  report = std::regex_replace(report, std::regex("communicator [0-9a-f]{8}"), "communicator KEY");
  report = std::regex_replace(report, std::regex("File \"[^\"]*/([^/\"]+)\""), "File \"$1\"");
  return report;
}

std::string golden(const std::string& name, const std::string& actual) {
  const std::string path = source_directory() + "/tests/golden/" + name + ".txt";
  if (variable("ACCEL_TEST_UPDATE", "") == "1") std::ofstream(path) << actual;
  return read_file(path);
}

::testing::AssertionResult ended_with(const Outcome& outcome, const Job& job, int status) {
  const bool hydra_may_win = job.way == Way::Bare && job.mpi == Mpi::Mpich;
  if (outcome.status == status || (hydra_may_win && outcome.status == 9))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected status " << status << "; " << outcome;
}

::testing::AssertionResult none_left(const std::string& program) {
  constexpr int kAttempts = 100;
  std::string left;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    left = run_shell("ps -C " + program + " -o pid=,stat= | grep -v Z").output;
    if (left.empty()) return ::testing::AssertionSuccess();
    usleep(50'000);
  }
  return ::testing::AssertionFailure() << "still there after 5 s: " << left;
}

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << "status " << outcome.status << " after " << outcome.seconds << " s of\n  " << outcome.command
             << "\n--- output\n"
             << outcome.output << "--- report\n"
             << outcome.report << "---\n";
}

}  // namespace accel::testing
