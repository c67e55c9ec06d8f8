// accelrun ctl: what can be asked of a job from outside.
#include <fmt/format.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

class Control : public ::testing::TestWithParam<std::pair<Mpi, Way>> {
 protected:
  std::string run_dir() const { return "export ACCEL_RUN_DIR=" + scratch_.path() + "; "; }
  std::string ctl(const std::string& words) const {
    return build_directory() + "/accelrun ctl $JOB " + words + "; echo ctl returned $?; ";
  }
  /// Starts it, does `then` to it, waits for it.
  Outcome run_and(const std::string& what, const std::string& then, const std::string& variables = "",
                  int ranks = 4) {
    const auto [mpi, way] = GetParam();
    std::string command = run_dir();
    std::string exports = "ACCEL_LOG_FILE=" + log() + " " + variables;
    if (way == Way::Bare) exports += " LD_PRELOAD=" + library();
    const std::string prefix = way == Way::Launcher ? build_directory() + "/accelrun " : "";
    command += "env " + exports + " " + prefix + launcher(mpi, ranks) + " " + program(mpi, what);
    command += " & JOB=$!; sleep 1; " + then + "wait $JOB; echo job returned $?";
    Outcome outcome = run_shell(command);
    std::stringstream text;
    text << std::ifstream(log()).rdbuf();
    outcome.report = text.str();
    return outcome;
  }
  std::string log() const { return scratch_.path() + "/log"; }
  std::string forever(int saves) const {
    if (GetParam().first == Mpi::Nccl) return fmt::format("trainer --batch 1 --until-saved {}", saves);
    return fmt::format("checkpoint {}", saves);
  }

  Scratch scratch_;
};

std::string name_of_case(const ::testing::TestParamInfo<std::pair<Mpi, Way>>& info) {
  return name_of(info.param.first) + "_" + name_of(info.param.second);
}

INSTANTIATE_TEST_SUITE_P(
    All, Control,
    ::testing::Values(std::pair(Mpi::OpenMpi, Way::Launcher), std::pair(Mpi::OpenMpi, Way::Bare),
                      std::pair(Mpi::Mpich, Way::Launcher), std::pair(Mpi::Mpich, Way::Bare),
                      std::pair(Mpi::Nccl, Way::Launcher), std::pair(Mpi::Nccl, Way::Bare)),
    name_of_case);
using ControlOfMpi = Control;
INSTANTIATE_TEST_SUITE_P(OpenMpi, ControlOfMpi, ::testing::Values(std::pair(Mpi::OpenMpi, Way::Launcher)),
                         name_of_case);

/// The numbers after "saved before", in order of coming, and how often each was said.
std::vector<std::pair<long, int>> saves_in(const std::string& output) {
  std::vector<std::pair<long, int>> saves;
  const std::regex pattern("saved before ([0-9]+)\n");
  for (auto one = std::sregex_iterator(output.begin(), output.end(), pattern); one != std::sregex_iterator();
       ++one) {
    const long step = std::stol((*one)[1]);
    const auto found =
        std::find_if(saves.begin(), saves.end(), [&](const auto& save) { return save.first == step; });
    if (found == saves.end()) {
      saves.emplace_back(step, 1);
    } else {
      ++found->second;
    }
  }
  return saves;
}

std::vector<long> announced_in(const std::string& output) {
  std::vector<long> steps;
  const std::regex pattern("all 4 ranks stop before call #([0-9]+) on communicator [0-9a-f]{8}, with SIG");
  for (auto one = std::sregex_iterator(output.begin(), output.end(), pattern); one != std::sregex_iterator();
       ++one)
    steps.push_back(std::stol((*one)[1]));
  return steps;
}

TEST_P(Control, AllRanksSaveBeforeTheSameCall) {
  const std::string trigger = ctl("trigger --signal USR1");
  const Outcome outcome = run_and(forever(3), trigger + trigger + trigger);
  const auto saves = saves_in(outcome.output);
  ASSERT_EQ(saves.size(), 3u) << outcome;
  const std::vector<long> announced = announced_in(outcome.output);
  for (std::size_t i = 0; i < saves.size(); ++i)
    EXPECT_EQ(saves[i], (std::pair(announced.at(i), 4))) << outcome;
  EXPECT_LT(saves[0].first, saves[1].first);
  EXPECT_EQ(
      std::regex_replace(outcome.output, std::regex("(.|\n)*4 of 4 ranks have stopped there\nctl "), "ctl "),
      outcome.output.substr(outcome.output.rfind("ctl returned 0")));
  EXPECT_NE(outcome.output.find("job returned 0\n"), std::string::npos) << outcome;
  EXPECT_EQ(outcome.report.find("ERROR"), std::string::npos) << outcome;
}

TEST_P(Control, TermEndsTheJobWithoutAVerdict) {
  const Outcome outcome = run_and(forever(1), ctl("trigger"));
  EXPECT_EQ(announced_in(outcome.output).size(), 1u) << outcome;
  EXPECT_NE(outcome.output.find("ctl returned 0\n"), std::string::npos) << outcome;
  const std::string& report = outcome.report;
  for (const char* accusation : {"ERROR", "CRITICAL", "Traceback", "mismatch", "lost"})
    EXPECT_EQ(report.find(accusation), std::string::npos) << outcome;
  if (GetParam() == std::pair(Mpi::OpenMpi, Way::Launcher)) {
    EXPECT_NE(outcome.output.find("job returned 143\n"), std::string::npos) << outcome;
  }
  EXPECT_EQ(outcome.output.find("job returned 0\n"), std::string::npos) << outcome;
}

TEST_P(ControlOfMpi, ASignalThatAThreadWaitsFor) {
  const Outcome outcome = run_and("checkpoint 0", ctl("trigger --signal SIGUSR1"));
  EXPECT_NE(outcome.output.find("4 of 4 ranks have stopped there\nctl returned 0\n"), std::string::npos)
      << outcome;
  const std::regex saved("saved by a thread");
  EXPECT_EQ(std::distance(std::sregex_iterator(outcome.output.begin(), outcome.output.end(), saved),
                          std::sregex_iterator()),
            4)
      << outcome;
  EXPECT_NE(outcome.output.find("job returned 0\n"), std::string::npos) << outcome;
}

TEST_P(ControlOfMpi, AlsoWhereEachCallIsCheckedBeforeItIsMade) {
  const Outcome outcome =
      run_and(forever(2), ctl("trigger --signal USR1") + ctl("trigger --signal USR1"), "ACCEL_CHECK=sync");
  const auto saves = saves_in(outcome.output);
  ASSERT_EQ(saves.size(), 2u) << outcome;
  EXPECT_EQ(saves[0].second, 4) << outcome;
  EXPECT_EQ(saves[1].second, 4) << outcome;
  EXPECT_NE(outcome.output.find("job returned 0\n"), std::string::npos) << outcome;
}

TEST_P(ControlOfMpi, TheLevelOfTheLog) {
  const Outcome outcome =
      run_and("steps 2000 slow=0:1000", ctl("log-level DEBUG") + "sleep 1; " + ctl("log-level WARNING"));
  EXPECT_NE(outcome.output.find("ctl returned 0\n"), std::string::npos) << outcome;
  std::set<long> numbers;
  const std::regex line("DEBUG MPI_Allreduce #([0-9]+) ");
  for (auto one = std::sregex_iterator(outcome.report.begin(), outcome.report.end(), line);
       one != std::sregex_iterator(); ++one)
    numbers.insert(std::stol((*one)[1]));
  ASSERT_FALSE(numbers.empty()) << outcome.report.substr(0, 2000);
  EXPECT_GT(*numbers.begin(), 1);
  EXPECT_LT(*numbers.rbegin(), 2000);
  EXPECT_EQ(static_cast<long>(numbers.size()), *numbers.rbegin() - *numbers.begin() + 1) << "without a gap";
}

TEST_P(ControlOfMpi, StacksAsAccelrunStacksShowsThem) {
  const Outcome outcome = run_and(forever(1), ctl("stacks") + ctl("trigger --signal USR1"));
  EXPECT_NE(outcome.output.find("[0-3] main (checkpoint.c:"), std::string::npos) << outcome;
  EXPECT_NE(outcome.output.find("job returned 0\n"), std::string::npos) << outcome;
}

TEST_P(ControlOfMpi, ARankThatDoesNotAnswerLetsAllGoOn) {
  const std::string rank = "$(pgrep -n -x checkpoint)";
  const Outcome outcome =
      run_and(forever(1), "RANK=" + rank + "; kill -STOP $RANK; " + ctl("trigger --signal USR1") +
                              "kill -CONT $RANK; sleep 1; " + ctl("trigger --signal USR1"));
  EXPECT_NE(
      outcome.output.find("1 of 4 ranks do not answer: all go on; accelrun stacks shows where they are\n"
                          "ctl returned 64\n"),
      std::string::npos)
      << outcome;
  const auto saves = saves_in(outcome.output);
  ASSERT_EQ(saves.size(), 1u) << outcome;
  EXPECT_EQ(saves[0].second, 4) << outcome;
  EXPECT_NE(outcome.output.find("job returned 0\n"), std::string::npos) << outcome;
}

TEST_P(ControlOfMpi, WhatCannotBeAskedIsSaidInOneLine) {
  const Outcome outcome =
      run_and(forever(1), ctl("trigger --signal FOO") + ctl("trigger --wait -1") + ctl("log-level LOUD") +
                              ctl("dance") + ctl("") + ctl("trigger --signal USR1"));
  for (const char* line :
       {"accelrun: --signal FOO is not valid: expected a name such as TERM or USR1\nctl returned 64\n",
        "--wait: ",
        "accelrun: LOUD is no level: expected DEBUG, INFO, WARNING, ERROR or CRITICAL\nctl returned 64\n"})
    EXPECT_NE(outcome.output.find(line), std::string::npos) << line << outcome;
  const Outcome none = run_shell(run_dir() + "JOB=$$; " + ctl("trigger"));
  EXPECT_NE(none.output.find("ctl returned 64\n"), std::string::npos) << none;
  const Outcome alone = run_and("steps 2000 slow=0:1000 self", ctl("trigger"), "", 1);
  EXPECT_NE(alone.output.find("accelrun: no communicator of all ranks is known yet: they cannot be stopped "
                              "together\nctl returned 64\n"),
            std::string::npos)
      << alone;
}

}  // namespace
}  // namespace accel::testing
