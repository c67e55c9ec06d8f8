// Out of memory: the job again with a smaller batch. On stand-ins for GPUs with 48 MiB; the trainer needs a
// MiB for each example.
#include <fstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

class Retry : public ::testing::Test {
 protected:
  /// `options` of accelrun, `words` of the trainer.
  Outcome run_trainer(const std::string& options, const std::string& words,
                      std::map<std::string, std::string> variables = {}, int ranks = 4) {
    variables["ACCEL_STANDIN_GPU_MEMORY"] = "48M";
    variables.emplace("XDG_CACHE_HOME", scratch_.path() + "/cache");
    return run(scratch_, {Mpi::Nccl, Way::Launcher, ranks, "trainer " + words, variables, options});
  }
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = scratch_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  static std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
    return found;
  }
  static void expect_trained(const Outcome& outcome, const std::string& how, std::size_t ranks = 4) {
    EXPECT_EQ(outcome.status, 0) << outcome;
    EXPECT_EQ(count(outcome.output, "trained with " + how), ranks) << outcome;
    EXPECT_EQ(count(outcome.output, "trained with "), ranks) << outcome;
  }
  static void expect_said(const Outcome& outcome, const std::string& line) {
    EXPECT_NE(outcome.report.find(line), std::string::npos) << "missing: " << line << "\n" << outcome;
  }

  Scratch scratch_;
};

TEST_F(Retry, HalvesTheBatchAndDoublesTheAccumulationUntilItRuns) {
  const Outcome outcome = run_trainer("--batch arg:--batch --accum arg:--accum", "--batch 256 --accum 1");
  expect_trained(outcome, "batch 32, accumulation 8: --batch 32 --accum 8");
  expect_said(outcome, "[accel] batch size: batch 256 × accumulation 1 = 256\n");
  expect_said(outcome, "[accel] attempt 1 ran out of memory: rank ");
  expect_said(outcome, "asked for 256.00 MiB, ");
  expect_said(
      outcome,
      "[accel]   batch 64 × accumulation 4 × 4 ranks = 1024 → batch 32 × accumulation 8 × 4 ranks = 1024\n");
  expect_said(outcome, " --batch 32 --accum 8\n");
  expect_said(outcome, "[accel] ran with batch 32 × accumulation 8 × 4 ranks = 1024 (attempt 4)\n");
  EXPECT_EQ(count(outcome.report, "accel.OutOfMemoryError"), 3u) << "a report an attempt";
  EXPECT_TRUE(none_left("trainer"));
}

TEST_F(Retry, WhereverItHappens) {
  const std::string knobs = "--oom-grace 0.5 --batch arg:--batch --accum arg:--accum";
  for (const char* where : {"--oom-rank 2", "--steps 60 --oom-step 50", "--oom-rank 1 --oom-step 1 --wedge",
                            "--oom-rank 1 --in-nccl", "--oom-rank 1 --in-nccl --wedge",
                            "--oom-rank 3 --wedge --oom-step 1 --stubborn"}) {
    SCOPED_TRACE(where);
    const Outcome outcome = run_trainer(knobs, std::string("--batch 64 --accum 2 ") + where);
    expect_trained(outcome, "batch 32, accumulation 4: ");
    EXPECT_EQ(count(outcome.report, "accel.OutOfMemoryError"), 1u) << outcome;
    EXPECT_TRUE(none_left("trainer"));
  }
}

TEST_F(Retry, ChildrenThatStayBehindAreClearedAway) {
  const Outcome outcome = run_trainer("--batch arg:--batch", "--batch 64 --child", {}, 2);
  expect_trained(outcome, "batch 32, accumulation 1: ", 2);
  // Two from the first attempt would be four now; those of the attempt that ran are the program's business.
  const Outcome left = run_shell("pgrep -fc \"[n]ccl/trainer --batch 64\"");
  EXPECT_EQ(left.output, "0\n") << left;
  run_shell("pkill -KILL -f \"[n]ccl/trainer --batch 32\"");
}

TEST_F(Retry, OnlyAfterAnOutOfMemory) {
  const std::string knobs = "--batch arg:--batch --accum arg:--accum";
  const Outcome caught = run_trainer(knobs, "--batch 256 --accum 1 --catch");
  expect_trained(caught, "batch 256, accumulation 1: ");
  EXPECT_EQ(count(caught.report, "[accel]"), 1u) << "the line at the start only: " << caught;

  const Outcome crash = run_trainer(knobs, "--batch 16 --accum 1 --crash");
  EXPECT_EQ(crash.status, 85) << crash;
  EXPECT_EQ(count(crash.report, "attempt"), 0u) << crash;

  const Outcome healthy = run_trainer(knobs, "--batch 16 --accum 1");
  expect_trained(healthy, "batch 16, accumulation 1: ");
  EXPECT_EQ(healthy.report, "[accel] batch size: batch 16 × accumulation 1 = 16\n");
}

TEST_F(Retry, WhateverCarriesTheNumber) {
  struct Case {
    std::string options, words, trained;
    std::map<std::string, std::string> variables;
  };
  const std::string yaml = write("train.yaml", "# mine\nmodel:\n  batch: 64  # a GPU\n");
  const std::string json = write("train.json", "{\"batch\": 64, \"epochs\": 3}\n");
  const std::string toml = write("train.toml", "[training]\nbatch = 64 # a GPU\n");
  const Case cases[] = {
      {"--batch arg:--batch", "--batch=64", "batch 32, accumulation 1: --batch=32", {}},
      {"--batch arg:-b", "-b64", "batch 32, accumulation 1: -b32", {}},
      {"--batch arg:batch=", "batch=64", "batch 32, accumulation 1: batch=32", {}},
      {"--batch pos:4", "--batch 64", "batch 32, accumulation 1: --batch 32", {}},
      {"--batch env:BATCH", "--steps 2", "batch 32, accumulation 1: --steps 2", {{"BATCH", "64"}}},
      {"--batch 64 --accum 1",
       "--batch {batch} --accum {accum}",
       "batch 32, accumulation 2: --batch 32 --accum 2",
       {}},
      {"--batch yaml:" + yaml + "#model.batch",
       "--config " + yaml,
       "batch 32, accumulation 1: --config /",
       {}},
      {"--batch json:@--config#batch", "--config " + json, "batch 32, accumulation 1: --config /", {}},
      {"--batch toml:*#training.batch", "--config " + toml, "batch 32, accumulation 1: --config /", {}},
      {"--batch arg:--batch", "--batch 16 --batch 64", "batch 32, accumulation 1: --batch 16 --batch 32", {}},
      {"--batch arg:--batch --accum arg:--accum?1",
       "--batch 64",
       "batch 32, accumulation 2: --batch 32 --accum 2",
       {}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.options + " " + one.words);
    expect_trained(run_trainer(one.options, one.words, one.variables, 2), one.trained, 2);
  }
  std::string text;
  std::getline(std::ifstream(yaml), text);
  EXPECT_EQ(text, "# mine");
  EXPECT_EQ(run_shell("ls " + scratch_.path() + "/train.* | wc -l").output, "3\n")
      << "nothing beside the originals";
  EXPECT_EQ(run_shell("ls -d ${TMPDIR:-/tmp}/accelrun-* 2>/dev/null | wc -l").output, "0\n")
      << "copies are gone";
}

TEST_F(Retry, ACopyLiesBesideWhatNamesOthersFromThere) {
  const std::string yaml = write("main.yaml", "defaults: [base]\nbatch: 64\n");
  const Outcome outcome = run_trainer("--batch yaml:" + yaml + "#batch", "--config " + yaml, {}, 1);
  expect_trained(outcome, "batch 32, accumulation 1: --config " + scratch_.path() + "/.accelrun-", 1);
  EXPECT_EQ(run_shell("ls -A " + scratch_.path() + " | grep -c main.yaml").output, "1\n")
      << "gone with the attempt";
}

TEST_F(Retry, WaitsForTheGpusMemoryAndNamesOthersThatHoldIt) {
  const std::string holders = write("holders", "1\n");
  const Outcome outcome = run_trainer("--batch arg:--batch", "--batch 64",
                                      {{"LD_LIBRARY_PATH", build_directory() + "/standin"},
                                       {"ACCEL_STANDIN_NVML_GPUS", "A30:25769803776:1440"},
                                       {"ACCEL_STANDIN_NVML_PROCESSES", holders}},
                                      2);
  expect_trained(outcome, "batch 32, accumulation 1: ", 2);
  expect_said(outcome, "[accel] others hold memory, too: process 1 on GPU 0;\n");
}

/// A background child that touches the terminal would stop, which looks like a hang.
TEST_F(Retry, TheJobStaysInTheForeground) {
  const Outcome outcome = run_shell("echo typed | script -qefc \"" + build_directory() +
                                    "/accelrun /bin/bash -c \\\"read -r line < "
                                    "/dev/tty; stty sane < /dev/tty; echo got \\\\\\$line\\\"\" /dev/null");
  EXPECT_NE(outcome.output.find("got typed"), std::string::npos) << outcome;
}

TEST_F(Retry, WhateverTheRule) {
  const Outcome divided =
      run_trainer("--rule divided --batch arg:-b --accum arg:--accum", "-b 16 --accum 2 --cache 64", {}, 2);
  EXPECT_EQ(divided.status, 83) << divided;
  expect_said(divided,
              "batch 16 = 8 × accumulation 2 × 2 ranks = 32 → batch 16 = 4 × accumulation 4 × 2 ranks = 32");
  const Outcome global =
      run_trainer("--batch arg:--batch --global arg:--global", "--batch 64 --global 512", {}, 2);
  expect_trained(global, "batch 32, accumulation 1: --batch 32 --global 512", 2);
  expect_said(global, "batch 64, global batch 512 → batch 32, global batch 512\n");
  const Outcome alone = run_trainer("--batch arg:--batch", "--batch 64", {}, 2);
  expect_said(alone, "batch 64 → batch 32; effective batch 64 → 32\n");
  const Outcome evaluation =
      run_trainer("--batch 8 --eval-batch arg:--batch --oom-scope eval", "--batch 64 {batch}", {}, 2);
  expect_trained(evaluation, "batch 32, accumulation 1: --batch 32 8", 2);
}

TEST_F(Retry, GivesUpWhenNothingIsLeft) {
  const Outcome outcome =
      run_trainer("--batch arg:--batch --accum arg:--accum", "--batch 4 --accum 1 --cache 64", {}, 2);
  EXPECT_EQ(outcome.status, 83) << outcome;
  expect_said(outcome, "[accel] No executable batch size found, reached zero.\n");
  expect_said(outcome, "[accel]   first: batch 4 × accumulation 1 = 4: rank ");
  expect_said(outcome, "[accel]   last:  batch 1 × accumulation 4 = 4: rank ");
  expect_said(outcome, "[accel]   a smaller batch does not help: ");
  const Outcome bounded = run_trainer("--max-attempts 2 --batch arg:--batch", "--batch 512", {}, 2);
  EXPECT_EQ(bounded.status, 83) << bounded;
  expect_said(bounded, "[accel] Still out of memory after 2 attempts (--max-attempts).\n");
  const Outcome least = run_trainer("--min-batch 64 --batch arg:--batch", "--batch 128", {}, 2);
  EXPECT_EQ(least.status, 83) << least;
  EXPECT_EQ(count(least.report, "accel.OutOfMemoryError"), 2u) << least;
}

TEST_F(Retry, BadInputIsSaidBeforeAnythingRuns) {
  const std::pair<const char*, const char*> cases[] = {
      {"--batch arg:--batch",
       "accelrun: the batch size (arg:--batch) is not in the command; write it there, or say what "
       "it is by default: arg:--batch?N\n"},
      {"--accum arg:--steps", "accelrun: --accum and --global need --batch: where the batch size stands\n"},
      {"--reduce third --batch arg:--steps",
       "accelrun: --reduce third is not valid: expected half, a factor between 0 and 1, pow2:N, bisect or "
       "fit\n"},
      {"--on-oom maybe", "accelrun: --on-oom maybe is not valid: expected retry, requeue or report\n"},
      {"--batch yaml:/none.yaml#a", "accelrun: yaml:/none.yaml#a: /none.yaml cannot be read\n"},
      {"--oom-scope eval",
       "accelrun: --oom-scope eval needs --eval-batch: where the evaluation's batch size stands\n"},
  };
  for (const auto& [options, line] : cases) {
    const Outcome outcome = run_trainer(options, "--steps 1", {}, 1);
    EXPECT_EQ(outcome.status, 64) << outcome;
    EXPECT_EQ(outcome.output, line);
  }
}

TEST_F(Retry, AGuessIsProposedNeverApplied) {
  const Outcome outcome = run_trainer("", "--batch 64", {}, 2);
  EXPECT_EQ(outcome.status, 83) << outcome;
  expect_said(
      outcome,
      "[accel] accelrun can start it again with a smaller batch, if arg:--batch is its batch size: accelrun "
      "--batch arg:--batch [--accum KNOB] ...\n");
}

TEST_F(Retry, RequeueRecordsTheSmallerBatch) {
  const std::string options =
      "--on-oom requeue --state " + scratch_.path() + "/state.json --batch arg:--batch --accum arg:--accum";
  const Outcome first = run_trainer(options, "--batch 128 --accum 1", {}, 2);
  EXPECT_EQ(first.status, 84) << first;
  expect_said(first, "; recorded in ");
  const Outcome second = run_trainer(options, "--batch 128 --accum 1", {}, 2);
  EXPECT_EQ(second.status, 84) << second;
  const Outcome third = run_trainer(options, "--batch 128 --accum 1", {}, 2);
  expect_trained(third, "batch 32, accumulation 4: ", 2);
  expect_said(third, "[accel] batch size: batch 32 × accumulation 4 = 128 (from an earlier run)\n");
  EXPECT_FALSE(std::ifstream(scratch_.path() + "/state.json").good());
}

TEST_F(Retry, RemembersWhatRan) {
  const std::string knobs = "--batch arg:--batch --accum arg:--accum ";
  expect_trained(run_trainer(knobs + "--remember", "--batch 128 --accum 1", {}, 2),
                 "batch 32, accumulation 4: ", 2);
  const Outcome again = run_trainer(knobs + "--reuse", "--batch 128 --accum 1", {}, 2);
  expect_trained(again, "batch 32, accumulation 4: ", 2);
  EXPECT_EQ(count(again.report, "accel.OutOfMemoryError"), 0u) << again;
  const Outcome other =
      run_trainer(knobs + "--reuse --max-attempts 1", "--batch 128 --accum 1 --steps 7", {}, 2);
  EXPECT_EQ(other.status, 83) << "another command: " << other;
}

TEST_F(Retry, ResumeAndAttemptAreTold) {
  const Outcome outcome = run_trainer("--resume \"--steps 2\" --batch arg:--batch", "--batch 64", {}, 2);
  expect_trained(outcome, "batch 32, accumulation 1: --batch 32 --steps 2", 2);
}

TEST_F(Retry, EventsForPrograms) {
  const Outcome outcome =
      run_trainer("--json --batch arg:--batch --accum arg:--accum", "--batch 64 --accum 1", {}, 2);
  for (const char* event :
       {"\"event\":\"attempt\"", "\"event\":\"out_of_memory\"", "\"event\":\"retry\"", "\"event\":\"end\""})
    EXPECT_NE(outcome.output.find(event), std::string::npos) << outcome;
  EXPECT_NE(outcome.output.find("\"accelrun\":1"), std::string::npos) << outcome;
}

TEST_F(Retry, InTheUsersLanguage) {
  const Outcome outcome = run_trainer("--batch arg:--batch --accum arg:--accum",
                                      "--batch 4 --accum 1 --cache 64", {{"ACCEL_LANG", "zh"}}, 2);
  EXPECT_EQ(outcome.status, 83) << outcome;
  expect_said(outcome, "[accel] 找不到可执行的 batch size，已减到零。\n");
}

TEST_F(Retry, CtrlCEndsItBetweenAttemptsToo) {
  // Children that ignore SIGTERM hold it up between the two attempts.
  const std::string command =
      "ACCEL_STANDIN_GPU_MEMORY=48M ACCEL_RUN_DIR=" + scratch_.path() + " " + build_directory() +
      "/accelrun --batch arg:--batch " + launcher(Mpi::Nccl, 2) + " " + build_directory() +
      "/programs/nccl/trainer --batch 64 --child & accelrun=$!; sleep 2; kill -INT $accelrun; wait "
      "$accelrun; echo status $?";
  const Outcome outcome = run_shell(command);
  EXPECT_NE(outcome.output.find("status 130\n"), std::string::npos) << outcome;
  EXPECT_EQ(outcome.output.find("trained with"), std::string::npos) << outcome;
  run_shell("pkill -KILL -f \"[n]ccl/trainer\"");
}

/// On a terminal one line says what it waits for, and is gone when that is over; elsewhere there is none.
TEST_F(Retry, AStatusLineOnATerminal) {
  const std::string command = "ACCEL_STANDIN_GPU_MEMORY=48M ACCEL_RUN_DIR=" + scratch_.path() + " " +
                              build_directory() + "/accelrun --batch arg:--batch --max-attempts 2 " +
                              launcher(Mpi::Nccl, 2) + " " + build_directory() +
                              "/programs/nccl/trainer --batch 64 --child";
  const Outcome terminal = run_shell("script -qefc \"" + command + "\" /dev/null");
  EXPECT_NE(terminal.output.find("\r\033[K[accel] 2 processes of the last attempt are still ending (1 s)"),
            std::string::npos)
      << terminal;
  EXPECT_NE(terminal.output.find("still ending (5 s)\r\033[K[accel] attempt 1 ran out of memory: "),
            std::string::npos)
      << terminal;
  EXPECT_EQ(run_shell(command).output.find("still ending"), std::string::npos);
  run_shell("pkill -KILL -f \"[n]ccl/trainer\"");
}

/// With each MPI's own launcher in front.
TEST_F(Retry, UnderMpirun) {
  const std::string script = write("rank.sh",
                                   "#!/bin/sh\n"
                                   "export RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} WORLD_SIZE=2\n"
                                   "export RENDEZVOUS=" +
                                       scratch_.path() +
                                       "/$ACCEL_ATTEMPT\n"
                                       "mkdir -p $RENDEZVOUS\n"
                                       "exec \"$@\"\n");
  run_shell("chmod +x " + script);
  for (const Mpi mpi : kBoth) {
    SCOPED_TRACE(name_of(mpi));
    run_shell("rm -rf " + scratch_.path() + "/[0-9]*");
    const Outcome outcome =
        run(scratch_, {mpi,
                       Way::Launcher,
                       2,
                       script + " " + build_directory() + "/programs/nccl/trainer --batch 64 --accum 1",
                       {{"ACCEL_STANDIN_GPU_MEMORY", "48M"}},
                       "--batch arg:--batch --accum arg:--accum"});
    expect_trained(outcome, "batch 32, accumulation 2: ", 2);
  }
}

}  // namespace
}  // namespace accel::testing
