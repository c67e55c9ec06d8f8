// In front of a healthy job the library changes nothing, and when something of its own fails the job goes on.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

class Healthy : public ::testing::TestWithParam<Mpi> {
 protected:
  void expect_same(const std::string& what, int ranks,
                   const std::map<std::string, std::string>& variables = {}) {
    SCOPED_TRACE(what);
    const Outcome without = run(scratch_, {GetParam(), Way::None, ranks, what, variables, {}});
    for (const Way way : {Way::Launcher, Way::Bare}) {
      const Outcome with = run(scratch_, {GetParam(), way, ranks, what, variables, {}});
      EXPECT_EQ(with.status, without.status) << with;
      EXPECT_EQ(with.output, without.output) << with;
      EXPECT_EQ(with.report, "") << with;
    }
  }
  Scratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(Both, Healthy, ::testing::Values(Mpi::OpenMpi, Mpi::Mpich),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Healthy, OddButCorrectProgramsStayAsTheyAre) {
  for (const char* what :
       {"derived-types", "finalize-callback", "error-handlers", "intercomm", "topologies", "no-mpi", ""}) {
    expect_same("healthy " + std::string(what), 4);
  }
  expect_same("healthy fork-exec", 2);
  expect_same("healthy many-communicators", 2);
  expect_same("healthy threads", 2);
  EXPECT_TRUE(scratch_.left_behind().empty()) << scratch_.left_behind().front();
}

TEST_P(Healthy, NeverFinalizing) {
  // Open MPI's mpirun calls it improper and returns 1, MPICH's returns 0: so it stays. On a loaded machine
  // MPICH's sometimes returns 9 by itself: it kills the ranks that are still there when the first has left.
  const int usual = GetParam() == Mpi::OpenMpi ? 1 : 0;
  const int killed = GetParam() == Mpi::OpenMpi ? usual : 9;
  for (const Way way : {Way::None, Way::Launcher, Way::Bare}) {
    Outcome outcome;
    constexpr int kTries = 5;
    for (int i = 0; i < kTries && (i == 0 || outcome.status == killed); ++i) {
      outcome = run(scratch_, {GetParam(), way, 3, "healthy never-finalize", {}, {}});
      EXPECT_EQ(outcome.report.find("accel."), std::string::npos) << outcome;
      if (outcome.status == usual) break;
    }
    EXPECT_EQ(outcome.status, usual) << outcome;
  }
}

TEST_P(Healthy, ATruncatedRecordCostsTheRecordOnly) {
  const std::string id = "run-" + name_of(GetParam());
  const std::string directory = scratch_.path() + "/accel-" + std::to_string(geteuid()) + "/" + id;
  const Outcome outcome = run(scratch_, {GetParam(),
                                         Way::Launcher,
                                         2,
                                         "healthy truncate-own-record",
                                         {{"TEST_RUN_DIRECTORY", directory}, {"ACCEL_RUN_ID", id}},
                                         {}});
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.output.find("ok\n"), std::string::npos) << outcome;
  EXPECT_NE(outcome.report.find("cannot be read any more: truncated or damaged"), std::string::npos)
      << outcome;
}

TEST_P(Healthy, ClosedDescriptorsAreNoDeath) {
  const Outcome outcome = run(scratch_, {GetParam(), Way::Bare, 2, "healthy close-descriptors", {}, {}});
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_EQ(outcome.output, "ok\n") << outcome;
}

TEST_P(Healthy, NoPlaceForTheRecordIsSaidOnceARankAndNoMore) {
  const std::pair<std::string, std::string> places[] = {
      {"/nonexistent", "cannot open /nonexistent: No such file or directory; the job goes on unobserved"},
      {"/proc", "cannot create /proc/accel-"},
  };
  for (const auto& [place, complaint] : places) {
    const Outcome outcome =
        run(scratch_, {GetParam(), Way::Bare, 2, "healthy derived-types", {{"ACCEL_RUN_DIR", place}}, {}});
    EXPECT_EQ(outcome.status, 0) << outcome;
    EXPECT_EQ(outcome.output, "ok\n") << outcome;
    EXPECT_NE(outcome.report.find(complaint), std::string::npos) << outcome;
  }
}

TEST_P(Healthy, AFullPlaceForTheRecord) {
  const std::string small = scratch_.path() + "/small";
  ASSERT_EQ(mkdir(small.c_str(), 0700), 0);
  if (mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs is not permitted here";
  }
  const Outcome outcome =
      run(scratch_, {GetParam(), Way::Bare, 2, "healthy derived-types", {{"ACCEL_RUN_DIR", small}}, {}});
  const Outcome launched =
      run(scratch_, {GetParam(), Way::Launcher, 2, "healthy derived-types", {{"ACCEL_RUN_DIR", small}}, {}});
  umount(small.c_str());
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.report.find("no room for"), std::string::npos) << outcome;
  EXPECT_EQ(launched.status, 0) << launched;
  EXPECT_NE(launched.output.find("ok\n"), std::string::npos) << launched;
}

TEST_P(Healthy, APersistedEnvironmentIsDormant) {
  const Outcome outcome =
      run(scratch_,
          {GetParam(), Way::Bare, 2, "faults op", {{"ACCEL_RUN_ID", "accelrun.$(hostname).1.deadbeef"}}, {}});
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_EQ(outcome.report, "") << outcome;
  EXPECT_TRUE(scratch_.left_behind().empty());
}

TEST_P(Healthy, DisabledMeansDisabled) {
  const Outcome outcome =
      run(scratch_, {GetParam(), Way::Bare, 2, "faults op", {{"ACCEL_DISABLE", "1"}}, {}});
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_EQ(outcome.report, "") << outcome;
}

TEST_P(Healthy, ABadValueIsNamedAndTheDefaultUsed) {
  const Outcome outcome =
      run(scratch_, {GetParam(), Way::Bare, 2, "healthy derived-types", {{"ACCEL_TIMEOUT", "soon"}}, {}});
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.report.find(
                "ACCEL_TIMEOUT=soon is not valid: expected seconds (0: never); the default is used"),
            std::string::npos)
      << outcome;
}

TEST(Library, ExportsOnlyWhatItStandsInFrontOf) {
  std::set<std::string> expected = {"_Exit", "_exit", "accel_v1_functions", "dlsym", "dlvsym"};
#define NCCL_COLLECTIVE(name, ...) expected.insert("nccl" #name);
#define NCCL_PAIR(name, ...) expected.insert("nccl" #name);
#define NCCL_BY_HAND(name, ...) expected.insert("nccl" #name);
#define NCCL_WRAPPED(name) expected.insert("nccl" #name);
#include "signature/functions.def"
#define CUDA_MEMORY(symbol, ...) expected.insert(#symbol);
#define CUDA_WATCHED(symbol, ...) expected.insert(#symbol);
#define CUDA_WAIT(symbol, ...) expected.insert(#symbol);
#define CUDA_STREAM(symbol, ...) expected.insert(#symbol);
#define CUDA_LOOKUP(symbol, ...) expected.insert(#symbol);
#include "signature/driver.def"
  // We are NCCL's profiler plugin.
  for (const char* version : {"1", "2", "3", "4", "5"})
    expected.insert("ncclProfiler_v" + std::string(version));
  const Outcome names =
      run_shell("nm -D --defined-only " + library() + " | cut -d\" \" -f3 | grep -vE \"^P?MPI_\"");
  std::istringstream lines(names.output);
  std::set<std::string> exported;
  for (std::string line; std::getline(lines, line);) exported.insert(line);
  EXPECT_EQ(exported, expected);
  const Outcome needed =
      run_shell("readelf -d " + library() + " | grep NEEDED | grep -o \"\\[.*\\]\" | sort");
  EXPECT_EQ(needed.output, "[ld-linux-x86-64.so.2]\n[libc.so.6]\n[libm.so.6]\n");
  const Outcome newest =
      run_shell("objdump -T " + library() + " | grep -o \"GLIBC_[0-9.]*\" | sort -Vu | tail -1");
  EXPECT_EQ(newest.output, "GLIBC_2.36\n");
}

TEST(Library, LoadsIntoProgramsThatKnowNoMpi) {
  for (const char* command :
       {"/bin/true", "/bin/sh -c true", "/usr/bin/python3 -c \"print(1)\"", "/usr/bin/env true"}) {
    const Outcome outcome = run_shell("LD_PRELOAD=" + library() + " " + command);
    EXPECT_EQ(outcome.status, 0) << outcome;
  }
  EXPECT_EQ(run_shell("LD_PRELOAD=" + library() + " /bin/sh -c \"exit 9\"").status, 9);
}

}  // namespace
}  // namespace accel::testing
