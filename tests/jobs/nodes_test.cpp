// Jobs on several hosts, which are namespaces of this machine (tests/nodes.sh): started by accelrun on the
// first of them with a real mpirun, the reports are the same as on one host.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class SeveralHosts : public ::testing::TestWithParam<Mpi> {
 protected:
  void SetUp() override {
    const Outcome outcome = run_shell(hosts(2) + "on node2 hostname");
    if (outcome.output != "node2\n")
      GTEST_SKIP() << "network namespaces are not permitted here: " << outcome.output;
  }

  static std::string hosts(int count) {
    return source_directory() + "/tests/nodes.sh " + std::to_string(count) + " ";
  }
  /// The launcher's words for so many ranks on each of so many hosts, from node`first` on.
  static std::string launcher_over(int count, int ranks, int first = 1) {
    std::string list;
    for (int i = first; i < first + count; ++i)
      list += (list.empty() ? "node" : ",node") + std::to_string(i) + ":" + std::to_string(ranks);
    const std::string total = std::to_string(count * ranks);
    if (GetParam() == Mpi::OpenMpi) {
      return "mpirun.openmpi --mca plm_rsh_agent \\$NODES_AGENT --mca btl_tcp_if_include eth0 "
             "--mca oob_tcp_if_include eth0 -H " +
             list + " -n " + total + " ";
    }
    return "mpiexec.mpich -launcher ssh -launcher-exec \\$NODES_AGENT -iface eth0 -hosts " + list + " -n " +
           total + " ";
  }
  /// Under accelrun on node1. `meanwhile`: a command on node1 that goes on beside.
  Outcome run_over(int count, const std::string& job, const std::string& variables = "",
                   const std::string& meanwhile = "") {
    const std::string log = scratch_.path() + "/hosts." + std::to_string(++number_);
    std::string command =
        "ACCEL_LOG_FILE=" + log + " " + variables + " " + build_directory() + "/accelrun " + job;
    if (!meanwhile.empty()) command = "(" + meanwhile + ") & " + command;
    command += "; status=\\$?; for i in \\$(seq " + std::to_string(count) +
               "); do on node\\$i ls /dev/shm; done; exit \\$status";
    Outcome outcome = run_shell(hosts(count) + "sh -c \"" + command + "\"");
    outcome.report = text_of(log);
    return outcome;
  }
  static std::string faults(const std::string& name) { return program(GetParam(), "faults") + " " + name; }

  Scratch scratch_;
  int number_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Both, SeveralHosts, ::testing::Values(Mpi::OpenMpi, Mpi::Mpich),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(SeveralHosts, AHealthyJobGoesOnAsWithoutUsAndLeavesNothing) {
  const Outcome outcome = run_over(2, launcher_over(2, 2) + faults(""));
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_EQ(outcome.report, "") << outcome;
  EXPECT_EQ(outcome.output.find("accel-"), std::string::npos) << outcome;
}

TEST_P(SeveralHosts, MismatchesAreReportedAsOnOneHost) {
  for (const char* fault :
       {"count", "root", "kind", "order", "split-vs-barrier", "half-count", "alltoallv"}) {
    SCOPED_TRACE(fault);
    const Outcome outcome = run_over(2, launcher_over(2, 2) + faults(fault));
    EXPECT_EQ(outcome.status, 80) << outcome;
    EXPECT_EQ(normalise(outcome.report), text_of(source_directory() + "/tests/golden/" + fault + ".txt"))
        << outcome;
    EXPECT_EQ(outcome.output.find("accel-"), std::string::npos) << outcome;
  }
}

TEST_P(SeveralHosts, WhoHasLeftOrStandsStillIsNamedAsOnOneHost) {
  for (const auto& [fault, status] :
       {std::pair("segv", 85), std::pair("_exit3", 82), std::pair("late", 81)}) {
    SCOPED_TRACE(fault);
    const Outcome outcome = run_over(4, launcher_over(4, 1) + faults(fault), "ACCEL_TIMEOUT=2");
    const Outcome alone =
        run(scratch_,
            {GetParam(), Way::Launcher, 4, std::string("faults ") + fault, {{"ACCEL_TIMEOUT", "2"}}, {}});
    EXPECT_EQ(outcome.status, status) << outcome;
    EXPECT_NE(outcome.report.find("[accel] rank 1 of 4 on node2 (pid "), std::string::npos) << outcome;
    EXPECT_EQ(normalise(outcome.report), normalise(alone.report)) << outcome;
  }
}

TEST_P(SeveralHosts, ACircleAcrossHostsIsADeadlock) {
  const Outcome outcome = run_over(4, launcher_over(4, 1) + faults("cycle"));
  EXPECT_EQ(outcome.status, 81) << outcome;
  for (const char* line : {"accel.DeadlockError: processes 0, 1 wait for each other in a circle.\n",
                           "\n  process 0 waits in MPI_Barrier (#3 on communicator KEY) for process 1\n",
                           "\n  process 1 waits in MPI_Barrier (#1 on communicator KEY) for process 0\n"})
    EXPECT_NE(normalise(outcome.report).find(line), std::string::npos) << outcome;
}

TEST_P(SeveralHosts, AKilledRankThatWasAloneOnItsHostIsNamed) {
  const Outcome outcome =
      run_over(3, launcher_over(3, 1) + program(GetParam(), "steps") + " 5000 slow=0:1000 kill=1:500");
  EXPECT_EQ(outcome.status, 82) << outcome;
  EXPECT_NE(outcome.report.find("accel.EarlyExitError: process 1 was killed by signal 9 (SIGKILL) while "),
            std::string::npos)
      << outcome;
  EXPECT_NE(outcome.report.find("signal 9 is inferred"), std::string::npos) << outcome;
}

/// What has nothing to do with the MPI.
class Network : public SeveralHosts {};
INSTANTIATE_TEST_SUITE_P(One, Network, ::testing::Values(Mpi::Mpich));

TEST_P(Network, ALinkThatIsCutForAWhileIsNoFault) {
  const Outcome outcome = run_over(2, launcher_over(2, 2) + program(GetParam(), "steps") + " 600 slow=0:3000",
                                   "", "sleep 1; cut node2; sleep 7; heal node2");
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_EQ(outcome.report,
            "[accel] WARNING: nothing has been heard of node2 for 5 s: its ranks are not judged until it is "
            "back\n")
      << outcome;
  EXPECT_GT(outcome.seconds, 8);
}

TEST_P(Network, AStrangerAtTheDoorIsRefusedAndDisturbsNothing) {
  const std::string script = scratch_.path() + "/knock.sh";
  std::ofstream(script) << R"(sleep 1
for port in $(ss -Hltn | sed -n 's/.*10\.77\.0\.1:\([0-9]*\).*/\1/p'); do
  for i in 1 2 3; do
    timeout 1 bash -c "echo GET / HTTP/1.0 >/dev/tcp/10.77.0.1/$port" 2>/dev/null
  done
done
)";
  const Outcome outcome = run_over(2, launcher_over(2, 1) + program(GetParam(), "steps") + " 600 slow=0:3000",
                                   "", "sh " + script);
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_TRUE(outcome.report.starts_with("[accel] WARNING: a connection from 10.77.0.1:")) << outcome;
  EXPECT_TRUE(
      outcome.report.ends_with(" was refused: it is no libaccel; others are refused without a word\n"))
      << outcome;
  EXPECT_EQ(std::count(outcome.report.begin(), outcome.report.end(), '\n'), 1) << outcome;
}

/// NCCL without accelrun, on stand-ins for GPUs, as torchrun starts it on each host: the ncclUniqueId tells
/// the hosts' leaders where to meet.
class NcclHosts : public SeveralHosts {
 protected:
  /// Two ranks on each of two hosts. `before`: what starts them, on each.
  Outcome run_nccl(const std::string& what, const std::string& before, const std::string& variables = "") {
    const std::string name = std::to_string(++number_);
    const std::string script = scratch_.path() + "/start." + name;
    const std::string log = scratch_.path() + "/hosts." + name;
    const std::string meeting = scratch_.path() + "/meeting." + name;
    std::ofstream(script) << "export NCCL_SOCKET_IFNAME=eth0 TORCHELASTIC_RUN_ID=job MASTER_ADDR=node1 "
                             "MASTER_PORT=29500 RENDEZVOUS=" +
                                 meeting + " ACCEL_LOG_FILE=" + log + " " + variables +
                                 "\nexport SPAWN_HOST=$1/2\n" + before + " " + source_directory() +
                                 "/tests/programs/spawn.py 2 " + what + "\n";
    Outcome outcome =
        run_shell("mkdir " + meeting + "; " + hosts(2) + "sh -c \"on node2 sh " + script + " 1 & sh " +
                  script + " 0; first=\\$?; wait \\$!; echo status \\$?; exit \\$first\"");
    outcome.report = text_of(log);
    return outcome;
  }
  static std::string nccl(const std::string& words) { return program(Mpi::Nccl, words); }
};
INSTANTIATE_TEST_SUITE_P(One, NcclHosts, ::testing::Values(Mpi::Nccl));

TEST_P(NcclHosts, MeetByTheUniqueIdAndReportAsOneHost) {
  const std::string bare = "LD_PRELOAD=" + library();
  const Outcome healthy = run_nccl(nccl("ring"), bare);
  EXPECT_EQ(healthy.status, 0) << healthy;
  EXPECT_EQ(healthy.report, "") << healthy;
  EXPECT_NE(healthy.output.find("status 0\n"), std::string::npos) << healthy;
  for (const auto& [fault, status] :
       {std::pair("count", 80), std::pair("kind", 80), std::pair("exit0", 82)}) {
    SCOPED_TRACE(fault);
    const Outcome alone = run(scratch_, {Mpi::Nccl,
                                         Way::Bare,
                                         4,
                                         std::string("faults ") + fault,
                                         {{"ACCEL_STANDIN_NCCL_MISMATCH", "hang"}},
                                         {}});
    for (const std::string& way : {bare, build_directory() + "/accelrun"}) {
      const Outcome outcome = run_nccl(nccl("faults ") + fault, way, "ACCEL_STANDIN_NCCL_MISMATCH=hang");
      EXPECT_EQ(outcome.status, status) << outcome;
      EXPECT_NE(outcome.output.find("status " + std::to_string(status) + "\n"), std::string::npos) << outcome;
      EXPECT_EQ(outcome.report.find("[accel] ", 1), std::string::npos) << "more than one report: " << outcome;
      if (status == 80) {
        EXPECT_EQ(normalise(outcome.report), normalise(alone.report)) << outcome;
      } else {  // who has come to the call by then differs
        EXPECT_NE(outcome.report.find("process 1 has exited with status 0 while process"), std::string::npos)
            << outcome;
      }
    }
  }
}

TEST_P(NcclHosts, TheRealNcclLeavesOurPartOfTheUniqueIdAlone) {
  std::string library_path;
  for (const char* place : {"/usr/local/cuda/lib", "/usr/local/cuda/lib64", "/usr/local/cuda-13.0/lib",
                            "/usr/lib/x86_64-linux-gnu"}) {
    const std::string path = std::string(place) + "/libnccl.so.2";
    if (access(path.c_str(), R_OK) == 0) library_path = path;
  }
  if (library_path.empty()) GTEST_SKIP() << "no libnccl.so.2 of a toolkit here";
  const std::string command =
      "python3 " + source_directory() + "/tests/programs/unique_id.py " + library_path;
  const std::string preload = "LD_PRELOAD=" + library() + " ";
  const auto tail = [](const Outcome& outcome) { return outcome.output.substr(2 + 128, 128); };
  const auto run_on = [](const std::string& what) { return run_shell(hosts(1) + "env " + what); };
  const Outcome plain = run_on(command);
  ASSERT_EQ(plain.output.substr(0, 2), "0 ") << plain;
  const Outcome with_us = run_on(preload + command);
  EXPECT_EQ(with_us.output.substr(0, 2), "0 ") << with_us;
  EXPECT_EQ(with_us.output.substr(2 + 2 * 36, 128 - 72), plain.output.substr(2 + 2 * 36, 128 - 72))
      << "what lies behind NCCL's own part and before ours";
  EXPECT_TRUE(tail(with_us).starts_with("4143434c")) << "ACCL" << with_us;
  const Outcome everybodys = run_on("NCCL_COMM_ID=10.77.0.1:5555 " + preload + command);
  EXPECT_EQ(tail(everybodys), tail(plain)) << everybodys;
  const Outcome alone = run_on("LOCAL_WORLD_SIZE=2 WORLD_SIZE=2 " + preload + command);
  EXPECT_EQ(tail(alone), tail(plain)) << alone;
}

}  // namespace
}  // namespace accel::testing
