// The launcher as its user meets it.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

std::string accelrun() { return build_directory() + "/accelrun"; }

TEST(Accelrun, BadInputIsOneLineThatSaysWhatToDo) {
  struct Case {
    const char* words;
    int status;
    const char* line;
  };
  const Case cases[] = {
      {"", 64, "accelrun: no command given; try: accelrun mpirun -n 4 ./program\n"},
      {"--", 64, "accelrun: no command given; try: accelrun mpirun -n 4 ./program\n"},
      {"--bogus true", 64, "accelrun: unknown option --bogus; accelrun --help lists them\n"},
      {"--check maybe true", 64, "accelrun: --check maybe is not valid: expected async, sync or off\n"},
      {"--timeout ten true", 64, "accelrun: --timeout ten is not valid: expected seconds (0: never)\n"},
      {"--engine slurm true", 64,
       "accelrun: --engine slurm is not valid: expected auto, plain, torchrun, horovod, srun, deepspeed, "
       "openmpi or hydra\n"},
      {"--library /no/lib.so true", 64, "accelrun: --library /no/lib.so: no such file\n"},
      {"no-such-command-here", 127,
       "accelrun: no-such-command-here: command not found in PATH; is it installed?\n"},
      {"/no/such/file", 127, "accelrun: /no/such/file does not exist: check the path\n"},
      {"/etc/passwd", 126, "accelrun: /etc/passwd is not executable: check its permissions\n"},
      {"/tmp", 126, "accelrun: /tmp is not executable: check its permissions\n"},
      {"mpirun.openmpi --hostfile /no/hosts true", 64,
       "accelrun: host file /no/hosts (given to /usr/bin/mpirun.openmpi by --hostfile) cannot be read: check "
       "the path\n"},
      {"mpiexec.mpich -f /no/hosts true", 64,
       "accelrun: host file /no/hosts (given to /usr/bin/mpiexec.mpich by -f) cannot be read: check the "
       "path\n"},
  };
  for (const Case& one : cases) {
    const Outcome outcome = run_shell(accelrun() + " " + one.words);
    EXPECT_EQ(outcome.status, one.status) << outcome;
    EXPECT_EQ(outcome.output, one.line);
  }
}

TEST(Accelrun, HelpFitsAScreenAndShowsExamples) {
  const Outcome outcome = run_shell(accelrun() + " --help");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_LE(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 40);
  std::size_t examples = 0;
  for (std::size_t at = 0; (at = outcome.output.find("\n  accelrun ", at)) != std::string::npos; ++at)
    ++examples;
  EXPECT_EQ(examples, 3u);
}

TEST(Accelrun, PlainCommandsKeepTheirStatusAndStreams) {
  Scratch scratch;
  const std::string run = "ACCEL_RUN_DIR=" + scratch.path() + " " + accelrun() + " ";
  EXPECT_EQ(run_shell(run + "sh -c \"exit 7\"").status, 7);
  EXPECT_EQ(run_shell(run + "sh -c \"kill -9 \\$\\$\"").status, 137);
  EXPECT_EQ(run_shell(run + "-- sh -c \"cat; echo end\"").output, "end\n");
  EXPECT_EQ(run_shell("echo words | " + run + "cat").output, "words\n");
  EXPECT_TRUE(scratch.left_behind().empty());
}

TEST(Examples, GradientStepIsReportedAsTheReadmeShowsIt) {
  for (const Mpi mpi : kBoth) {
    Scratch scratch;
    const std::string example = build_directory() + "/examples/" + name_of(mpi) + "/gradient_step";
    const Outcome outcome = run(scratch, {mpi, Way::Launcher, 4, example, {}, {}});
    EXPECT_EQ(outcome.status, 80) << outcome;
    std::ifstream readme(build_directory() + "/../README.md");
    const std::string text{std::istreambuf_iterator<char>(readme), {}};
    const auto begin = text.find("[accel] rank 1 of 4");
    const std::string shown = text.substr(begin, text.find("$ echo $?") - begin);
    EXPECT_EQ(normalise(outcome.report), normalise(shown)) << outcome;
  }
}

TEST(Accelrun, KeepKeepsTheVerdict) {
  Scratch scratch;
  const Outcome outcome = run(scratch, {Mpi::OpenMpi, Way::Launcher, 4, "faults count", {}, "--keep"});
  EXPECT_EQ(outcome.status, 80) << outcome;
  EXPECT_NE(outcome.report.find("[accel] records kept in " + scratch.path()), std::string::npos) << outcome;
  const Outcome verdict = run_shell("cat " + scratch.path() + "/accel-*/*/verdict.json");
  EXPECT_NE(verdict.output.find("\"verdict\":\"collective mismatch\""), std::string::npos) << verdict;
  const Outcome records = run_shell("ls " + scratch.path() + "/accel-*/*/ | grep -c record");
  EXPECT_EQ(records.output, "4\n");
}

TEST(Accelrun, AllRanksKilledIsAnObituaryNotAVerdict) {
  for (const Mpi mpi : kBoth) {
    Scratch scratch;
    // Rank 0's last words tell that all are on their way; then all are killed in one call, as a batch system
    // does it.
    const std::string script = scratch.path() + "/killer.sh";
    std::ofstream(script) << "#!/bin/sh\n"
                          << "until [ $(ls " << scratch.path()
                          << "/accel-*/*/*.record 2>/dev/null | wc -l) = 2 ]; do :; done\n"
                          << "until grep -q ok " << scratch.path() << "/out; do :; done\n"
                          << "kill -9 $(basename -a -s .record " << scratch.path()
                          << "/accel-*/*/*.record)\n";
    const Outcome outcome =
        run_shell("sh " + script + " & ACCEL_RUN_DIR=" + scratch.path() + " " + accelrun() + " " +
                  launcher(mpi, 2) + " " + program(mpi, "waiting") + " >" + scratch.path() + "/out 2>" +
                  scratch.path() + "/err; echo status $?; cat " + scratch.path() + "/err");
    EXPECT_NE(outcome.output.find("[accel] the job is gone without a verdict"), std::string::npos) << outcome;
    for (const char* line :
         {"Process 0: was killed by signal 9 (SIGKILL), ", "Process 1: was killed by signal 9 (SIGKILL), "}) {
      EXPECT_NE(outcome.output.find(line), std::string::npos) << outcome;
    }
    EXPECT_EQ(outcome.output.find("accel.EarlyExitError"), std::string::npos) << outcome;
    EXPECT_TRUE(scratch.left_behind().empty());
  }
}

/// accelrun in front of a job that waits for ever, until its rank 0 has said so.
class Interrupted {
 public:
  Interrupted(Mpi mpi, const Scratch& scratch) : out_(scratch.path() + "/out." + name_of(mpi)) {
    const std::string command = "ACCEL_RUN_DIR=" + scratch.path() + " exec " + accelrun() + " " +
                                launcher(mpi, 2) + " " + program(mpi, "waiting") + " >" + out_ +
                                " 2>&1 </dev/null";
    pid_ = fork();
    if (pid_ == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    while (run_shell("cat " + out_).output.find("ok") == std::string::npos) usleep(1000);
  }
  void signal(int number) const { kill(pid_, number); }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return status;
  }
  std::string output() const { return run_shell("cat " + out_).output; }

 private:
  std::string out_;
  pid_t pid_ = -1;
};

/// An interrupted mpirun of Open MPI returns 1; MPICH's mpiexec returns 0 or the signal's number, by turns:
/// as without us.
void expect_own_status(Mpi mpi, int status, int signal) {
  ASSERT_TRUE(WIFEXITED(status));
  const int own = WEXITSTATUS(status);
  EXPECT_TRUE(mpi == Mpi::OpenMpi ? own == 1 : own == 0 || own == signal) << own;
}

TEST(Accelrun, CtrlCEndsTheJobWithoutAVerdict) {
  for (const Mpi mpi : kBoth) {
    Scratch scratch;
    Interrupted job(mpi, scratch);
    job.signal(SIGINT);
    expect_own_status(mpi, job.wait(), SIGINT);
    EXPECT_EQ(job.output().find("accel."), std::string::npos) << job.output();
    EXPECT_TRUE(scratch.left_behind().empty());
    EXPECT_TRUE(none_left("waiting"));
  }
}

TEST(Accelrun, TermIsPassedOn) {
  for (const Mpi mpi : kBoth) {
    Scratch scratch;
    Interrupted job(mpi, scratch);
    job.signal(SIGTERM);
    expect_own_status(mpi, job.wait(), SIGTERM);
    EXPECT_TRUE(scratch.left_behind().empty());
    EXPECT_TRUE(none_left("waiting"));
  }
}

TEST(Leader, KilledByItselfLeavesASuccessorThatReports) {
  // Without accelrun a rank leads. A rank that does not is made to err once the leader is gone.
  Scratch scratch;
  const Outcome outcome = run(scratch, {Mpi::OpenMpi, Way::Bare, 4, "leaderless", {}, {}});
  EXPECT_NE(outcome.report.find("accel.EarlyExitError"), std::string::npos) << outcome;
  EXPECT_NE(outcome.report.find("was killed by signal 9"), std::string::npos) << outcome;
}

}  // namespace
}  // namespace accel::testing
