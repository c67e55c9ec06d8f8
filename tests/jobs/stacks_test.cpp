// Where processes stand: whatever they do, in whatever language, and without their noticing.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

class Stacks : public ::testing::Test {
 protected:
  /// A program of tests/programs, compiled for Open MPI in a way of its own.
  std::string compile(const std::string& name, const std::string& how, const std::string& then = "") {
    std::string program = scratch_.path() + "/" + name;
    const std::string command =
        "mpicc.openmpi " + how + " -pthread -o " + program + " tests/programs/" + name + ".c";
    const Outcome outcome = run_shell("cd " + source_directory() + " && " + command);
    EXPECT_EQ(outcome.status, 0) << outcome;
    const Outcome after = run_shell("cd " + scratch_.path() + " && true " + then);
    EXPECT_EQ(after.status, 0) << after;
    return program;
  }
  Outcome run_late(const std::string& program, Way way = Way::Launcher) {
    return run(scratch_,
               {Mpi::OpenMpi, way, 2, program, {{"ACCEL_WARN_AFTER", "0"}, {"ACCEL_TIMEOUT", "0.5"}}, {}});
  }
  static void expect(const Outcome& outcome, const std::string& text) {
    EXPECT_NE(outcome.report.find(text), std::string::npos) << "missing: " << text << "\n" << outcome;
  }

  Scratch scratch_;
};

TEST_F(Stacks, HoweverAProcessStandsStill) {
  for (const char* how : {"-O0 -g", "-O3 -g -fomit-frame-pointer", "-O2 -g -flto"}) {
    const std::string program = compile("asleep", how);
    const bool all = std::string(how).starts_with("-O3");
    for (const char* still :
         {"poll", "futex", "spin", "nanosleep", "pause", "select", "epoll", "read", "masked"}) {
      if (!all && still == std::string("nanosleep")) break;  // how the compiler did it matters little there
      SCOPED_TRACE(std::string(how) + " " + still);
      const Outcome outcome = run_late(program + " " + still);
      EXPECT_EQ(outcome.status, 81) << outcome;
      EXPECT_EQ(outcome.output.find("it was noticed"), std::string::npos) << outcome;
      EXPECT_TRUE(std::regex_search(
          outcome.report,
          std::regex(
              "Traceback \\(most recent call last\\):\n  File \"[^\n]*asleep.c\", line [0-9]+, in main\n"
              "  File \"[^\n]*asleep.c\", line [0-9]+, in load_batch\n"
              "  File \"[^\n]*asleep.c\", line [0-9]+, in stand_still\n")))
          << outcome;
    }
  }
}

TEST_F(Stacks, UninterruptibleSleepIsSaidAndNotWaitedFor) {
  const Outcome outcome = run_late(compile("asleep", "-O1 -g") + " vfork");
  expect(outcome,
         "  process 1 is in uninterruptible sleep: the kernel waits for a device or a file system\n");
  EXPECT_LT(outcome.seconds, 7) << "the sleep takes 8 s";
}

TEST_F(Stacks, OfAStackThatIsNearlyExhausted) {
  const Outcome outcome = run_late(compile("asleep", "-O1 -g") + " spin deep");
  EXPECT_EQ(outcome.status, 81) << outcome;
  expect(outcome, ", in recurse\n  [Previous line repeated 5");
  expect(outcome, ", in load_batch\n");
}

TEST_F(Stacks, AStrippedBinarySaysWhereToLook) {
  const Outcome outcome =
      run_late(compile("asleep", "-O1 -g -Wl,--build-id=sha1", "&& strip asleep") + " spin");
  EXPECT_TRUE(std::regex_search(
      outcome.report, std::regex("  in \\?\\? \\(asleep\\+0x[0-9a-f]+, build id [0-9a-f]{40}\\)\n")))
      << outcome;
}

TEST_F(Stacks, CodeMadeAtRunTimeEndsThemAtWorst) {
  const std::string program = compile("made", "-O1 -g");
  const std::string inner = "  in ?? (code made at run time)\n  File \"tests/programs/made.c\", line ";
  for (const char* how : {"", " bare"}) {
    const Outcome outcome = run_late(program + how);
    EXPECT_EQ(outcome.status, 81) << outcome;
    expect(outcome, inner + "10, in stand_still\n");
    expect(outcome, inner + "13, in stand_still\n  in MPI_Barrier\n");
    EXPECT_EQ(outcome.report.find("in main") != std::string::npos, how[0] == '\0') << outcome;
  }
}

TEST_F(Stacks, DebugFilesBesideTheBinary) {
  const Outcome outcome = run_late(compile("asleep", "-O1 -g",
                                           "&& mkdir .debug && objcopy --only-keep-debug asleep "
                                           ".debug/asleep.debug && strip asleep && objcopy "
                                           "--add-gnu-debuglink=.debug/asleep.debug asleep") +
                                   " spin");
  expect(outcome, "asleep.c\", line ");
  expect(outcome, ", in load_batch\n");
}

/// Each kind of fault in each language; C's own are those of faults_test.
TEST_F(Stacks, EachLanguageAtItsLine) {
  const std::pair<const char*, std::string> languages[] = {
      {"cpp", "misstep"},
      {"fortran", "misstep_f"},
      {"python", "/usr/bin/python3 " + source_directory() + "/tests/programs/misstep.py"}};
  const std::pair<const char*, int> kinds[] = {{"count", 80}, {"leaves", 82}, {"late", 81}};
  for (const auto& [language, program] : languages) {
    for (const auto& [kind, status] : kinds) {
      SCOPED_TRACE(std::string(language) + " " + kind);
      const Outcome outcome =
          run(scratch_, {Mpi::OpenMpi,
                         Way::Launcher,
                         3,
                         program + " " + kind,
                         {{"ACCEL_WARN_AFTER", "0"}, {"ACCEL_TIMEOUT", "1"}, {"ACCEL_STACKS", "sites"}},
                         {}});
      EXPECT_EQ(outcome.status, status) << outcome;
      std::string report = normalise(outcome.report);
      report = std::regex_replace(report, std::regex("for [0-9.]+ s;"), "for N s;");
      // What the C library and the Fortran runtime look like inside is theirs.
      report = std::regex_replace(
          report, std::regex("  (File \"[^\n]*sysdeps[^\n]*|in [^\n]*lib(c|gfortran)\\.so[^\n]*)\n"), "");
      report =
          std::regex_replace(report, std::regex("  File \"(unix|sleep|usleep|env|intrinsics)[^\n]*\n"), "");
      EXPECT_EQ(report, golden(std::string(language) + "-" + kind, report)) << outcome;
    }
  }
}

TEST_F(Stacks, ALibraryThatCallsBackStandsBetweenPythonsFrames) {
  const Outcome outcome =
      run(scratch_, {Mpi::OpenMpi,
                     Way::Launcher,
                     2,
                     "/usr/bin/python3 " + source_directory() + "/tests/programs/callback.py",
                     {{"ACCEL_WARN_AFTER", "0"}, {"ACCEL_TIMEOUT", "1"}},
                     {}});
  EXPECT_EQ(outcome.status, 81) << outcome;
  const std::string stack =
      "callback.py\", line 22, in sort\n    ctypes[^\n]*\n(  [^\n]*qsort[^\n]*\n|  [^\n]*msort[^\n]*\n)+"
      "  File \"[^\n]*callback.py\", line 11, in compare\n    stand_still\\(\\)\n"
      "  File \"[^\n]*callback.py\", line ";
  EXPECT_TRUE(std::regex_search(outcome.report, std::regex(stack + "17, in stand_still\n"))) << outcome;
  EXPECT_TRUE(std::regex_search(outcome.report, std::regex(stack + "18, in stand_still\n"))) << outcome;
}

TEST_F(Stacks, ManyDifferentOnesAreATree) {
  const Outcome outcome = run(scratch_, {Mpi::OpenMpi,
                                         Way::Launcher,
                                         7,
                                         "misstep scattered",
                                         {{"ACCEL_WARN_AFTER", "0"}, {"ACCEL_TIMEOUT", "1"}},
                                         {}});
  EXPECT_EQ(outcome.status, 81) << outcome;
  expect(outcome, "\nStacks of processes 0, 2-6 as a tree:\n[0, 2-6] main (misstep.cpp:");
  expect(outcome, " → training::reduce_gradients<double> (misstep.cpp:");
  EXPECT_EQ(outcome.report.find("Traceback of"), std::string::npos) << outcome;
}

TEST_F(Stacks, OfALiveJobOnRequest) {
  const std::string accelrun = build_directory() + "/accelrun";
  const std::string program = compile("asleep", "-O1 -g") + " poll";
  for (const Way way : {Way::Launcher, Way::Bare}) {
    SCOPED_TRACE(name_of(way));
    const std::string front =
        way == Way::Launcher
            ? accelrun + " " + launcher(Mpi::OpenMpi, 4)
            : launcher(Mpi::OpenMpi, 4) + " -x LD_PRELOAD=" + build_directory() + "/libaccel.so";
    const std::string command = fmt::format(
        "cd {0} && ACCEL_RUN_DIR={0} {1} {2} & job=$!; "
        "until {3} stacks $job 2>/dev/null | grep -q Barrier; do sleep 0.1; done; sleep 0.3; "
        "{3} stacks $job; {3} stacks --json $(pgrep -n asleep) > {0}/json; "
        "kill -0 $job && echo alive; kill -TERM $job; wait $job",
        scratch_.path(), front, program, accelrun);
    const Outcome outcome = run_shell(command);
    EXPECT_TRUE(std::regex_search(outcome.output,
                                  std::regex("\\[0-3\\]\n├─\\[1\\] main \\(asleep.c:[0-9]+\\) → load_batch "
                                             "\\(asleep.c:[0-9]+\\) → stand_still "
                                             "\\(asleep.c:[0-9]+\\) → [^\n]*poll[^\n]*\n└─\\[0, 2, 3\\] main "
                                             "\\(asleep.c:[0-9]+\\) → MPI_Barrier\nalive\n")))
        << outcome;
    const auto json = nlohmann::json::parse(std::ifstream(scratch_.path() + "/json"), nullptr, false);
    ASSERT_TRUE(json.is_object());
    ASSERT_EQ(json["processes"].size(), 4u);
    EXPECT_EQ(json["processes"][2]["threads"][0]["call"], "MPI_Barrier");
  }
  EXPECT_NE(run_shell(accelrun + " stacks 1").output.find("accelrun: process 1 has no record: "),
            std::string::npos);
  EXPECT_EQ(run_shell(accelrun + " stacks no-such-run").status, 64);
}

TEST_F(Stacks, OfAJobThatIsOver) {
  run(scratch_, {Mpi::OpenMpi, Way::Launcher, 3, "misstep late", {{"ACCEL_TIMEOUT", "0.5"}}, "--keep"});
  const Outcome outcome =
      run_shell(build_directory() + "/accelrun stacks " + scratch_.path() + "/accel-$(id -u)/accelrun.*");
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.output.find("├─[1] "), std::string::npos) << outcome;
  EXPECT_NE(outcome.output.find("training::Trainer::save_checkpoint (misstep.cpp:"), std::string::npos)
      << outcome;
  EXPECT_NE(outcome.output.find("└─[0, 2] "), std::string::npos) << outcome;
}

/// A thread of its own name, a coroutine's task, and a C function that calls back.
TEST_F(Stacks, PythonThreadsAndTasks) {
  const std::string script = scratch_.path() + "/threads.py";
  std::ofstream(script) << R"(import asyncio, threading
import mpi4py
mpi4py.rc.thread_level = "multiple"
from mpi4py import MPI
world = MPI.COMM_WORLD

def wait_in_thread():
    MPI.COMM_WORLD.Barrier()

async def load_batch():
    while True:
        sum(range(1000))

async def main():
    await asyncio.create_task(load_batch(), name="prefetch")

if world.rank == 1:
    asyncio.run(main())
thread = threading.Thread(target=wait_in_thread, name="gradients")
thread.start()
thread.join()
)";
  const std::string accelrun = build_directory() + "/accelrun";
  const Outcome outcome =
      run_shell("cd " + scratch_.path() + " && ACCEL_RUN_DIR=" + scratch_.path() + " " + accelrun + " " +
                launcher(Mpi::OpenMpi, 2) + " /usr/bin/python3 " + script + " & job=$!; until " + accelrun +
                " stacks $job 2>/dev/null | grep -q gradients; do sleep 0.2; "
                "done; " +
                accelrun + " stacks $job; " + accelrun + " stacks --json $job; kill -TERM $job; wait $job");
  EXPECT_NE(outcome.output.find("MainThread, task prefetch"), std::string::npos) << outcome;
  EXPECT_NE(outcome.output.find("load_batch (threads.py:1"), std::string::npos) << outcome;
  EXPECT_NE(outcome.output.find("[0] thread gradients → "), std::string::npos) << outcome;
  EXPECT_NE(outcome.output.find("wait_in_thread (threads.py:8) → MPI_Barrier\n"), std::string::npos)
      << outcome;
}

}  // namespace
}  // namespace accel::testing
