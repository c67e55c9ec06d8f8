// Jobs on several hosts, which are namespaces of this machine (tests/nodes.sh): started by accelrun on the
// first of them with a real mpirun, the reports are the same as on one host.
#include <unistd.h>

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
    const std::string log = scratch_.path() + "/log." + std::to_string(++number_);
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

}  // namespace
}  // namespace accel::testing
