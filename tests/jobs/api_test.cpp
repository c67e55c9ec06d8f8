// What programs say to libaccel by accel.h, accel.f90 and libaccel.py: the examples, with and without it.
#include <algorithm>
#include <regex>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

struct Case {
  Mpi mpi;
  const char* language;
};

class Api : public ::testing::TestWithParam<Case> {
 protected:
  Outcome run_example(Way way, std::map<std::string, std::string> variables) const {
    const auto& [mpi, language] = GetParam();
    const std::string name(language);
    const std::string binary = build_directory() + "/examples/" + name_of(mpi) + "/break_point";
    variables.emplace("PYTHONPATH", source_directory() + "/include/accel");
    const std::string program = name == "c" ? binary
                                : name == "fortran"
                                    ? binary + "_f"
                                    : "/usr/bin/python3 " + source_directory() + "/examples/break_point.py";
    return run(scratch_, {mpi, way, 4, program, std::move(variables), ""});
  }
  Scratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(Languages, Api,
                         ::testing::Values(Case{Mpi::OpenMpi, "c"}, Case{Mpi::Mpich, "c"},
                                           Case{Mpi::OpenMpi, "fortran"}, Case{Mpi::Mpich, "fortran"},
                                           Case{Mpi::OpenMpi, "python"}),
                         [](const auto& info) {
                           return name_of(info.param.mpi) + "_" + info.param.language;
                         });

/// The ranks that have said `message` at `level`, in the order of the log.
std::vector<int> who_said(const std::string& log, const std::string& level, const std::string& message) {
  const std::regex pattern(R"(\[rank (\d)/4\] \d\d:\d\d:\d\d\.\d\d\d )" + level + " " + message + "\n");
  std::vector<int> ranks;
  for (auto match = std::sregex_iterator(log.begin(), log.end(), pattern); match != std::sregex_iterator();
       ++match)
    ranks.push_back(std::stoi((*match)[1]));
  return ranks;
}

TEST_P(Api, AllRanksStopAtTheSameStepAndSpeakInOrder) {
  for (const Way way : {Way::Launcher, Way::Bare}) {
    const Outcome outcome = run_example(way, {{"ACCEL_LOG_LEVEL", "DEBUG"}, {"ACCEL_BATCH_SIZE", "24"}});
    EXPECT_EQ(outcome.status, 0) << outcome;
    EXPECT_NE(outcome.output.find("stopped early: yes, together: yes"), std::string::npos) << outcome;
    EXPECT_EQ(who_said(outcome.report, "INFO", "batch size 24"), (std::vector{0, 1, 2, 3})) << outcome;
    EXPECT_EQ(who_said(outcome.report, "WARNING", "all ranks have stopped"), std::vector{0}) << outcome;
    const std::vector<int> begun = who_said(outcome.report, "DEBUG", "begin of step");
    EXPECT_GE(begun.size(), 4u) << outcome;
    EXPECT_EQ(begun, who_said(outcome.report, "DEBUG", "end of step")) << outcome;
    EXPECT_EQ(std::count(begun.begin(), begun.end(), 0), static_cast<std::ptrdiff_t>(begun.size()))
        << "calls and regions are the main rank's by default";
  }
}

TEST_P(Api, WhatIsNotLoggedIsNotSaid) {
  const Outcome outcome = run_example(Way::Launcher, {});
  EXPECT_EQ(outcome.status, 0) << outcome;
  EXPECT_TRUE(who_said(outcome.report, "INFO", "batch size 32").empty()) << outcome;
  EXPECT_EQ(who_said(outcome.report, "WARNING", "all ranks have stopped"), std::vector{0}) << outcome;
  EXPECT_EQ(outcome.report.find("overwritten"), std::string::npos) << outcome;
}

TEST_P(Api, WithoutTheLibraryNothingHappens) {
  for (const auto& [way, variables] : {std::pair<Way, std::map<std::string, std::string>>{Way::None, {}},
                                       {Way::Bare, {{"ACCEL_DISABLE", "1"}}}}) {
    const Outcome outcome = run_example(way, variables);
    EXPECT_EQ(outcome.status, 0) << outcome;
    EXPECT_NE(outcome.output.find("stopped early: no"), std::string::npos) << outcome;
    EXPECT_EQ(outcome.report, "") << outcome;
  }
}

}  // namespace
}  // namespace accel::testing
