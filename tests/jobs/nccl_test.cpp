// Given this faulty NCCL job, the report says this, under accelrun and with the preload alone. On stand-ins
// for GPUs.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

class Nccl : public ::testing::TestWithParam<Way> {
 protected:
  Outcome run_program(const std::string& program, std::map<std::string, std::string> variables = {}) {
    return run(scratch_, {Mpi::Nccl, GetParam(), 4, program, std::move(variables), {}});
  }
  Outcome run_fault(const std::string& fault, std::map<std::string, std::string> variables = {}) {
    return run_program("faults " + fault, std::move(variables));
  }
  void expect_clean() {
    EXPECT_TRUE(GetParam() == Way::Bare || scratch_.left_behind().empty());
    EXPECT_TRUE(none_left("faults"));
  }

  Scratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(Standin, Nccl, ::testing::Values(Way::Launcher, Way::Bare),
                         [](const auto& info) { return name_of(info.param); });

struct Expectation {
  const char* fault;
  int status;
  std::vector<std::string> lines;
};

void expect_lines(const Outcome& outcome, const Expectation& expected) {
  EXPECT_EQ(outcome.status, expected.status) << outcome;
  for (const std::string& line : expected.lines) {
    EXPECT_NE(outcome.report.find(line), std::string::npos) << "missing: " << line << "\n" << outcome;
  }
  const std::string title = "[accel] rank ";
  const std::size_t first = outcome.report.find(title);
  EXPECT_EQ(first == std::string::npos ? first : outcome.report.find(title, first + 1), std::string::npos)
      << "more than one report: " << outcome;
}

TEST_P(Nccl, ADisagreementIsReported) {
  const Expectation faults[] = {
      {"count",
       80,
       {"Differs in: count", "Process 0, 2, 3: float32[1024], sum",
        "Process 1: float32[512], sum         <- differs"}},
      {"zero", 80, {"process 1 passes count 0: NCCL drops the call there"}},
      {"datatype", 80, {"Differs in: datatype", "Process 1: int32[1024], sum          <- differs"}},
      {"op", 80, {"Differs in: op", "Process 1: float32[1024], max        <- differs"}},
      {"root", 80, {"Operation: ncclBroadcast (#3 on", "Process 1: float32[1024], root 1        <- differs"}},
      {"bytes", 80, {"Operation: ncclAllGather (#3 on", "Process 1: float32[512]         <- differs"}},
      {"kind", 80, {"Process 0, 2, 3: ncclAllReduce", "Process 1: ncclReduceScatter"}},
      {"order", 80, {"Process 0, 2, 3: ncclAllReduce", "Process 1: ncclBroadcast"}},
      {"group", 80, {"ncclAllReduce (#4 on", "Process 1: float32[7], sum        <- differs"}},
      {"split", 80, {"2 ranks)", "Process 1: float32[16], sum\n", "Process 3: float32[32], sum\n"}},
      {"receive-size",
       80,
       {"ncclSend  float32[1024], to 1", "ncclRecv  float32[512], from 0",
        "message 1 from rank 0 to rank 1"}},
      {"same-rank",
       80,
       {"processes 1, 2 claim the same rank", "Process 1, 2: ncclCommInitRank as rank 2 of 4"}},
      {"captured",
       80,
       {"Differs in: capture into a graph",
        "Process 1: float32[1024], sum, captured into a graph  <- differs"}},
      {"sizes",
       80,
       {"the processes disagree on its number of ranks", "Process 1: 5 ranks        <- differs"}},
  };
  for (const Expectation& expected : faults) {
    for (const char* mismatch : {"garbage", "hang"}) {
      SCOPED_TRACE(std::string(expected.fault) + ", " + mismatch);
      expect_lines(run_fault(expected.fault, {{"ACCEL_STANDIN_NCCL_MISMATCH", mismatch}}), expected);
    }
  }
  expect_clean();
}

TEST_P(Nccl, ARankThatLeavesIsNamed) {
  const Expectation faults[] = {
      {"exit0",
       82,
       {"process 1 has exited with status 0 while processes 0, 2, 3 wait for it in ncclAllReduce.",
        "reduce_gradients"}},
      {"raises",
       82,
       {"process 1 has exited with status 1 while processes 0, 2, 3 wait for it in ncclAllReduce."}},
      {"killed",
       82,
       {"process 1 was killed by signal 9 (SIGKILL) while processes 0, 2, 3 wait for it in ncclAllReduce."}},
      {"destroyed", 82, {"process 1 has called ncclCommDestroy while ", "in ncclAllReduce."}},
      {"one-more",
       82,
       {"with status 0 while process 0 waits for it in ncclAllReduce.", "ncclAllReduce (#6 on"}},
      {"no-receive", 82, {"process 1 has exited with status 0 while process 0 waits for it in ncclSend."}},
      {"no-send", 82, {"process 1 has exited with status 0 while process 0 waits for it in ncclRecv."}},
      {"leaves-before",
       82,
       {"process 1 has exited with status 3 while processes 0, 2, 3 wait for it in ncclCommInitRank."}},
      {"leaves-before-polling",
       82,
       {"process 1 has exited with status 3 while processes 0, 2, 3 wait for it in ncclCommInitRank."}},
      {"throws", 85, {"accel.CrashError: process 1 was killed by signal 6 (SIGABRT)."}},
  };
  for (const Expectation& expected : faults) {
    SCOPED_TRACE(expected.fault);
    const Outcome outcome = run_fault(expected.fault);
    // Without accelrun the launcher returns what it sees first: how that rank died, or the others' verdict.
    Expectation adapted = expected;
    const int signal = expected.status == 85                     ? SIGABRT
                       : std::string(expected.fault) == "killed" ? SIGKILL
                                                                 : 0;
    if (GetParam() == Way::Bare && signal != 0 && outcome.status == 128 + signal)
      adapted.status = 128 + signal;
    expect_lines(outcome, adapted);
  }
  expect_clean();
}

TEST_P(Nccl, ACircleIsADeadlockAtOnce) {
  const Outcome outcome = run_fault("swapped-communicators");
  expect_lines(
      outcome,
      {"", 81, {"wait for each other in a circle.", "at the head of its stream, which needs process "}});
  EXPECT_LT(outcome.seconds, 10) << "not by the time-out of 600 s";
  expect_clean();
}

TEST_P(Nccl, AnIdIsForOneCommunicator) {
  const Outcome outcome = run_fault("id-twice");
  expect_lines(outcome,
               {"", 80, {"its ncclUniqueId has been used before", "Process 0-3: 4 ranks  <- differs"}});
  expect_clean();
}

TEST_P(Nccl, ProcessesThatAreSetUpDifferentlyAreWarnedOf) {
  const Outcome outcome = run_program("setup");
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.report.find("NCCL_ALGO is unset in process 0 and \"Ring\" in process 1; all processes"),
            std::string::npos)
      << outcome;
  EXPECT_NE(outcome.report.find(" uses NCCL 2.21.5 ("), std::string::npos) << outcome;
  EXPECT_EQ(outcome.report.find("NCCL_DEBUG"), std::string::npos) << outcome;
  EXPECT_NE(outcome.report.find(
                "accel.DatatypeWarning: the processes move the same number of bytes in ncclBroadcast"),
            std::string::npos)
      << outcome;
  EXPECT_NE(outcome.report.find("Process 1: uint8[64], root 0"), std::string::npos) << outcome;
  EXPECT_NE(outcome.report.find("accel.ConfigurationWarning: the processes pass different configurations"),
            std::string::npos)
      << outcome;
  EXPECT_NE(outcome.report.find("Operation: ncclAllReduceConfig (#205 on"), std::string::npos) << outcome;
  EXPECT_NE(outcome.report.find("Process 1: float32[64], sum        <- differs"), std::string::npos)
      << outcome;
}

TEST_P(Nccl, GpusThatDifferAreWarnedOfAtTheStart) {
  const std::string steps = "trainer --batch 1 --steps 400";
  const Outcome mixed = run_program(steps, {{"ACCEL_STANDIN_GPU_MODELS", "A100,A100,A30,A100"}});
  EXPECT_EQ(mixed.status, 0) << mixed;
  const std::string warning = "GPUs differ: A100 [0, 1, 3], A30 [2]. The one with the least memory limits";
  const auto at = mixed.report.find(warning);
  EXPECT_NE(at, std::string::npos) << mixed;
  EXPECT_EQ(mixed.report.find(warning, at + 1), std::string::npos) << "once: " << mixed;
  const Outcome same = run_program(steps, {{"ACCEL_STANDIN_GPU_MODELS", "A100"}});
  EXPECT_EQ(same.report, "") << same;
}

TEST_P(Nccl, SendsThatWaitForEachOtherAreADeadlock) {
  const Outcome outcome = run_fault("send-cycle");
  expect_lines(outcome, {"",
                         81,
                         {"processes 0-3 wait for each other in a circle.",
                          "Process 3: waits in ncclSend  float32[1024], to 0"}});
  expect_clean();
}

TEST_P(Nccl, LateRanksAreWarnedOfThenTimedOut) {
  const std::pair<const char*, const char*> faults[] = {
      {"never", "processes 0, 2, 3 have waited in ncclCommInitRank for 1."},
      {"never-polling", "processes 0, 2, 3 have waited in ncclCommInitRank for 1."},
      {"data-loader", "processes 0, 2, 3 have waited in ncclAllReduce for 1."},
      {"blocked-stream", "processes 0-3 have waited in ncclAllReduce for 1."},
      {"blocked-stream", "not a usage error"},
      {"checkpoint", "process 0 is missing."},
      {"checkpoint", "in (anonymous namespace)::save_checkpoint()\n"},
      {"oom-skips", "process 1 had failed to allocate 2048 MiB on GPU 1 before, with 10"},
  };
  for (const auto& [fault, line] : faults) {
    SCOPED_TRACE(fault);
    const Outcome outcome = run_fault(fault, {{"ACCEL_WARN_AFTER", "0.3"}, {"ACCEL_TIMEOUT", "1"}});
    EXPECT_EQ(outcome.status, 81) << outcome;
    EXPECT_NE(outcome.report.find("accel.LateWarning: "), std::string::npos) << outcome;
    EXPECT_NE(outcome.report.find(line), std::string::npos) << outcome;
  }
  expect_clean();
}

TEST_P(Nccl, OutOfMemoryIsTheCauseOfWhatFollows) {
  const Outcome outcome = run_fault("oom");
  expect_lines(
      outcome,
      {"oom",
       83,
       {"accel.OutOfMemoryError: CUDA out of memory. Process 1 tried to allocate 2.00 GiB on GPU 1. The GPU "
        "has 1.00 GiB, of which ",
        "Process 1: has exited with status 1", "<- out of memory", "the GPU has less than that in all",
        "::train_step(", "in cuMemAlloc_v2\n"}});
  expect_clean();
}

/// Users see NCCL's "unhandled cuda error", others a hang.
TEST_P(Nccl, OutOfMemoryInsideNcclIsNamed) {
  for (const auto& [fault, function] :
       {std::pair("oom-init", "ncclCommInitRank"), std::pair("oom-collective", "ncclAllReduce")}) {
    SCOPED_TRACE(fault);
    const Outcome outcome = run_fault(fault);
    expect_lines(outcome, {fault,
                           83,
                           {"Process 1 tried to allocate 2.00 GiB on GPU 1",
                            "it was NCCL that asked for the memory", "Process 1: has exited with status 1"}});
    EXPECT_NE(outcome.output.find(std::string("rank 1: ") + function), std::string::npos) << outcome;
  }
  expect_clean();
}

TEST_P(Nccl, ABrokenContextIsMentioned) {
  const Outcome outcome = run_fault("kernel-fault");
  expect_lines(outcome,
               {"",
                82,
                {"process 1 has exited with status 1 while processes 0, 2, 3 wait for it in ncclAllReduce.",
                 "process 1 got CUDA error 700 from cuStreamSynchronize: its context is of no more use"}});
  expect_clean();
}

/// Where no symbol leads to NCCL its profiler interface does.
TEST_P(Nccl, LinkedInStatically) {
  const Expectation faults[] = {
      {"count",
       80,
       {"Operation: ncclAllReduce (#2 on", "Process 0, 2, 3: float32[1024]\n",
        "Process 1: float32[512]         <- differs"}},
      {"root", 80, {"Operation: ncclBroadcast (#2 on", "Process 1: float32[1024], root 1        <- differs"}},
      {"receive-size", 80, {"message 1 from rank 0 to rank 1"}},
      {"exit0",
       82,
       {"process 1 has exited with status 0 while processes 0, 2, 3 wait for it in ncclAllReduce."}},
      {"send-cycle", 81, {"processes 0-3 wait for each other in a circle."}},
      {"swapped-communicators", 81, {"processes 0, 1 wait for each other in a circle."}},
      {"same-peer-twice", 0, {}},
  };
  for (const Expectation& expected : faults) {
    SCOPED_TRACE(expected.fault);
    expect_lines(run_program(std::string("faults_static ") + expected.fault), expected);
  }
  const std::map<std::string, std::string> older = {{"ACCEL_STANDIN_NCCL_PROFILER", "4"}};
  expect_lines(run_program("faults_static count", older),
               {"v4", 80, {"Process 1: float32[512]         <- differs"}});
  const Outcome oldest =
      run_program("faults_static count", {{"ACCEL_STANDIN_NCCL_PROFILER", "1"}, {"ACCEL_LOG_LEVEL", "INFO"}});
  expect_lines(
      oldest,
      {"v1", 0, {"faults_static is linked in statically and older than 2.27: its calls cannot be seen"}});
  expect_clean();
}

TEST_P(Nccl, WhatIsNoFaultIsNotReported) {
  for (const char* program :
       {"ring", "perf", "devices", "faults same-peer-twice", "faults oom-caught", "faults fork"}) {
    SCOPED_TRACE(program);
    const Outcome outcome = run_program(program);
    EXPECT_EQ(outcome.status, 0) << outcome;
    EXPECT_EQ(outcome.report, "");
  }
  expect_clean();
}

TEST_P(Nccl, ResultsAreTheSameAsWithout) {
  const auto sorted = [](const Outcome& outcome) {
    std::vector<std::string> lines;
    std::string line;
    for (const char c : outcome.output) {
      if (c == '\n') {
        lines.push_back(std::exchange(line, {}));
      } else {
        line += c;
      }
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  const Outcome without = run(scratch_, {Mpi::Nccl, Way::None, 4, "ring", {}, {}});
  EXPECT_EQ(sorted(run_program("ring")), sorted(without));
}

TEST_P(Nccl, SeveralRanksInOneProcess) {
  const Outcome outcome = run(scratch_, {Mpi::Nccl, GetParam(), 1, "devices 7", {}, {}});
  expect_lines(outcome,
               {"", 80, {"Process 0, 2: float32[256], sum", "Process 1: float32[7], sum       <- differs"}});
  const Outcome threads = run(scratch_, {Mpi::Nccl, GetParam(), 1, "devices 256 7", {}, {}});
  expect_lines(threads, {"",
                         80,
                         {"Operation: ncclAllReduce (#7 on", "Process 0, 2: float32[256], sum",
                          "Process 1: float32[7], sum       <- differs"}});
}

TEST_P(Nccl, TheNextCallFailsAfterAVerdict) {
  const Outcome outcome = run_fault("count-and-on");
  expect_lines(outcome, {"", 80, {"Process 1: float32[512], sum         <- differs"}});
  EXPECT_NE(outcome.output.find(
                "ncclAllReduce(send, receive, count, type, op, comm, stream): invalid usage: [accel] "
                "accel.DistributedOperationError: Cannot apply desired operation due to shape mismatches."),
            std::string::npos)
      << outcome;
}

TEST_P(Nccl, SyncModeFailsTheCallItself) {
  const Outcome outcome = run_fault("count", {{"ACCEL_CHECK", "sync"}});
  // 1 is the program's own answer to the error.
  EXPECT_EQ(outcome.status, GetParam() == Way::Launcher ? 80 : 1) << outcome;
  EXPECT_NE(outcome.output.find("ncclAllReduce(send, receive, count, type, op, comm, stream): invalid usage"),
            std::string::npos)
      << outcome;
  EXPECT_NE(
      outcome.output.find("accel.DistributedOperationError: Cannot apply desired operation due to shape"),
      std::string::npos)
      << "what ncclGetLastError says: " << outcome;
  EXPECT_EQ(outcome.output.find(" ok"), std::string::npos) << outcome;
}

TEST_P(Nccl, OpenedByTheProgramItself) {
  const std::string script = "/usr/bin/python3 " + source_directory() + "/tests/programs/nccl/by_ctypes.py ";
  for (const char* library : {"", "/old"}) {
    std::map<std::string, std::string> variables = {
        {"LD_LIBRARY_PATH", build_directory() + "/standin" + library + ":" + build_directory() + "/standin"}};
    if (*library != '\0') variables["OLD_NCCL"] = "1";
    const Outcome healthy = run(scratch_, {Mpi::Nccl, GetParam(), 3, script + "64", variables, {}});
    EXPECT_EQ(healthy.status, 0) << healthy;
    EXPECT_EQ(healthy.report, "");
    const Outcome outcome = run(scratch_, {Mpi::Nccl, GetParam(), 3, script + "32", variables, {}});
    expect_lines(outcome,
                 {"", 80, {"Process 0, 2: float32[64], sum", "Process 1: float32[32], sum     <- differs"}});
  }
}

class Hybrid : public ::testing::TestWithParam<Mpi> {};
INSTANTIATE_TEST_SUITE_P(Both, Hybrid, ::testing::Values(Mpi::OpenMpi, Mpi::Mpich),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Hybrid, MpiAndNcclTogether) {
  Scratch scratch;
  const Outcome healthy = run(scratch, {GetParam(), Way::Launcher, 4, "hybrid", {}, {}});
  EXPECT_EQ(healthy.status, 0) << healthy;
  EXPECT_EQ(healthy.report, "") << healthy;
  const Outcome count = run(scratch, {GetParam(), Way::Launcher, 4, "hybrid count", {}, {}});
  expect_lines(
      count, {"", 80, {"Operation: ncclAllReduce (#5 on", "Process 1: float32[256], sum        <- differs"}});
  const Outcome barrier = run(scratch, {GetParam(), Way::Launcher, 4, "hybrid barrier", {}, {}});
  expect_lines(barrier, {"", 80, {"Process 1: MPI_Barrier", "MPI_Allreduce"}});
  const Outcome both =
      run(scratch, {GetParam(), Way::Launcher, 4, "hybrid both", {{"ACCEL_TIMEOUT", "2"}}, {}});
  expect_lines(both, {"", 81, {"Process 1: waits in MPI_Barrier"}});
}

/// The example: its loss goes down, and each of its bugs is told from the others.
TEST(Examples, DataParallelTrainer) {
  Scratch scratch;
  const std::string example = build_directory() + "/examples/nccl/data_parallel";
  const Outcome healthy = run(scratch, {Mpi::Nccl, Way::Launcher, 4, example, {}, {}});
  EXPECT_EQ(healthy.status, 0) << healthy;
  EXPECT_EQ(healthy.report, "");
  double first = 0;
  double last = 0;
  ASSERT_EQ(std::sscanf(healthy.output.c_str(), "step 1: loss %lf", &first), 1) << healthy;
  const auto end = healthy.output.find("step 20: loss ");
  ASSERT_NE(end, std::string::npos) << healthy;
  ASSERT_EQ(std::sscanf(healthy.output.c_str() + end, "step 20: loss %lf", &last), 1) << healthy;
  EXPECT_LT(last, first / 10);

  const Expectation bugs[] = {
      {" --bug bucket", 80, {"Process 1: float32[144], avg        <- differs", "in average_gradients"}},
      {" --bug uneven", 82, {"while process 0 waits for it in ncclAllReduce."}},
      {" --batch 8000000", 83, {"accel.OutOfMemoryError: CUDA out of memory. Process "}},
  };
  for (const Expectation& bug : bugs) {
    SCOPED_TRACE(bug.fault);
    expect_lines(run(scratch, {Mpi::Nccl, Way::Launcher, 4, example + bug.fault, {}, {}}), bug);
  }
}

}  // namespace
}  // namespace accel::testing
