// Runs that were kept: compared, and packed for somebody else.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

class Runs : public ::testing::Test {
 protected:
  /// Directory of the run.
  std::string keep(const std::string& program, int ranks, const std::string& options = "",
                   std::map<std::string, std::string> variables = {}) {
    const Outcome outcome =
        run(scratch_, {Mpi::Nccl, Way::Launcher, ranks, program, std::move(variables), "--keep " + options});
    const std::string words = "records kept in ";
    const auto at = outcome.report.rfind(words);
    EXPECT_NE(at, std::string::npos) << outcome;
    if (at == std::string::npos) return {};
    const std::string rest = outcome.report.substr(at + words.size());
    return rest.substr(0, rest.find('\n'));
  }
  static Outcome accelrun(const std::string& words, const std::string& variables = "") {
    return run_shell(variables + " " + build_directory() + "/accelrun " + words);
  }
  static void expect_line(const Outcome& outcome, const std::string& line) {
    EXPECT_NE(outcome.output.find(line), std::string::npos) << "missing: " << line << "\n" << outcome;
  }

  Scratch scratch_;
};

TEST_F(Runs, SameRunsDoNotDiffer) {
  const std::string one = keep("trainer --batch 4 --seed 7", 2);
  const std::string other = keep("trainer --batch 4 --seed 7", 2);
  const Outcome outcome = accelrun("diff " + one + " " + other);
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_EQ(outcome.output, "8 collectives are the same in both\n");
}

/// The guide's case: the same batch a device on twice as many.
TEST_F(Runs, AnotherEffectiveBatchIsExplained) {
  const std::string knobs = "--batch arg:--batch --accum arg:--accum?1";
  const std::string one = keep("trainer --batch 16", 1, knobs);
  const std::string other = keep("trainer --batch 16", 2, knobs, {{"NCCL_ALGO", "Ring"}});
  const Outcome outcome = accelrun("diff " + one + " " + other);
  EXPECT_EQ(outcome.status, 1) << outcome;
  expect_line(outcome, "ranks: 1 → 2\n");
  expect_line(outcome,
              "effective batch: 16 × 1 ranks = 16 → 16 × 2 ranks = 32; use 8 a rank for the same step, or "
              "consider the "
              "learning rate\n");
  expect_line(outcome, "NCCL_ALGO: unset → Ring\n");
  expect_line(outcome, "note: neither command sets a seed");
}

TEST_F(Runs, TheFirstCollectiveThatDiffersIsFound) {
  const std::string one = keep("trainer --batch 4", 2);
  const std::string other = keep("trainer --batch 4 --layers 32", 2);
  const Outcome outcome = accelrun("diff " + one + " " + other);
  EXPECT_EQ(outcome.status, 1) << outcome;
  expect_line(
      outcome,
      "the collectives part at #2 of rank 0's communicator 0: ncclAllReduce float32[16], sum → ncclAllReduce "
      "float32[32], sum\n");
  const std::string short_one = keep("trainer --batch 4 --steps 2", 2);
  const std::string long_one = keep("trainer --batch 4 --steps 5", 2);
  expect_line(accelrun("diff " + short_one + " " + long_one),
              "communicator 0 saw 3 collectives in the one and 6 in the other");
}

TEST_F(Runs, AManifestIsEnoughForMost) {
  const std::string file = scratch_.path() + "/manifest.json";
  run(scratch_, {Mpi::Nccl, Way::Launcher, 2, "trainer --batch 4", {}, "--manifest " + file});
  const auto manifest = nlohmann::json::parse(std::ifstream(file), nullptr, false);
  ASSERT_TRUE(manifest.is_object());
  EXPECT_EQ(manifest["version"], 1);
  EXPECT_EQ(manifest["ranks"].size(), 2u);
  EXPECT_EQ(manifest["status"], 0);
  EXPECT_EQ(accelrun("diff " + file + " " + file).status, 0);
  EXPECT_EQ(accelrun("diff " + file + " /etc/passwd").output,
            "accelrun: /etc/passwd is no manifest of a run\n");
  EXPECT_EQ(accelrun("diff " + file + " /none").status, 64);
}

TEST_F(Runs, ABundleHoldsNoNamesAndNoSecrets) {
  const std::string run_path =
      keep("trainer --batch 4 --api-token hunter2secret", 2, "", {{"NCCL_MY_PASSWORD", "hunter2secret"}});
  const std::string archive = scratch_.path() + "/bundle.tar.gz";
  const std::string user = "USER=somebody-real";
  const Outcome shown = accelrun("report --show " + run_path, user);
  expect_line(shown, " manifest.json\n");
  expect_line(shown, " doctor.json\n");
  EXPECT_EQ(std::count(shown.output.begin(), shown.output.end(), '\n'), 5) << shown;
  const Outcome packed = accelrun("report " + run_path + " -o " + archive, user);
  EXPECT_EQ(packed.status, 0) << packed;
  EXPECT_EQ(packed.output, archive + ": 5 files, user and host names and secrets taken out\n");
  const Outcome searched = run_shell("cd " + scratch_.path() +
                                     " && tar xzf bundle.tar.gz && grep -rlc hunter2secret accel-report; ls "
                                     "accel-report | wc -l");
  EXPECT_EQ(searched.output, "5\n") << searched;
  const Outcome block = accelrun("report --md " + run_path);
  expect_line(block, "<details><summary>manifest.json</summary>");
  EXPECT_EQ(block.output.find("hunter2secret"), std::string::npos) << block;
}

}  // namespace
}  // namespace accel::testing
