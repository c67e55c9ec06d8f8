#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <random>
#include <thread>

#include "collect/leader.h"
#include "collect/observer.h"
#include "judge/judge.h"
#include "record/call_sites.h"
#include "record/reader.h"
#include "record/recorder.h"
#include "recorded_rank.h"

namespace accel {
namespace {

using namespace testing;

class Record : public ::testing::Test {
 protected:
  RunDirectory run(const std::string& id = "test") { return directory_.run(id); }
  static std::string record_name() { return accel::record_name(getpid()); }

  TemporaryDirectory directory_;
  const std::string& base_ = directory_.path();
};

TEST_F(Record, IsReadAsItWasWritten) {
  const RunDirectory directory = run();
  RecordedRank rank(directory, 3, 4);
  for (int i = 1; i <= 10; ++i) Recorder::end(rank.begin(i, {static_cast<std::uint64_t>(i), 1}));
  const auto inside = rank.begin(11, {11, 1});

  auto reader = RecordReader::open(directory.fd(), record_name());
  ASSERT_TRUE(reader) << reader.error;
  ProcessEvidence process;
  ASSERT_TRUE((*reader)->read(process));
  EXPECT_EQ(process.pid, getpid());
  EXPECT_EQ(process.world_rank, 3);
  ASSERT_EQ(process.communicators.size(), 1u);
  EXPECT_EQ(process.communicators[0].record.sequence, 11u);
  EXPECT_EQ(process.communicators[0].record.balance, 11u);
  ASSERT_EQ(process.blocked.size(), 1u);
  EXPECT_EQ(process.blocked[0].record.count, 11);
  for (int i = 1; i <= 10; ++i) {
    const auto call = (*reader)->call(0, static_cast<std::uint64_t>(i));
    ASSERT_TRUE(call);
    EXPECT_EQ(call->count, i);
    EXPECT_EQ(call->returned, 1u);
  }
  EXPECT_FALSE((*reader)->call(0, 12));
  Recorder::end(inside);
  ProcessEvidence later;
  ASSERT_TRUE((*reader)->read(later));
  EXPECT_TRUE(later.blocked.empty());
}

TEST_F(Record, KeepsTheLatestCallsOfEachCommunicatorWhenTheRingGoesRound) {
  const RunDirectory directory = run();
  Recorder& recorder = **Recorder::create(directory);
  const int first = recorder.add_communicator(world_of(0, 1));
  CommunicatorRecord other = world_of(0, 1);
  other.key = 8;
  const int second = recorder.add_communicator(other);
  constexpr std::uint64_t kCalls = 3 * kCollectives;
  for (std::uint64_t i = 1; i <= kCalls; ++i) {
    Recorder::end(recorder.begin_numbered(draft_of(i % 3 == 0 ? second : first, static_cast<std::int64_t>(i)),
                                          {i, 0}, nullptr));
  }
  auto reader = RecordReader::open(directory.fd(), record_name());
  ASSERT_TRUE(reader);
  const std::uint64_t last = kCalls / 3;
  ASSERT_TRUE((*reader)->call(static_cast<std::uint16_t>(second), last));
  EXPECT_EQ((*reader)->call(static_cast<std::uint16_t>(second), last)->count,
            static_cast<std::int64_t>(kCalls));
  const auto back = (*reader)->call(static_cast<std::uint16_t>(second), last - 5000);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->sequence, last - 5000);
  EXPECT_FALSE((*reader)->call(static_cast<std::uint16_t>(second), last - 6000)) << "overwritten";
}

TEST_F(Record, IsConsistentWhileItIsWritten) {
  const RunDirectory directory = run();
  Recorder& recorder = **Recorder::create(directory);
  const int slot = recorder.add_communicator(world_of(0, 2));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    ThreadRecord* thread = recorder.claim_thread();
    for (std::uint64_t i = 1; !stop.load(); ++i)
      Recorder::end(recorder.begin_numbered(draft_of(slot, static_cast<std::int64_t>(i)), {1, 5}, thread));
  });
  auto reader = RecordReader::open(directory.fd(), record_name());
  ASSERT_TRUE(reader);
  int seen = 0;
  for (int i = 0; i < 20000; ++i) {
    ProcessEvidence process;
    ASSERT_TRUE((*reader)->read(process));
    for (const CommunicatorEvidence& communicator : process.communicators) {
      // The three words belong to one moment.
      ASSERT_EQ(communicator.record.balance, communicator.record.sequence * 5);
      if (const auto call = (*reader)->call(0, communicator.record.sequence)) {
        ASSERT_EQ(static_cast<std::uint64_t>(call->count), call->sequence);
        ++seen;
      }
    }
  }
  stop.store(true);
  writer.join();
  EXPECT_GT(seen, 0);
}

/// However long the process lives, its whole life is there, at what distance the places allow.
TEST_F(Record, TheMemorysHistoryCoversTheWholeLife) {
  const RunDirectory directory = run();
  Recorder& recorder = **Recorder::create(directory);
  auto reader = RecordReader::open(directory.fd(), record_name());
  ASSERT_TRUE(reader) << reader.error;
  recorder.sample_memory();
  EXPECT_TRUE((*reader)->memory_history().empty()) << "it has never had any";

  DeviceMemory& memory = recorder.file().memory[1];
  constexpr std::int64_t kTimes = 5000;
  std::uint64_t now = ticks_now();
  for (std::int64_t i = 1; i <= kTimes; ++i) {
    memory.total = i * 100;
    recorder.sample_memory(now += 1'000'000'000);
  }
  const std::vector<std::pair<std::int64_t, std::int64_t>> all = (*reader)->memory_history();
  ASSERT_GT(all.size(), kMemorySamples / 2);
  ASSERT_LE(all.size(), kMemorySamples);
  constexpr std::int64_t kGap = 2 * kTimes / static_cast<std::int64_t>(kMemorySamples / 2);
  EXPECT_LE(all.front().second, 100 * kGap);
  EXPECT_GE(all.back().second, 100 * (kTimes - kGap));
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_GT(all[i].first, all[i - 1].first);
    EXPECT_LE(all[i].second - all[i - 1].second, 100 * kGap) << "no part of its life is left out";
  }

  // While nothing changes no place is taken.
  for (int i = 0; i < 1000; ++i) recorder.sample_memory(now += 1'000'000'000'000);
  EXPECT_LE((*reader)->memory_history().size(), all.size() + 2);
  EXPECT_EQ((*reader)->memory_history().back().second, kTimes * 100);
  memory.total = 0;
  recorder.sample_memory(now + 1);
  EXPECT_EQ((*reader)->memory_history().back().second, kTimes * 100) << "it is too early for another";
}

TEST_F(Record, ManyThreadsAtOnceLoseNothing) {
  const RunDirectory directory = run();
  Recorder& recorder = **Recorder::create(directory);
  constexpr int kThreads = 16;
  constexpr int kCalls = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&recorder, t] {
      CommunicatorRecord own = world_of(0, 1);
      own.key = static_cast<std::uint64_t>(100 + t);
      const int slot = recorder.add_communicator(own);
      ThreadRecord* thread = recorder.claim_thread();
      for (int i = 1; i <= kCalls; ++i)
        Recorder::end(recorder.begin_numbered(draft_of(slot, i), {1, 0}, thread));
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto reader = RecordReader::open(directory.fd(), record_name());
  ASSERT_TRUE(reader);
  ProcessEvidence process;
  ASSERT_TRUE((*reader)->read(process));
  ASSERT_EQ(process.communicators.size(), static_cast<std::size_t>(kThreads));
  for (const CommunicatorEvidence& communicator : process.communicators) {
    EXPECT_EQ(communicator.record.sequence, static_cast<std::uint64_t>(kCalls));
    for (int i = 1; i <= kCalls; ++i) {
      const auto call = (*reader)->call(communicator.slot, static_cast<std::uint64_t>(i));
      ASSERT_TRUE(call);
      EXPECT_EQ(call->count, i);
    }
  }
}

TEST_F(Record, VectorsAreReadUntilTheyAreOverwritten) {
  const RunDirectory directory = run();
  Recorder& recorder = **Recorder::create(directory);
  const int slot = recorder.add_communicator(world_of(0, 8));
  const auto write = [&] {
    const auto vectors = recorder.reserve_vectors(8);
    for (int i = 0; i < 8; ++i) vectors.sends[i] = {static_cast<std::uint64_t>(i + 1), i};
    vectors.head->flags = kVectorSends;
    Recorder::Draft draft = draft_of(slot, static_cast<std::int64_t>(vectors.head->position));
    draft.function = Function::Scatterv;
    Recorder::end(recorder.begin_numbered(draft, {1, 0}, nullptr));
  };
  write();
  auto reader = RecordReader::open(directory.fd(), record_name());
  ASSERT_TRUE(reader);
  const auto record = (*reader)->call(0, 1);
  ASSERT_TRUE(record);
  const auto vectors = (*reader)->vectors(*record);
  ASSERT_TRUE(vectors);
  ASSERT_EQ(vectors->sends.size(), 8u);
  EXPECT_EQ(vectors->sends[5].count, 5);
  EXPECT_TRUE(vectors->expects.empty());
  for (int i = 0; i < 4000; ++i) write();
  EXPECT_FALSE((*reader)->vectors(*record));
  EXPECT_EQ(recorder.reserve_vectors(100'000'000).head, nullptr) << "does not fit";
}

TEST_F(Record, DamageIsNamedOrIgnoredButNeverFatal) {
  const RunDirectory directory = run();
  RecordedRank rank(directory, 0, 2);
  for (int i = 0; i < 200; ++i) Recorder::end(rank.begin(i));
  rank.begin();

  const auto use = [&] {
    Observer observer(directory);
    judge(observer.observe(), {});
  };
  std::mt19937 random(3);
  auto* bytes = reinterpret_cast<unsigned char*>(&rank.recorder.file());
  const std::size_t hot = offsetof(RecorderFile, stacks);
  for (int round = 0; round < 3000; ++round) {
    const std::size_t at =
        24 + random() % (hot - 24);  // magic, version and size stay: the rest must hold by itself
    const unsigned char before = bytes[at];
    bytes[at] = static_cast<unsigned char>(random());
    use();
    if (round % 2 == 0) bytes[at] = before;
  }
  for (const off_t size : {100000L, 5000L, 4096L, 100L, 1L, 0L}) {
    const std::string path = directory.path() + "/copy.record";
    std::system(("cp " + directory.path() + "/" + record_name() + " " + path).c_str());
    ASSERT_EQ(truncate(path.c_str(), size), 0);
    use();
  }
  EXPECT_FALSE(RecordReader::open(directory.fd(), "copy.record"));
}

TEST_F(Record, ACopyFromAnotherNodeIsSeenAsItsLeaderSawIt) {
  const RunDirectory directory = run();
  RecordedRank rank(directory, 3, 4);
  rank.begin();
  const auto place_copy = [&](std::int64_t at_ns, bool alive) {
    const std::string path = directory.path() + "/" + copy_name(2, getpid());
    std::system(("cp " + directory.path() + "/" + record_name() + " " + path).c_str());
    const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    CopyStatus status{};
    status.at_ns = at_ns;
    status.now = ClockPair::now();
    status.alive = alive ? 1 : 0;
    status.signal = alive ? 0 : SIGKILL;
    status.signal_inferred = alive ? 0 : 1;
    status.gone_since_ns = alive ? 0 : at_ns;
    const off_t offset = offsetof(RecorderFile, header) + offsetof(RecorderHeader, copied);
    ASSERT_EQ(pwrite(file.get(), &status, sizeof status, offset), static_cast<ssize_t>(sizeof status));
  };
  const auto copies = [](const Evidence& evidence) {
    std::vector<ProcessEvidence> found;
    std::copy_if(evidence.processes.begin(), evidence.processes.end(), std::back_inserter(found),
                 [](const ProcessEvidence& process) { return process.copy; });
    return found;
  };
  const std::int64_t made = monotonic_ns();
  place_copy(made, true);

  Observer observer(directory);
  std::vector<ProcessEvidence> seen = copies(observer.observe());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].file, copy_name(2, getpid()));
  EXPECT_TRUE(seen[0].alive);
  EXPECT_EQ(seen[0].world_rank, 3);
  ASSERT_EQ(seen[0].blocked.size(), 1u);

  observer.expect_copies_since(made + 1);
  EXPECT_TRUE(copies(observer.observe()).empty()) << "what it has not done may be out of date";
  observer.expect_copies_since(made);
  EXPECT_EQ(copies(observer.observe()).size(), 1u);

  place_copy(made, false);
  observer.expect_copies_since(made + 1);
  seen = copies(observer.observe());
  ASSERT_EQ(seen.size(), 1u) << "who is gone does nothing more";
  EXPECT_FALSE(seen[0].alive);
  EXPECT_EQ(seen[0].signal, SIGKILL);
  EXPECT_TRUE(seen[0].signal_inferred);
  EXPECT_EQ(seen[0].gone_since_ns, made);

  Observer alone(directory);
  alone.only_this_node();
  const Evidence own = alone.observe();
  ASSERT_EQ(own.processes.size(), 1u);
  EXPECT_FALSE(own.processes[0].copy);
}

TEST_F(Record, ForeignPlacesAreRefused) {
  const std::string mine = base_ + "/accel-" + std::to_string(geteuid());
  ASSERT_EQ(mkdir(mine.c_str(), 0755), 0);
  auto open_to_others = RunDirectory::open(base_, "x");
  EXPECT_FALSE(open_to_others);
  EXPECT_NE(open_to_others.error.find("is open to other users"), std::string::npos) << open_to_others.error;
  ASSERT_EQ(rmdir(mine.c_str()), 0);
  ASSERT_EQ(mkdir((base_ + "/elsewhere").c_str(), 0700), 0);
  ASSERT_EQ(symlink("elsewhere", mine.c_str()), 0);
  EXPECT_FALSE(RunDirectory::open(base_, "x")) << "a symbolic link";
  ASSERT_EQ(unlink(mine.c_str()), 0);
  if (geteuid() == 0) {
    ASSERT_EQ(mkdir(mine.c_str(), 0700), 0);
    ASSERT_EQ(chown(mine.c_str(), 12345, 12345), 0);
    auto foreign = RunDirectory::open(base_, "x");
    EXPECT_FALSE(foreign);
    EXPECT_NE(foreign.error.find("belongs to another user"), std::string::npos) << foreign.error;
    ASSERT_EQ(rmdir(mine.c_str()), 0);
  }
  EXPECT_FALSE(RunDirectory::open("/nonexistent", "x"));
  const RunDirectory good = run("x");
  struct stat info;
  ASSERT_EQ(fstat(good.fd(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  Recorder::create(good);
  ASSERT_EQ(fstatat(good.fd(), record_name().c_str(), &info, 0), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(symlinkat("/etc/passwd", good.fd(), "7.record"), 0);
  EXPECT_FALSE(RecordReader::open(good.fd(), "7.record"));
}

TEST_F(Record, ARunOfAccelrunThatIsGoneStaysGone) {
  const std::string id = new_run_id();
  EXPECT_EQ(RunDirectory::open(base_, id).error, kStaleRun);
  auto made = RunDirectory::open(base_, id, RunDirectory::Missing::Make);
  ASSERT_TRUE(made);
  EXPECT_TRUE(RunDirectory::open(base_, id));
  made->remove();
  EXPECT_EQ(RunDirectory::open(base_, id).error, kStaleRun);
}

TEST_F(Record, AFileSizeLimitIsAnErrorAndNoSignal) {
  const RunDirectory directory = run();
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto recorder = Recorder::create(directory);
    _exit(!recorder && recorder.error.find("no room for") == 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Record, OneLeaderAtATime) {
  const RunDirectory directory = run();
  Leadership first;
  Leadership second;
  EXPECT_TRUE(first.acquire(directory));
  EXPECT_TRUE(first.acquire(directory));
  EXPECT_FALSE(second.acquire(directory));
  first.release();
  EXPECT_TRUE(second.acquire(directory));
}

TEST_F(Record, DeadRunsAreSwept) {
  {
    const RunDirectory directory = run("dead");
    const int file = openat(directory.fd(), "999999999.record", O_CREAT | O_WRONLY, 0600);
    close(file);
  }
  const RunDirectory alive = run("alive");
  Recorder::create(alive);
  sweep_dead_runs(base_, 3600);
  const std::string mine = base_ + "/accel-" + std::to_string(geteuid());
  EXPECT_EQ(access((mine + "/dead").c_str(), F_OK), 0) << "too young";
  sweep_dead_runs(base_, 0);
  EXPECT_NE(access((mine + "/dead").c_str(), F_OK), 0);
  EXPECT_EQ(access((mine + "/alive").c_str(), F_OK), 0);
}

int fake_unwinds = 0;
int fake_unwind(std::uint64_t* pcs, int) {
  ++fake_unwinds;
  pcs[0] = 111;
  pcs[1] = 222;
  pcs[2] = 333;
  return 3;
}

TEST_F(Record, ACallSiteIsUnwoundOnce) {
  const RunDirectory directory = run();
  Recorder& recorder = **Recorder::create(directory);
  CallSites sites;
  sites.attach(&recorder.file(), fake_unwind);
  const auto* caller = reinterpret_cast<const void*>(222);
  const auto* frame = reinterpret_cast<const void*>(5000);
  const std::uint16_t site = sites.find(caller, frame);
  ASSERT_NE(site, 0);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(sites.find(caller, frame), site);
  EXPECT_EQ(fake_unwinds, 1);
  EXPECT_NE(sites.find(caller, reinterpret_cast<const void*>(6000)), site)
      << "another depth is another place";
  auto reader = RecordReader::open(directory.fd(), record_name());
  ASSERT_TRUE(reader);
  CallRecord record{};
  record.site = site;
  EXPECT_EQ((*reader)->site(record).addresses, (std::vector<std::uint64_t>{222, 333}))
      << "our own frames are left out";
}

/// Threads that come to their points at their own pace, while others ask for stops: each stops at the same
/// ones.
TEST(AgreedStops, EverybodyStopsAtTheSameNumbers) {
  constexpr std::uint32_t kPoints = 200'000;
  constexpr int kThreads = 4;
  AgreedStop stop{};
  std::vector<std::vector<std::uint32_t>> stops(kThreads);
  std::atomic<int> asked{0};
  std::vector<std::thread> threads;
  for (int self = 0; self < kThreads; ++self) {
    threads.emplace_back([&, self] {
      for (std::uint32_t number = 1; number <= kPoints; ++number) {
        if (self % 2 == 0 && number % 20'000 == 100 && asked.fetch_add(1) < 12) stop.ask();
        if (stop.check(number)) stops[static_cast<std::size_t>(self)].push_back(number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(stops[0].empty());
  for (const auto& one : stops) EXPECT_EQ(one, stops[0]);
}

TEST(AgreedStops, TheFirstThatNobodyHasPassedAndOnlyOnce) {
  AgreedStop stop{};
  EXPECT_FALSE(stop.check(1));
  EXPECT_FALSE(stop.check(2));
  stop.ask();
  stop.ask();  // already asked
  EXPECT_EQ(stop.latest(), 3u);
  EXPECT_TRUE(stop.check(3));
  stop.ask();
  EXPECT_FALSE(stop.check(1)) << "of one far behind, who is to stop at both";
  EXPECT_FALSE(stop.check(2));
  EXPECT_TRUE(stop.check(3));
  EXPECT_TRUE(stop.check(4));
  EXPECT_FALSE(stop.check(5));
  stop.ask(10);
  EXPECT_FALSE(stop.check(10));
  EXPECT_TRUE(stop.check(11));
}

}  // namespace
}  // namespace accel
