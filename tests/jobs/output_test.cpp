// What the ranks write: untouched, or tagged, or in files; and configuration that stands in for the command
// line.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

class Output : public ::testing::Test {
 protected:
  Outcome run_script(const std::string& options, const std::string& body, int ranks = 2,
                     std::map<std::string, std::string> variables = {}) {
    const std::string path = scratch_.path() + "/program.sh";
    std::ofstream(path) << "#!/bin/bash\n" << body;
    return run(scratch_,
               {Mpi::Nccl, Way::Launcher, ranks, "/bin/bash " + path, std::move(variables), options});
  }
  static std::vector<std::string> sorted(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  }
  std::string file(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(scratch_.path() + "/" + name).rdbuf();
    return text.str();
  }

  Scratch scratch_;
};

TEST_F(Output, TagsWholeLines) {
  const Outcome outcome = run_script("--tag-output", R"(
echo out $RANK
echo err $RANK >&2
printf 'no end %s' $RANK
)");
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_EQ(sorted(outcome.output),
            (std::vector<std::string>{"[rank 0] err 0", "[rank 0] no end 0", "[rank 0] out 0",
                                      "[rank 1] err 1", "[rank 1] no end 1", "[rank 1] out 1"}))
      << outcome;
}

TEST_F(Output, OfAProgressBarTheLastIsShown) {
  const Outcome outcome = run_script("--tag-output", R"(printf '10%%\r50%%\r100%%\r\nkept\r\n')", 1);
  EXPECT_EQ(sorted(outcome.output), (std::vector<std::string>{"[rank 0] 100%\r", "[rank 0] kept\r"}))
      << outcome;
}

TEST_F(Output, AnUnfinishedLineIsShownInTime) {
  const Outcome outcome = run_script("--tag-output", "printf 'name? '; sleep 0.6; echo done", 1);
  EXPECT_EQ(outcome.output, "[rank 0] name? \n[rank 0] done\n") << outcome;
}

TEST_F(Output, FilesOfTheRanks) {
  const Outcome outcome = run_script("--output-dir " + scratch_.path() + "/files", R"(
echo out $RANK
echo err $RANK >&2
# What a program redirects itself stays where it wants it.
captured=$(echo child)
[ "$captured" = child ] || exit 9
)");
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(file("files/rank-0.stdout"), "out 0\n");
  EXPECT_EQ(file("files/rank-1.stderr"), "err 1\n");
  const Outcome wrong = run_script("--output-dir /proc/none", "true");
  EXPECT_EQ(wrong.status, 64) << wrong;
  EXPECT_EQ(wrong.output, "accelrun: --output-dir /proc/none cannot be written to\n");
}

TEST_F(Output, UntouchedByDefault) {
  const std::string body = "printf 'a\\0b\\r\\nno end'; [ -t 1 ] && exit 9; exit 0";
  const Outcome with = run_script("", body, 1);
  EXPECT_EQ(with.status, 0) << with;
  EXPECT_EQ(with.output, std::string("a\0b\r\nno end", 11)) << with;
}

/// Where nothing is seen of the GPU, what the ranks say counts: the preset of a program makes it again,
/// smaller.
TEST_F(Output, TextsAreTheFallback) {
  const std::string body =
      "[ $1 -le 8 ] && echo trained with $1 && exit 0; echo RuntimeError: CUDA error: out of memory >&2; "
      "exit 1";
  const std::string path = scratch_.path() + "/program.sh";
  std::ofstream(path) << body;
  const Outcome seen =
      run(scratch_,
          {Mpi::Nccl, Way::Launcher, 1, "/bin/bash " + path + " 32", {}, "--tag-output --batch pos:-1"});
  EXPECT_EQ(seen.status, 0) << seen;
  EXPECT_NE(seen.output.find("[rank 0] trained with 8\n"), std::string::npos) << seen;
  EXPECT_NE(seen.report.find("no allocation was seen to fail, but a rank says that it is out of memory"),
            std::string::npos)
      << seen;
}

TEST_F(Output, TorchrunIsToldTheRootCause) {
  const std::string error = scratch_.path() + "/error.json";
  const Outcome outcome =
      run(scratch_, {Mpi::Nccl,
                     Way::Launcher,
                     4,
                     "faults count",
                     {{"TORCHELASTIC_ERROR_FILE", error}, {"ACCEL_STANDIN_NCCL_MISMATCH", "hang"}},
                     {}});
  EXPECT_EQ(outcome.status, 80) << outcome;
  const auto json = nlohmann::json::parse(std::ifstream(error), nullptr, false);
  ASSERT_TRUE(json.is_object()) << outcome;
  EXPECT_EQ(
      json["message"]["message"].get<std::string>().rfind("[accel] accel.DistributedOperationError: ", 0),
      0u);
  EXPECT_GT(std::stol(json["message"]["extraInfo"]["timestamp"].get<std::string>()), 1'700'000'000);
}

TEST_F(Output, OnAScreenTheRootCauseStandsLast) {
  const std::string command = "ACCEL_RUN_DIR=" + scratch_.path() + " " + build_directory() + "/accelrun " +
                              launcher(Mpi::Nccl, 4) + " " + build_directory() + "/programs/nccl/faults root";
  const Outcome outcome = run_shell("script -qefc \"" + command + "\" /dev/null");
  EXPECT_EQ(outcome.status, 80) << outcome;
  const std::string line =
      "due to root mismatches. The root must be the same on all processes. (the report stands above)\r\n";
  ASSERT_GE(outcome.output.size(), line.size()) << outcome;
  EXPECT_EQ(outcome.output.substr(outcome.output.size() - line.size()), line) << outcome;
}

TEST_F(Output, ConfigurationFilesStandInForTheCommandLine) {
  std::ofstream(scratch_.path() + "/accelrun.toml") << "timeout = 5\nreduce = \"pow2:2\"\nkeep = true\n";
  const std::string accelrun =
      "cd " + scratch_.path() + " && XDG_CONFIG_HOME=" + scratch_.path() + "/config ";
  run_shell("mkdir -p " + scratch_.path() + "/config/accelrun && echo \"warn-after = 3\" > " +
            scratch_.path() + "/config/accelrun/config.toml");
  const Outcome shown = run_shell(accelrun + "ACCEL_TIMEOUT=9 ACCEL_ACCUM=2 " + build_directory() +
                                  "/accelrun --print-config --batch 4 --reduce half true | grep -v default");
  EXPECT_EQ(sorted(shown.output),
            (std::vector<std::string>{
                "accum = 2  (ACCEL_ACCUM)", "batch = 4  (command line)", "keep = true  (accelrun.toml)",
                "reduce = half  (command line)", "timeout = 9  (ACCEL_TIMEOUT)",
                "warn-after = 3  (" + scratch_.path() + "/config/accelrun/config.toml)"}));
  std::ofstream(scratch_.path() + "/accelrun.toml") << "timeout = 5\nbogus = 1\n";
  EXPECT_EQ(run_shell(accelrun + build_directory() + "/accelrun true").output,
            "accelrun: accelrun.toml, line 2: bogus is no option of accelrun\n");
  std::ofstream(scratch_.path() + "/accelrun.toml") << "timeout = \n";
  EXPECT_EQ(run_shell(accelrun + build_directory() + "/accelrun true")
                .output.rfind("accelrun: accelrun.toml, line 1: ", 0),
            0u);
}

}  // namespace
}  // namespace accel::testing
