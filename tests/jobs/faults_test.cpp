// Given this faulty job, the report says this, on both MPIs, under accelrun and with the preload alone.
#include <fstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

struct Place {
  Mpi mpi;
  Way way;
};

class Faults : public ::testing::TestWithParam<Place> {
 protected:
  Outcome run_fault(const std::string& fault, std::map<std::string, std::string> variables = {}) {
    job_ = {GetParam().mpi, GetParam().way, 4, "faults " + fault, std::move(variables), {}};
    return run(scratch_, job_);
  }
  /// Nothing stays: neither files (accelrun; a bare run keeps its verdict) nor processes.
  void expect_clean() {
    EXPECT_TRUE(GetParam().way == Way::Bare || scratch_.left_behind().empty());
    EXPECT_TRUE(none_left("faults"));
  }

  Scratch scratch_;
  Job job_;
};

INSTANTIATE_TEST_SUITE_P(Both, Faults,
                         ::testing::Values(Place{Mpi::OpenMpi, Way::Launcher}, Place{Mpi::OpenMpi, Way::Bare},
                                           Place{Mpi::Mpich, Way::Launcher}, Place{Mpi::Mpich, Way::Bare}),
                         [](const auto& info) {
                           return name_of(info.param.mpi) + "_" + name_of(info.param.way);
                         });

TEST_P(Faults, MismatchIsReportedWhole) {
  for (const char* fault : {"count", "op", "datatype", "root", "reduce-root", "bcast-count", "gather-count",
                            "kind", "order", "split-vs-barrier", "half-count", "gatherv", "scatterv",
                            "allgatherv", "alltoallv", "reduce-scatter"}) {
    SCOPED_TRACE(fault);
    const Outcome outcome = run_fault(fault);
    EXPECT_TRUE(ended_with(outcome, job_, 80));
    const std::string report = normalise(outcome.report);
    EXPECT_EQ(report, golden(fault, report)) << outcome;
  }
  expect_clean();
}

TEST_P(Faults, ARankThatLeavesIsNamed) {
  const std::pair<const char*, const char*> faults[] = {
      {"finalize", "accel.EarlyExitError: process 1 has called MPI_Finalize while "},
      {"exit0", "accel.EarlyExitError: process 1 has exited with status 0 without MPI_Finalize while "},
      {"_exit3", "accel.EarlyExitError: process 1 has exited with status 3 without MPI_Finalize while "},
  };
  for (const auto& [fault, line] : faults) {
    SCOPED_TRACE(fault);
    const Outcome outcome = run_fault(fault);
    EXPECT_TRUE(ended_with(outcome, job_, 82));
    EXPECT_NE(outcome.report.find(line), std::string::npos) << outcome;
    EXPECT_NE(outcome.report.find("in reduce_gradients\n  in MPI_Allreduce\n"), std::string::npos) << outcome;
    EXPECT_NE(outcome.report.find("<- has left"), std::string::npos) << outcome;
  }
  expect_clean();
}

TEST_P(Faults, AKilledRankIsNamed) {
  // Hydra kills the others within a millisecond, by SIGKILL, and one of them can be dead before the first is:
  // there the report says of a rank only that it was killed, if anybody is left to wait for it.
  const bool hydra = GetParam().mpi == Mpi::Mpich;
  const Outcome outcome = run_fault("killed");
  if (!hydra) {
    EXPECT_EQ(outcome.status, GetParam().way == Way::Launcher ? 82 : 137) << outcome;
    EXPECT_NE(outcome.report.find("accel.EarlyExitError: process 1 was killed by signal 9 (SIGKILL) while "),
              std::string::npos)
        << outcome;
  } else {
    EXPECT_TRUE(outcome.status == 82 || outcome.status == 9) << outcome;
    EXPECT_TRUE(outcome.status == 9 ||
                outcome.report.find("process 1 was killed by signal 9") != std::string::npos)
        << outcome;
  }
  expect_clean();
}

TEST_P(Faults, ACrashKeepsItsSignal) {
  const Outcome outcome = run_fault("segv");
  EXPECT_NE(outcome.report.find("accel.CrashError: process 1 was killed by signal 11 (SIGSEGV)."),
            std::string::npos)
      << outcome;
  EXPECT_TRUE(GetParam().way == Way::Bare || outcome.status == 85) << outcome;
  EXPECT_NE(outcome.status, 0) << outcome;
  expect_clean();
}

TEST_P(Faults, ACircleIsADeadlockAtOnce) {
  const Outcome outcome = run_fault("cycle");
  EXPECT_TRUE(ended_with(outcome, job_, 81));
  EXPECT_NE(outcome.report.find("wait for each other in a circle."), std::string::npos) << outcome;
  EXPECT_NE(outcome.report.find("for process 1\n"), std::string::npos) << outcome;
  EXPECT_LT(outcome.seconds, 10) << "not by the time-out of 600 s";
  expect_clean();
}

TEST_P(Faults, AMissingBcastIsFoundThoughNobodyHangs) {
  const Outcome outcome = run_fault("bcast-missing");
  EXPECT_TRUE(outcome.status == 80 || outcome.status == 82 || outcome.status == 9) << outcome;
  EXPECT_NE(outcome.report.find("MPI_Bcast"), std::string::npos) << outcome;
  EXPECT_NE(outcome.report.find("MPI_Finalize"), std::string::npos) << outcome;
}

TEST_P(Faults, LateRanksAreWarnedOfThenTimedOut) {
  // Where the missing rank is: computing, so that its stack is taken by a signal; or in pause(), which no
  // signal may end, so that only that is known.
  const std::pair<const char*, const char*> cases[] = {{"busy", "in train_step"}, {"late", "pause"}};
  for (const auto& [fault, place] : cases) {
    SCOPED_TRACE(fault);
    const Outcome outcome = run_fault(fault, {{"ACCEL_WARN_AFTER", "0.3"}, {"ACCEL_TIMEOUT", "1"}});
    EXPECT_TRUE(ended_with(outcome, job_, 81));
    const auto warning =
        outcome.report.find("accel.LateWarning: processes 0, 2, 3 have waited in MPI_Barrier for 0.");
    const auto error =
        outcome.report.find("accel.TimeoutError: processes 0, 2, 3 have waited in MPI_Barrier for 1.");
    EXPECT_NE(warning, std::string::npos) << outcome;
    EXPECT_NE(error, std::string::npos) << outcome;
    EXPECT_LT(warning, error);
    EXPECT_NE(outcome.report.find("process 1 is missing"), std::string::npos) << outcome;
    const auto traceback = outcome.report.find("Traceback (most recent call last):");
    EXPECT_NE(outcome.report.substr(traceback, 400).find(place), std::string::npos) << outcome;
  }
  expect_clean();
}

TEST_P(Faults, AnAbortIsTheJobsOwn) {
  const Outcome outcome = run_fault("abort");
  EXPECT_EQ(outcome.status, 7) << outcome;
  EXPECT_EQ(outcome.report.find("accel."), std::string::npos) << outcome;
}

TEST_P(Faults, AnInvalidArgumentStaysMpisError) {
  const Outcome outcome = run_fault("invalid-root");
  EXPECT_NE(outcome.status, 0) << outcome;
  EXPECT_TRUE(outcome.status < 80 || outcome.status > 85) << outcome;
  EXPECT_NE(outcome.report.find("MPI reports an error in MPI_Bcast: "), std::string::npos) << outcome;
}

TEST_P(Faults, ReportOnlyLetsTheJobGoOn) {
  const Outcome outcome = run_fault("op", {{"ACCEL_ON_ERROR", "report"}});
  EXPECT_EQ(outcome.status, GetParam().way == Way::Launcher ? 80 : 0) << outcome;
  EXPECT_NE(outcome.report.find("Differs in: op"), std::string::npos) << outcome;
  for (const char* line : {"rank 0 is done", "rank 1 is done", "rank 2 is done", "rank 3 is done"}) {
    EXPECT_NE(outcome.output.find(line), std::string::npos) << outcome;
  }
}

TEST_P(Faults, CheckOffIsSilent) {
  const Outcome outcome = run_fault("op", {{"ACCEL_CHECK", "off"}});
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_EQ(outcome.report, "") << outcome;
}

TEST_P(Faults, SyncModeFailsTheCallItself) {
  for (const char* fault : {"count", "op", "root", "kind"}) {
    SCOPED_TRACE(fault);
    const Outcome outcome = run_fault(fault, {{"ACCEL_CHECK", "sync"}});
    EXPECT_TRUE(ended_with(outcome, job_, 80));
    const std::string report = normalise(outcome.report);
    EXPECT_EQ(report, golden(fault, report)) << "the same as in async mode\n" << outcome;
    EXPECT_EQ(outcome.output.find("is done"), std::string::npos) << "nobody got past the call\n" << outcome;
  }
  const Outcome healthy = run_fault("", {{"ACCEL_CHECK", "sync"}});
  EXPECT_EQ(healthy.status, 0) << healthy;
  EXPECT_EQ(healthy.report, "") << healthy;
}

TEST_P(Faults, JsonSaysTheSame) {
  const Outcome outcome = run_fault("count", {{"ACCEL_LOG_FORMAT", "json"}});
  const std::string file = scratch_.path() + "/report.json";
  std::ofstream(file) << outcome.report;
  std::ofstream(scratch_.path() + "/show.py") << R"(
import json, sys
verdict = json.load(open(sys.argv[1]))
processes = verdict["processes"]
print(verdict["verdict"], verdict["exit_status"], verdict["differs_in"], [p["call"]["count"] for p in processes],
      [p["rank"] for p in processes if p["blamed"]])
)";
  const Outcome parsed = run_shell("/usr/bin/python3 " + scratch_.path() + "/show.py " + file);
  EXPECT_EQ(parsed.output, "collective mismatch 80 ['count'] [1024, 512, 1024, 1024] [1]\n") << outcome;
}

}  // namespace
}  // namespace accel::testing
