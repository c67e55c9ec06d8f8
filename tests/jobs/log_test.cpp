// The log of all ranks' calls: in order, complete, and what is missing is counted.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

struct Line {
  int rank = -1;
  std::string time;
  std::string level;
  std::string call;
  unsigned long number = 0;
};

/// Lines of calls, in the order of the file.
std::vector<Line> calls_in(const std::string& log) {
  static const std::regex pattern(
      R"(\[rank (\d+)/\d+\] (\d\d:\d\d:\d\d\.\d\d\d) (\w+) ((?:MPI_|nccl)\w+) #(\d+) comm [0-9a-f]{8}.*)");
  std::vector<Line> lines;
  std::istringstream stream(log);
  for (std::string text; std::getline(stream, text);) {
    std::smatch parts;
    if (std::regex_match(text, parts, pattern))
      lines.push_back({std::stoi(parts[1]), parts[2], parts[3], parts[4], std::stoul(parts[5])});
  }
  return lines;
}

/// What the log says it has lost.
unsigned long lost_in(const std::string& log) {
  static const std::regex pattern(R"(WARNING: (\d+) records were overwritten before they could be logged)");
  unsigned long lost = 0;
  for (auto match = std::sregex_iterator(log.begin(), log.end(), pattern); match != std::sregex_iterator();
       ++match)
    lost += std::stoul((*match)[1]);
  return lost;
}

class Log : public ::testing::TestWithParam<Way> {
 protected:
  Outcome run_logged(const std::string& program, std::map<std::string, std::string> variables, int ranks = 4,
                     Mpi mpi = Mpi::OpenMpi) {
    variables.emplace("ACCEL_LOG_LEVEL", "DEBUG");
    variables.emplace("ACCEL_LOG_RANKS", "all");
    return run(scratch_, {mpi, GetParam(), ranks, program, std::move(variables), ""});
  }
  Scratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(Both, Log, ::testing::Values(Way::Launcher, Way::Bare),
                         [](const auto& info) { return name_of(info.param); });

/// With a rank killed, a bare launcher kills the one that counts.
using LogOfAccelrun = Log;
INSTANTIATE_TEST_SUITE_P(Launcher, LogOfAccelrun, ::testing::Values(Way::Launcher));

TEST_P(Log, EachCallIsALineInTheOrderOfTime) {
  constexpr unsigned long kSteps = 5000;
  const Outcome outcome = run_logged("steps 5000 stagger=50000", {});
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const std::vector<Line> lines = calls_in(outcome.report);
  std::map<int, unsigned long> numbers;
  for (const Line& line : lines) {
    EXPECT_EQ(line.number, ++numbers[line.rank]) << "of rank " << line.rank;
    EXPECT_EQ(line.level, line.number <= kSteps ? "DEBUG" : "INFO");
    EXPECT_EQ(line.call, line.number <= kSteps ? "MPI_Allreduce" : "MPI_Finalize");
  }
  EXPECT_EQ(numbers, (std::map<int, unsigned long>{
                         {0, kSteps + 1}, {1, kSteps + 1}, {2, kSteps + 1}, {3, kSteps + 1}}));
  EXPECT_TRUE(std::is_sorted(lines.begin(), lines.end(),
                             [](const Line& a, const Line& b) { return a.time < b.time; }));
  EXPECT_EQ(lost_in(outcome.report), 0u);
}

TEST_P(Log, ByRankForEachCollective) {
  const Outcome outcome = run_logged("steps 500 slow=1:100", {{"ACCEL_LOG_ORDER", "rank"}}, 3, Mpi::Mpich);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const std::vector<Line> lines = calls_in(outcome.report);
  ASSERT_EQ(lines.size(), 3u * 501);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    ASSERT_EQ(lines[i].rank, static_cast<int>(i % 3)) << "line " << i;
    ASSERT_EQ(lines[i].number, i / 3 + 1) << "line " << i;
  }
}

/// Faster than anybody can write, one of them killed: no line comes twice, and each that is missing is
/// counted.
TEST_P(LogOfAccelrun, WhatWasOverwrittenIsCounted) {
  constexpr unsigned long kSteps = 125'000;
  constexpr unsigned long kBeforeDeath = 60'000;
  const Outcome outcome = run_logged("steps 125000 self stagger=20000 kill=7:60000",
                                     {{"ACCEL_RECORDS", "4096"}, {"ACCEL_ON_ERROR", "report"}}, 8);
  std::map<int, unsigned long> last;
  std::map<int, unsigned long> count;
  for (const Line& line : calls_in(outcome.report)) {
    if (line.call != "MPI_Allreduce") continue;
    EXPECT_GT(line.number, last[line.rank]) << "rank " << line.rank;
    last[line.rank] = line.number;
    ++count[line.rank];
  }
  // Others than the first may be ended by the launcher before they are done.
  unsigned long written = 0;
  unsigned long made = 0;
  for (const auto& [rank, number] : count) {
    written += number;
    made += last[rank];
    EXPECT_LE(last[rank], rank == 7 ? kBeforeDeath : kSteps);
  }
  EXPECT_GT(lost_in(outcome.report), 0u) << "or this test asks for too little";
  // Communicator creation and finalization count as records, too.
  EXPECT_NEAR(static_cast<double>(written + lost_in(outcome.report)), static_cast<double>(made), 64);
  EXPECT_EQ(last[7], kBeforeDeath) << "the last calls of a killed rank are there";
}

TEST_P(Log, TheMainRankAloneByDefaultAndLifeCycleAtInfo) {
  const Outcome steps = run_logged("steps 20", {{"ACCEL_LOG_LEVEL", "INFO"}, {"ACCEL_LOG_RANKS", "main"}});
  ASSERT_EQ(steps.status, 0) << steps.output;
  const std::vector<Line> lines = calls_in(steps.report);
  ASSERT_EQ(lines.size(), 1u) << steps.report;
  EXPECT_EQ(lines[0].rank, 0);
  EXPECT_EQ(lines[0].call, "MPI_Finalize");
  EXPECT_NE(steps.report.find("INFO process "), std::string::npos) << steps.report;
}

TEST_P(Log, JsonLinesSayTheSame) {
  const Outcome outcome = run_logged("steps 10", {{"ACCEL_LOG_FORMAT", "json"}}, 2);
  std::map<int, int> calls;
  std::istringstream stream(outcome.report);
  for (std::string line; std::getline(stream, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || object.value("call", "") != "MPI_Allreduce") continue;
    EXPECT_EQ(object["sequence"], ++calls[object["rank"].get<int>()]);
    EXPECT_EQ(object["datatype"], "float64");
    EXPECT_EQ(object["count"], 1);
    EXPECT_EQ(object["op"], "sum");
    EXPECT_EQ(object["level"], "DEBUG");
    EXPECT_GT(object["duration_ms"].get<double>(), 0);
    EXPECT_LT(object["duration_ms"].get<double>(), 10'000);
  }
  EXPECT_EQ(calls, (std::map<int, int>{{0, 10}, {1, 10}})) << outcome.report;
}

TEST_P(Log, AFileForEachRankAndOldOnesPutAside) {
  const std::string pattern = scratch_.path() + "/calls.%r.%h.%j.%%.log";
  const Outcome outcome =
      run_logged("steps 2000", {{"ACCEL_LOG_FILE", pattern}, {"ACCEL_LOG_ROTATE", "32K,2"}}, 2);
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  for (const char* rank : {"0", "1"}) {
    const std::string files = run_shell("ls " + scratch_.path() + " | grep ^calls." + rank).output;
    EXPECT_EQ(std::count(files.begin(), files.end(), '\n'), 3) << files;
    EXPECT_NE(files.find(".%.log.2\n"), std::string::npos) << files;
    const std::string ranks =
        run_shell("cat " + scratch_.path() + "/calls." + rank + ".* | grep -o \"^.rank [0-9]*\" | sort -u")
            .output;
    EXPECT_EQ(ranks, std::string("[rank ") + rank + "\n");
  }
}

TEST_P(Log, ALogThatCannotBeWrittenHoldsNobodyUp) {
  const Outcome outcome = run_logged("steps 2000", {{"ACCEL_LOG_FILE", "/dev/full"}}, 2);
  EXPECT_EQ(outcome.status, 0) << outcome;
  const Outcome nowhere = run_logged("steps 2000", {{"ACCEL_LOG_FILE", "/no/such/place/log"}}, 2);
  EXPECT_EQ(nowhere.status, 0) << nowhere;
  EXPECT_NE(nowhere.output.find("log lines were dropped: /no/such/place/log: No such file or directory"),
            std::string::npos)
      << nowhere;
}

}  // namespace
}  // namespace accel::testing
