// Many random programs: correct ones are left alone, and in each with one fault the fault and the rank are
// named.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

/// Programs of each sort on each MPI; `make check-random` sets more.
int wanted() {
  const char* text = std::getenv("ACCEL_TEST_PROGRAMS");
  return text != nullptr ? std::atoi(text) : 0;
}

class RandomPrograms : public ::testing::TestWithParam<Mpi> {};
INSTANTIATE_TEST_SUITE_P(Both, RandomPrograms, ::testing::Values(Mpi::OpenMpi, Mpi::Mpich),
                         [](const auto& info) { return name_of(info.param); });

/// MPICH's ranks spin, so that more of them than processors get slow: fewer programs there.
int share(Mpi mpi, int ranks, int total) {
  if (mpi == Mpi::OpenMpi) return total / 7;
  static constexpr int kPercent[] = {0, 0, 82, 6, 4, 2, 2, 2, 2};
  return total * kPercent[ranks] / 100;
}

TEST_P(RandomPrograms, CorrectOnesRaiseNoAlarm) {
  const int total = wanted() != 0 ? wanted() : GetParam() == Mpi::OpenMpi ? 10500 : 1000;
  Scratch scratch;
  int run_in_all = 0;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    // Batches of one mpirun each, short enough for the bound on a command.
    const int batch = GetParam() == Mpi::OpenMpi || ranks == 2 ? 1500 : 25;
    for (int done = 0, count = share(GetParam(), ranks, total); done < count; done += batch) {
      const int now = std::min(batch, count - done);
      const std::string seed = std::to_string(1000000 * ranks + done);
      const Outcome outcome = run(
          scratch, {GetParam(), Way::Launcher, ranks, "random " + seed + " " + std::to_string(now), {}, {}});
      ASSERT_EQ(outcome.status, 0) << outcome;
      ASSERT_EQ(outcome.report, "") << outcome;
      ASSERT_EQ(outcome.output, std::to_string(now) + " programs\n") << outcome;
      run_in_all += now;
    }
  }
  std::printf("%d correct programs, no alarm\n", run_in_all);
}

TEST_P(RandomPrograms, AFaultIsFoundAndNamed) {
  struct Kind {
    const char* name;
    int status;
  };
  const Kind kinds[] = {{"count", 80}, {"type", 80},   {"op", 80},  {"root", 80},
                        {"kind", 80},  {"vector", 80}, {"skip", 0}, {"exit", 82}};
  const int total = wanted() != 0 ? wanted() : GetParam() == Mpi::OpenMpi ? 64 : 48;
  Scratch scratch;
  const std::string plan = scratch.path() + "/plan";
  for (int i = 0; i < total; ++i) {
    const Kind& kind = kinds[i % 8];
    // Three ranks at least, so that there is a majority.
    const int most = GetParam() == Mpi::OpenMpi ? 8 : 4;
    const int ranks = 3 + i / 8 % (most - 2);
    std::remove(plan.c_str());
    const Outcome outcome =
        run(scratch, {GetParam(),
                      Way::Launcher,
                      ranks,
                      "random " + std::to_string(500 + i) + " 1 " + kind.name + " " + plan,
                      {},
                      {}});
    std::ifstream file(plan);
    int victim = -1;
    int size = 0;
    std::string operation;
    file >> victim >> operation >> size;
    ASSERT_GE(victim, 0) << "no fault was made\n" << outcome;
    if (kind.status != 0) {
      ASSERT_EQ(outcome.status, kind.status) << kind.name << "\n" << outcome;
    } else {
      ASSERT_TRUE(outcome.status >= 80 && outcome.status <= 82) << kind.name << "\n" << outcome;
    }
    // The marked lines name ranks in "Process 1, 3-5: ... <- mark".
    std::istringstream lines(outcome.report);
    bool named = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("<- ") == std::string::npos) continue;
      const std::string ranks_text = line.substr(line.find("Process ") + 8);
      std::istringstream ranks_list(ranks_text.substr(0, ranks_text.find(':')));
      for (std::string word; std::getline(ranks_list, word, ',');) {
        const auto dash = word.find('-');
        const int first = std::atoi(word.c_str());
        const int last = dash == std::string::npos ? first : std::atoi(word.c_str() + dash + 1);
        named = named || (victim >= first && victim <= last);
      }
    }
    ASSERT_TRUE(named) << "process " << victim << " did it\n" << outcome;
    const bool same_operation = kind.status == 80;
    ASSERT_TRUE(!same_operation ||
                outcome.report.find("Operation: MPI_" + operation + " (") != std::string::npos)
        << operation << "\n"
        << outcome;
  }
  std::printf("%d faulty programs, all named\n", total);
}

}  // namespace
}  // namespace accel::testing
