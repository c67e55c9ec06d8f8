// accelrun doctor as its user meets it.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

class Doctor : public ::testing::Test {
 protected:
  Outcome examine(const std::string& words, const std::string& variables = "") {
    return run_shell(variables + " " + build_directory() + "/accelrun doctor " + words);
  }
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = scratch_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  static void expect_line(const Outcome& outcome, const std::string& line) {
    EXPECT_NE(outcome.output.find(line), std::string::npos) << "missing: " << line << "\n" << outcome;
  }

  Scratch scratch_;
};

TEST_F(Doctor, ThisMachine) {
  const Outcome outcome = examine("");
  EXPECT_EQ(outcome.status, 0) << outcome;
  expect_line(outcome, "ok       kernel: ");
  expect_line(outcome, "shared memory: two processes wake each other through it in ");
  expect_line(outcome, "limits: open files ");
  expect_line(outcome, " 0 errors\n");
  const auto json = nlohmann::json::parse(examine("--json").output, nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["findings"][0]["subject"], "kernel");
}

TEST_F(Doctor, GpusThatDiffer) {
  const std::string standin = "LD_LIBRARY_PATH=" + build_directory() + "/standin ";
  expect_line(examine("", standin + "ACCEL_STANDIN_NVML_GPUS=A100:85899345920:1410,A100:85899345920:1410"),
              "ok       GPUs: 2 × A100 (80.00 GiB); driver 560.35.03\n");
  const Outcome mixed =
      examine("", standin + "ACCEL_STANDIN_NVML_GPUS=A100:85899345920:1410,A30:25769803776:1440");
  EXPECT_EQ(mixed.status, 0) << "a warning is no error";
  expect_line(
      mixed,
      "warning  GPUs: 1 × A100 (80.00 GiB), 1 × A30 (24.00 GiB): they differ. The smallest (A30, 24.00 GiB) "
      "limits the batch, the slowest (by its clock, 1410 MHz: A100) the pace\n");
  const std::string consumer =
      standin + "ACCEL_STANDIN_NVML_GPUS=\"RTX 4090:25769803776:2520,RTX 4090:25769803776:2520\" ";
  expect_line(examine("", consumer + "ACCEL_STANDIN_NVML_DRIVER=535.104.05"),
              "NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1, or driver 550\n");
  EXPECT_EQ(examine("", consumer).output.find("NCCL_P2P_DISABLE"), std::string::npos);
}

/// An `ssh` that answers as hosts in each kind of trouble do.
TEST_F(Doctor, OtherHosts) {
  const std::string directory = scratch_.path();
  write("ssh", R"(#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
case $1 in
  127.0.0.2) echo kernel=$(uname -r); echo clock=$(date +%s.%N)
             echo driver=550.54; echo CUDA=12.4.127; echo NCCL=2.21.5 ;;
  127.0.0.3) echo "Permission denied (publickey,password)."; exit 255 ;;
  127.0.0.4) echo "Host key verification failed."; exit 255 ;;
  127.0.0.5) echo kernel=$(uname -r); echo clock=$(($(date +%s) + 90)).0; echo driver=535.54; echo CUDA=; echo NCCL=2.18.3 ;;
  127.0.0.6) sleep 30 ;;
esac
)");
  run_shell("chmod +x " + directory + "/ssh");
  const std::string hosts = write(
      "hosts", "127.0.0.2 slots=2\n127.0.0.3\n127.0.0.4:2\n127.0.0.5\n127.0.0.6\nno.such.host.invalid\n");
  const Outcome outcome = examine("--hostfile " + hosts, "PATH=" + directory + ":$PATH");
  EXPECT_EQ(outcome.status, 69) << outcome;
  EXPECT_LT(outcome.seconds, 15) << "all at once";
  expect_line(
      outcome,
      "ok       host 127.0.0.2: ssh without a password; CUDA 12.4.127, NCCL 2.21.5, driver 550.54, kernel ");
  expect_line(outcome,
              "error    host 127.0.0.3: ssh wants a password\n           → ssh-copy-id 127.0.0.3; mpirun "
              "cannot type one\n");
  expect_line(
      outcome,
      "error    host 127.0.0.4: ssh: its host key is not known\n           → ssh-keyscan 127.0.0.4 >> ");
  expect_line(outcome, "warning  host 127.0.0.5: driver 535.54 here, 550.54 on 127.0.0.2\n");
  expect_line(outcome, "warning  host 127.0.0.5: NCCL 2.18.3 here, 2.21.5 on 127.0.0.2\n");
  EXPECT_EQ(outcome.output.find("CUDA none"), std::string::npos) << "it may come with the program";
  expect_line(outcome, "warning  host 127.0.0.5: its clock is +");
  expect_line(outcome, "error    host 127.0.0.6: ssh gets no answer\n");
  expect_line(outcome, "error    host no.such.host.invalid: its name is not known here\n");
  expect_line(examine("--hostfile /no/hosts"), "error    hosts: /no/hosts cannot be read\n");
}

TEST_F(Doctor, MpirunReachesEveryHostOfTheFile) {
  const Outcome outcome = examine("--hostfile " + write("hosts", "localhost slots=2\n"));
  EXPECT_EQ(outcome.status, 0) << outcome;
  expect_line(outcome, "ok       host localhost: is this machine; ");
  expect_line(outcome, " hostname: all 1 hosts answer\n");
}

TEST_F(Doctor, Programs) {
  const std::string programs = build_directory() + "/programs/";
  expect_line(examine("mpirun.openmpi -n 2 " + programs + "openmpi/faults count"), "ok       MPI: linked: ");
  expect_line(examine(programs + "nccl/faults count"), "ok       NCCL: linked: ");
  expect_line(examine(programs + "nccl/faults count"), "ok       CUDA: the driver through a runtime inside ");
  expect_line(examine(programs + "cuda/memory_shared"), "ok       CUDA: the driver through the runtime: ");
  expect_line(examine(programs + "nccl/faults_static"), "ok       NCCL: inside ");
  expect_line(examine(source_directory() + "/tests/programs/spawn.py"),
              "spawn.py is a script for /usr/bin/python3; ");

  const std::string source = write("main.c", "int lost(void);\nint main(void) { return 0; }\n");
  const std::string copy = scratch_.path() + "/copy";
  run_shell("gcc -static -o " + copy + ".static " + source);
  const Outcome fixed = examine(copy + ".static");
  EXPECT_EQ(fixed.status, 69) << fixed;
  expect_line(fixed, ".static is linked statically: nothing can be preloaded\n");
  run_shell("gcc -o " + copy + ".setuid " + source + " && chmod u+s " + copy + ".setuid");
  expect_line(examine(copy + ".setuid"), ".setuid is setuid: the loader ignores LD_PRELOAD\n");
  const std::string library = write("lost.c", "int lost(void) { return 0; }\n");
  run_shell("gcc -shared -o " + scratch_.path() + "/liblost.so " + library +
            " && gcc -Wl,--no-as-needed -o " + copy + ".lost " + source + " -L" + scratch_.path() +
            " -llost && rm " + scratch_.path() + "/liblost.so");
  expect_line(examine(copy + ".lost"), "error    program: liblost.so (needed by ");
  expect_line(examine("/no/such/program"),
              "error    program: no word of the command is a program: /no/such/program\n");
}

}  // namespace
}  // namespace accel::testing
