// However MPI comes into a process, a mismatch in it is seen.
#include <fstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

class Routes : public ::testing::TestWithParam<Mpi> {
 protected:
  Outcome run_job(const std::string& command, std::map<std::string, std::string> variables = {}) {
    job_ = {GetParam(), Way::Launcher, 3, command, std::move(variables), {}};
    return run(scratch_, job_);
  }
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = scratch_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  Scratch scratch_;
  Job job_;
};

INSTANTIATE_TEST_SUITE_P(Both, Routes, ::testing::Values(Mpi::OpenMpi, Mpi::Mpich),
                         [](const auto& info) { return name_of(info.param); });

void expect_count_mismatch(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 80) << outcome;
  EXPECT_NE(outcome.report.find("Differs in: count"), std::string::npos) << outcome;
  EXPECT_NE(outcome.report.find("  - Process 1: float64[2], sum     <- differs"), std::string::npos)
      << outcome;
}

TEST_P(Routes, ThroughAPluginThatTheProgramLoads) {
  const std::string plugin = program(GetParam(), "plugin.so");
  expect_count_mismatch(run_job("loader plugin " + plugin + " 2"));
  EXPECT_EQ(run_job("loader plugin " + plugin + " 4").status, 0);
}

TEST_P(Routes, ThroughAPluginThatLooksAtItsOwnDependenciesFirst) {
  const std::string plugin = program(GetParam(), "plugin.so");
  for (const char* route : {"deepbind ", "plugin "}) {
    job_ = {GetParam(), Way::Launcher, 3, "loader " + (route + plugin) + " 2", {}, "--audit"};
    expect_count_mismatch(run(scratch_, job_));
    job_.program = "loader " + (route + plugin) + " 4";
    EXPECT_EQ(run(scratch_, job_).status, 0);
  }
}

TEST_P(Routes, WhatIsNotSeenIsSaid) {
  const std::string plugin = program(GetParam(), "plugin.so");
  const Outcome outcome = run_job("loader deepbind " + plugin + " 4", {{"ACCEL_LOG_LEVEL", "INFO"}});
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_NE(outcome.report.find(" is loaded, but no call to it was seen: "), std::string::npos) << outcome;
  const Outcome seen = run_job("loader plugin " + plugin + " 4", {{"ACCEL_LOG_LEVEL", "INFO"}});
  EXPECT_EQ(seen.report.find("no call to it was seen"), std::string::npos) << seen;
}

TEST_P(Routes, ByDlsymOnALibraryHandle) {
  const std::string mpi = GetParam() == Mpi::OpenMpi ? "libmpi.so.40" : "libmpich.so.12";
  expect_count_mismatch(run_job("loader dlsym " + mpi + " 2"));
  EXPECT_EQ(run_job("loader dlsym " + mpi + " 4").status, 0);
}

TEST_P(Routes, FromFortran) {
  const Outcome outcome = run_job("fortran");
  EXPECT_EQ(outcome.status, 80) << outcome;
  EXPECT_NE(outcome.report.find("Operation: MPI_Allreduce (#2 on"), std::string::npos) << "each call once\n"
                                                                                       << outcome;
  EXPECT_NE(outcome.report.find("  - Process 1: float64[512], sum"), std::string::npos) << outcome;
  EXPECT_NE(outcome.report.find("fortran.f90\", line "), std::string::npos) << outcome;
  EXPECT_EQ(run_job("fortran same").status, 0);
}

/// Debian's mpi4py is built for Open MPI.
TEST(Python, SyncModeRaisesAtTheLine) {
  Scratch scratch;
  const std::string script = scratch.path() + "/train.py";
  std::ofstream(script) << R"(
import sys
from mpi4py import MPI
import array
world = MPI.COMM_WORLD
send = array.array("d", [1.0] * 8)
recv = array.array("d", [0.0] * 8)
world.Barrier()
count = 2 if world.rank == 1 else 4
try:
    world.Allreduce([send, count, MPI.DOUBLE], [recv, count, MPI.DOUBLE], op=MPI.SUM)
except MPI.Exception as error:
    text = error.Get_error_string()
    same = error.Get_error_class() == MPI.ERR_COUNT and "collective mismatch" in text
    sys.stdout.write("rank %d caught it: %s\n" % (world.rank, same))
    sys.stdout.flush()
)";
  const Job job{Mpi::OpenMpi, Way::Launcher, 3, "/usr/bin/python3 " + script, {{"ACCEL_CHECK", "sync"}}, {}};
  const Outcome outcome = run(scratch, job);
  EXPECT_EQ(outcome.status, 80) << "the verdict stands, though the program went on\n" << outcome;
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_NE(outcome.output.find(std::string("rank ") + rank + " caught it: True\n"), std::string::npos)
        << outcome;
  }
  EXPECT_NE(outcome.report.find("Differs in: count"), std::string::npos) << outcome;
}

/// The thread that communicates has released the interpreter; its frames and source lines stand in the
/// report.
TEST(Python, FramesAreThoseOfThePythonProgram) {
  Scratch scratch;
  const std::string script = scratch.path() + "/train.py";
  std::ofstream(script) << R"(import sys, time
from mpi4py import MPI
import array
world = MPI.COMM_WORLD

def load_batch():
    while True:
        sum(range(1000))

def reduce_gradients(count):
    send = array.array("d", [1.0] * 8)
    recv = array.array("d", [0.0] * 8)
    world.Allreduce([send, count, MPI.DOUBLE], [recv, count, MPI.DOUBLE], op=MPI.SUM)

def train_step():
    if sys.argv[1] == "late" and world.rank == 1:
        load_batch()
    reduce_gradients(2 if sys.argv[1] == "count" and world.rank == 1 else 4)

train_step()
world.Barrier()
)";
  const auto expect_line = [](const Outcome& outcome, const std::string& line) {
    EXPECT_NE(outcome.report.find(line), std::string::npos) << "missing: " << line << "\n" << outcome;
  };
  const std::string program = "/usr/bin/python3 " + script;
  const Outcome late = run(scratch, {Mpi::OpenMpi,
                                     Way::Launcher,
                                     3,
                                     program + " late",
                                     {{"ACCEL_WARN_AFTER", "0.5"}, {"ACCEL_TIMEOUT", "1"}},
                                     {}});
  EXPECT_EQ(late.status, 81) << late;
  expect_line(late, "/train.py\", line 17, in train_step\n    load_batch()\n");
  expect_line(late, ", in load_batch\n");
  expect_line(late,
              "/train.py\", line 13, in reduce_gradients\n    world.Allreduce([send, count, MPI.DOUBLE], "
              "[recv, count, MPI.DOUBLE], op=MPI.SUM)\n  in MPI_Allreduce\n");
  expect_line(
      late, "What to do: If it is only slow (a checkpoint, a data set, a compilation), raise ACCEL_TIMEOUT;");
  EXPECT_EQ(late.report.find("_PyEval"), std::string::npos) << late;
}

/// A call that keeps the GIL keeps us out: the report says so, and shows what there is.
TEST(Python, AnInterpreterThatDoesNotAnswerIsSaid) {
  Scratch scratch;
  const std::string script = scratch.path() + "/train.py";
  std::ofstream(script) << R"(import ctypes
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    ctypes.PyDLL(None).sleep(60)
MPI.COMM_WORLD.Barrier()
)";
  const Outcome outcome = run(scratch, {Mpi::OpenMpi,
                                        Way::Launcher,
                                        2,
                                        "/usr/bin/python3 " + script,
                                        {{"ACCEL_WARN_AFTER", "0"}, {"ACCEL_TIMEOUT", "0.5"}},
                                        {}});
  EXPECT_EQ(outcome.status, 81) << outcome;
  EXPECT_NE(outcome.report.find(
                "  the interpreter of process 1 did not let go of the GIL in time: native frames only\n"),
            std::string::npos)
      << outcome;
  EXPECT_NE(outcome.report.find("Traceback of process 0 (most recent call last):\n  File \"" + script +
                                "\", line 5, in <module>\n    MPI.COMM_WORLD.Barrier()\n"),
            std::string::npos)
      << outcome;
}

}  // namespace
}  // namespace accel::testing
