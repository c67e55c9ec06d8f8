// Many random NCCL programs: correct ones are left alone and compute the same as without us; in each with one
// fault the fault and the rank are named.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

int wanted(int otherwise) {
  const char* text = std::getenv("ACCEL_TEST_PROGRAMS");
  return text != nullptr ? std::atoi(text) : otherwise;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(NcclRandomPrograms, CorrectOnesRaiseNoAlarmAndComputeTheSame) {
  const int total = wanted(400);
  Scratch scratch;
  for (int ranks = 2; ranks <= 5; ++ranks) {
    constexpr int kBatch = 250;
    for (int done = 0; done < total / 4; done += kBatch) {
      const std::string count = std::to_string(std::min(kBatch, total / 4 - done));
      const std::string program = "random " + std::to_string(100000 * ranks + done) + " " + count;
      const Outcome with =
          run(scratch, {Mpi::Nccl, Way::Launcher, ranks, program, {{"ACCEL_LOG_LEVEL", "ERROR"}}, {}});
      ASSERT_EQ(with.status, 0) << with;
      ASSERT_EQ(with.report, "") << with;
      const Outcome without = run(scratch, {Mpi::Nccl, Way::None, ranks, program, {}, {}});
      ASSERT_EQ(sorted_lines(with.output), sorted_lines(without.output)) << with;
    }
  }
}

TEST(NcclRandomPrograms, AFaultIsFoundAndNamed) {
  Scratch scratch;
  for (int i = 0; i < wanted(60); ++i) {
    const std::string program = "random " + std::to_string(7000 + i) + " 2 fault";
    const char* mismatch = i % 2 == 0 ? "garbage" : "hang";
    const Outcome outcome =
        run(scratch, {Mpi::Nccl,
                      Way::Launcher,
                      3 + i % 3,
                      program,
                      {{"ACCEL_STANDIN_NCCL_MISMATCH", mismatch}, {"ACCEL_LOG_LEVEL", "ERROR"}},
                      {}});
    int rank = -1;
    char field[16] = {};
    const auto at = outcome.output.find("fault: rank ");
    ASSERT_NE(at, std::string::npos) << outcome;
    ASSERT_EQ(std::sscanf(outcome.output.c_str() + at, "fault: rank %d differs in %15s", &rank, field), 2)
        << outcome;
    ASSERT_EQ(outcome.status, 80) << outcome;
    const bool kind = std::string(field) == "kind";
    ASSERT_NE(outcome.report.find(kind ? "due to kind mismatches" : "Differs in: " + std::string(field)),
              std::string::npos)
        << outcome;
    const std::string line = "Process " + std::to_string(rank) + ": ";
    const auto named = outcome.report.find(line);
    ASSERT_NE(named, std::string::npos) << outcome;
    // Where too few have come to the call for a majority, nobody is marked.
    const bool undecided = outcome.report.find("has not made this call yet") != std::string::npos &&
                           outcome.report.find("<- differs") == std::string::npos;
    const std::string said = outcome.report.substr(named, outcome.report.find('\n', named) - named);
    ASSERT_TRUE(undecided || said.find("<- differs") != std::string::npos) << outcome;
  }
}

}  // namespace
}  // namespace accel::testing
