// Stacks: taken without a trace, merged, and in words.
#include "lifecycle/stacks.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

#include "lifecycle/unwind.h"
#include "record/reader.h"
#include "recorded_rank.h"
#include "report/names.h"
#include "report/stack_tree.h"
#include "report/symbols.h"

namespace accel {
namespace {

std::size_t lines_in(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(StackTree, TheOddOneOutStandsFirst) {
  std::vector<RankStack> stacks;
  for (int rank = 0; rank < 128; ++rank) {
    if (rank == 7) {
      stacks.push_back({rank, {"main", "train_step", "save_checkpoint", "write"}});
    } else {
      stacks.push_back({rank, {"main", "train_step", "all_reduce", "ncclAllReduce"}});
    }
  }
  EXPECT_EQ(stack_tree(stacks),
            "[0-127] main → train_step\n"
            "├─[7] save_checkpoint → write\n"
            "└─[0-6, 8-127] all_reduce → ncclAllReduce\n");
}

TEST(StackTree, StacksThatEndInTheMiddleAndRanksWithSeveralThreads) {
  EXPECT_EQ(stack_tree({{1, {"main", "step", "write"}}, {0, {"main", "step"}}, {1, {"main", "idle"}}}),
            "[0, 1] main\n"
            "├─[1] idle\n"
            "└─[0, 1] step\n"
            "  └─[1] write\n");
  EXPECT_EQ(stack_tree({}), "");
  EXPECT_EQ(stack_tree({{3, {}}}), "[3]\n");
}

TEST(StackTree, TenThousandRanksInLessThanASecondAndSixtyLines) {
  constexpr int kRanks = 10'000;
  std::vector<RankStack> stacks;
  for (int rank = 0; rank < kRanks; ++rank) {
    RankStack stack{rank, {}};
    for (int depth = 0; depth < 30; ++depth) {
      // Half of them are each somewhere else, and so is everything below.
      const bool own = rank % 2 == 1 && depth >= 10;
      stack.frames.push_back("frame_" + std::to_string(depth) +
                             (own ? "_" + std::to_string(rank % 4999) : ""));
    }
    if (rank == 4242) stack.frames[5] = "save_checkpoint";
    stacks.push_back(std::move(stack));
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = stack_tree(stacks);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 1.0);
  EXPECT_LT(lines_in(text), 60u);
  EXPECT_EQ(text.find("├─[4242] save_checkpoint"), text.find('\n') + 1) << text;
  EXPECT_NE(text.find(" more branches\n"), std::string::npos) << text;
}

TEST(StackTree, AForkAtEveryFrame) {
  std::vector<RankStack> stacks;
  for (int rank = 0; rank < 500; ++rank) {
    RankStack stack{rank, std::vector<std::string>(static_cast<std::size_t>(rank), "recurse")};
    stack.frames.push_back("end");
    stacks.push_back(stack);
  }
  const std::string text = stack_tree(stacks);
  EXPECT_LT(lines_in(text), 60u);
  EXPECT_TRUE(text.ends_with("...\n")) << text;
}

TEST(Names, AreShortenedSensibly) {
  EXPECT_EQ(
      short_name(
          "train(std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> > const&)"),
      "train(std::string const&)");
  EXPECT_EQ(
      short_name(
          "std::vector<std::pair<int, double>, std::allocator<std::pair<int, double> > >::at(unsigned long)"),
      "std::vector<...>::at(unsigned long)");
  EXPECT_EQ(short_name("bool operator< <int>(A<int> const&, A<int> const&)"),
            "bool operator< <int>(A<int> const&, A<int> const&)");
  EXPECT_EQ(short_name("std::ostream& operator<< <std::char_traits<char> >(std::ostream&, char const*)"),
            "std::ostream& operator<< <std::char_traits<char> >(std::ostream&, char const*)");
  EXPECT_EQ(short_name("Loss::operator()(float) const"), "Loss::operator()(float) const");
  EXPECT_EQ(short_name("(anonymous namespace)::step()"), "(anonymous namespace)::step()");
  EXPECT_EQ(short_name("<module>"), "<module>");
  EXPECT_EQ(short_name("f(a_very_long_parameter_type_name, another_very_long_parameter_type_name)"),
            "f(...)");
  show_full_names(true);
  EXPECT_EQ(short_name("std::__cxx11::list<int>"), "std::__cxx11::list<int>");
  show_full_names(false);
}

TEST(Traceback, RecursionIsFolded) {
  Frame recurse;
  recurse.function = "recurse";
  recurse.file = "a.c";
  recurse.line = 3;
  EXPECT_EQ(traceback_lines(std::vector<Frame>(40, recurse)),
            "  File \"a.c\", line 3, in recurse\n  File \"a.c\", line 3, in recurse\n  File \"a.c\", line 3, "
            "in recurse\n"
            "  [Previous line repeated 37 more times]\n");
}

/// The handler runs wherever the thread happens to be: most of the time inside malloc, free or a throw.
TEST(Stacks, InterruptingMallocHarmsNothing) {
  const testing::TemporaryDirectory directory;
  const RunDirectory run = directory.run();
  auto recorder = Recorder::create(run);
  ASSERT_TRUE(recorder) << recorder.error;
  load_unwinder();
  install_stack_signal();
  ASSERT_EQ(syscall(SYS_gettid), getpid()) << "the main thread is the one that is asked";
  constexpr std::uint32_t kTimes = 100'000;
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> turns{0};
  std::uint32_t asked = 0;
  std::atomic<std::uint32_t> answered{0};
  std::thread asking([&] {
    // On a loaded machine the thread may stand at the end of the handler, where no signal reaches it, for a
    // time slice: fewer requests, then.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (asked < kTimes && std::chrono::steady_clock::now() < end) {
      const std::uint64_t before = turns.load();
      while (turns.load() == before) std::this_thread::yield();
      capture_stacks(**recorder, ++asked);
      if ((*recorder)->file().stacks[0].depth > 1) answered.fetch_add(1);
    }
    done.store(true);
  });
  std::vector<std::unique_ptr<char[]>> blocks(64);
  std::uint64_t wrong = 0;
  std::uint64_t thrown = 0;
  for (std::uint64_t i = 0; !done.load(); ++i) {
    turns.store(i);
    errno = EDOM;
    const std::size_t bytes = 16 + i * 37 % 5000;
    auto& block = blocks[i % blocks.size()];
    block = std::make_unique<char[]>(bytes);
    std::memset(block.get(), static_cast<int>(i & 0x7f), bytes);
    wrong += block[bytes - 1] != static_cast<char>(i & 0x7f) || errno != EDOM;
    if (i % 16 != 0) continue;
    try {
      throw std::runtime_error("now and then");
    } catch (const std::runtime_error&) {
      ++thrown;
    }
  }
  asking.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(thrown, 0u);
  EXPECT_GT(asked, 1000u);
  EXPECT_GT(answered.load(), asked / 10 * 9) << "it was asked, and answered";
}

}  // namespace
}  // namespace accel
