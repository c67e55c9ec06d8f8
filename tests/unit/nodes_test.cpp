#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "collect/observer.h"
#include "nodes/frames.h"
#include "nodes/handshake.h"
#include "nodes/record_copies.h"
#include "nodes/record_source.h"
#include "recorded_rank.h"

namespace accel {
namespace {

using namespace testing;

TEST(Frames, ComeOutAsTheyWentInHoweverTheyAreCut) {
  std::string wire;
  for (int i = 0; i < 20; ++i)
    wire += encoded(static_cast<FrameKind>(1 + i % 5), std::string(static_cast<std::size_t>(i * 7), 'x'));
  for (std::size_t piece = 1; piece < wire.size(); piece += 3) {
    FrameParser parser(kLongestOfStranger);
    int count = 0;
    for (std::size_t at = 0; at < wire.size(); at += piece) {
      parser.add(std::string_view(wire).substr(at, piece));
      while (const auto frame = parser.next()) {
        EXPECT_EQ(static_cast<int>(frame->kind), 1 + count % 5);
        EXPECT_EQ(frame->body, std::string(static_cast<std::size_t>(count * 7), 'x'));
        ++count;
      }
    }
    EXPECT_EQ(count, 20);
    EXPECT_FALSE(parser.is_broken());
  }
}

TEST(Frames, AreRefusedWhereTooLongOrEmptyBeforeTheyAreKept) {
  FrameParser parser(kLongestOfStranger);
  parser.add(encoded(FrameKind::Hello, std::string(kLongestOfStranger - 1, 'x')));
  EXPECT_TRUE(parser.next());
  std::string announced;
  put(announced, static_cast<std::uint32_t>(kLongestOfStranger + 1));
  parser.add(announced);
  EXPECT_FALSE(parser.next());
  EXPECT_TRUE(parser.is_broken());
  parser.add(encoded(FrameKind::Hello, "x"));
  EXPECT_FALSE(parser.next()) << "nothing brings it back into step";

  FrameParser http(kLongestOfStranger);
  http.add("GET / HTTP/1.1\r\n");
  EXPECT_FALSE(http.next());
  EXPECT_TRUE(http.is_broken());

  FrameParser empty(kLongestOfStranger);
  empty.add(std::string(4, '\0'));
  EXPECT_FALSE(empty.next());
  EXPECT_TRUE(empty.is_broken());
}

TEST(Handshake, LetsInWhoKnowsTheTokenOnly) {
  const Token token = Token::random();
  ASSERT_TRUE(Token::parse(token.text()));
  EXPECT_EQ(Token::parse(token.text())->bytes, token.bytes);
  EXPECT_FALSE(Token::parse(token.text().substr(1)));
  EXPECT_FALSE(Token::parse(token.text() + "0"));
  EXPECT_FALSE(Token::parse("g" + token.text().substr(1)));

  const Introduction leader(token, "accelrun.a.1", "b", 17);
  Reception coordinator(token, "accelrun.a.1");
  auto challenge = coordinator.challenge(leader.hello());
  ASSERT_TRUE(challenge) << challenge.error;
  const auto proof = leader.answer(*challenge);
  ASSERT_TRUE(proof);
  EXPECT_TRUE(coordinator.accepts(*proof));

  Reception again(token, "accelrun.a.1");
  ASSERT_TRUE(again.challenge(leader.hello()));
  EXPECT_FALSE(again.accepts(*proof)) << "a replay";
  EXPECT_FALSE(coordinator.accepts(Proof{challenge->mac})) << "its own proof, returned";
  EXPECT_FALSE(Introduction(token, "accelrun.a.1", "b", 17).answer(*challenge)) << "another connection's";

  Reception stranger(Token::random(), "accelrun.a.1");
  auto false_challenge = stranger.challenge(leader.hello());
  ASSERT_TRUE(false_challenge);
  EXPECT_FALSE(leader.answer(*false_challenge)) << "a coordinator that does not know the token";
}

TEST(Handshake, SaysWhySomebodyIsSentAway) {
  const Token token = Token::random();
  Reception coordinator(token, "accelrun.a.1");
  const auto refused = [&](Hello hello) { return coordinator.challenge(hello).error; };
  EXPECT_EQ(refused(Introduction(token, "accelrun.a.2", "b", 1).hello()), "it belongs to another run");
  Hello hello = Introduction(token, "accelrun.a.1", "b", 1).hello();
  hello.layout += 1;
  EXPECT_NE(refused(hello).find("its libaccel is another build"), std::string::npos);
  hello.magic += 1;
  EXPECT_EQ(refused(hello), "it is no libaccel");
}

TEST(ClockOffset, TakesTheQuickestAnswerWhileItIsFresh) {
  ClockOffset offset;
  EXPECT_EQ(offset.error(), -1);
  offset.add(1000, 501'100, 1200);
  EXPECT_EQ(offset.value(), -500'000);
  EXPECT_EQ(offset.error(), 100);
  offset.add(2000, 509'000, 9000);
  EXPECT_EQ(offset.value(), -500'000) << "a slow answer says less";
  offset.add(10'000, 510'010, 10'020);
  EXPECT_EQ(offset.error(), 10);
  offset.add(10'000 + 60'000'000'000, 70'000'510'000, 60'000'012'000);
  EXPECT_EQ(offset.error(), 1000) << "clocks drift";
}

/// A rank's recorder file, and a run directory of "another node" that it is copied to.
class Copies : public ::testing::Test {
 protected:
  /// Bytes that went over.
  std::size_t send(bool everything = false, std::int64_t clock_offset_ns = 0) {
    CopyStatus status{};
    status.at_ns = monotonic_ns();
    status.now = ClockPair::now();
    status.alive = 1;
    std::string header_page;
    EXPECT_TRUE(source_.read(everything, header_page, [&](std::uint64_t offset, std::string_view bytes) {
      const std::string body = chunk_body(getpid(), offset, bytes);
      EXPECT_LT(body.size(), kLongestFrame);
      EXPECT_TRUE(copies_.take({FrameKind::Chunk, body}));
    }));
    EXPECT_TRUE(copies_.take({FrameKind::Process, process_body(getpid(), status, header_page)}));
    const std::size_t bytes = copies_.waiting();
    EXPECT_EQ(copies_.show(clock_offset_ns), "");
    EXPECT_EQ(copies_.waiting(), 0u);
    return bytes;
  }
  std::shared_ptr<RecordReader> copy() { return *RecordReader::open(there_.fd(), copy_name(1, getpid())); }

  TemporaryDirectory directory_;
  const RunDirectory here_ = directory_.run("here");
  const RunDirectory there_ = directory_.run("there");
  RecordedRank rank_{here_, 1, 2};
  RecordSource source_{here_.fd(), record_name(getpid())};
  RecordCopies copies_{there_, 1};
};

TEST_F(Copies, AreWhatTheFileIsAndOnlyWhatChangesIsSent) {
  for (int i = 0; i < 100; ++i) Recorder::end(rank_.begin());
  rank_.begin();
  const std::size_t first = send();
  ProcessEvidence original;
  ASSERT_TRUE((*RecordReader::open(here_.fd(), record_name(getpid())))->read(original));
  ProcessEvidence copied;
  ASSERT_TRUE(copy()->read(copied));
  EXPECT_EQ(copied.pid, original.pid);
  EXPECT_EQ(copied.world_rank, 1);
  ASSERT_EQ(copied.communicators.size(), 1u);
  EXPECT_EQ(copied.communicators[0].record.sequence, 101u);
  EXPECT_EQ(copied.communicators[0].record.chain, original.communicators[0].record.chain);
  ASSERT_EQ(copied.blocked.size(), 1u);
  EXPECT_EQ(copied.blocked[0].record.sequence, 101u);
  for (std::uint64_t sequence = 1; sequence <= 101; ++sequence)
    EXPECT_TRUE(copy()->call(static_cast<std::uint16_t>(rank_.slot), sequence)) << sequence;

  EXPECT_LT(first, 1'000'000u);
  EXPECT_LT(send(), 2 * kRecordPage) << "nothing has changed but the header";
  rank_.begin();
  EXPECT_LT(send(), 6 * kRecordPage) << "one call";
  source_.forget();
  EXPECT_GE(send(), first) << "the other side has lost everything";
}

TEST_F(Copies, HoldTheLatestCallsOfALongRunAndAllOfThemAtTheEnd) {
  constexpr std::uint64_t kCalls = kCollectives + 5000;
  for (std::uint64_t i = 0; i < kCalls; ++i) Recorder::end(rank_.begin());
  send();
  const auto slot = static_cast<std::uint16_t>(rank_.slot);
  const std::uint64_t recent = kCalls - RecordSource::kRecentCalls + 1;
  EXPECT_TRUE(copy()->call(slot, kCalls));
  EXPECT_TRUE(copy()->call(slot, recent));
  EXPECT_FALSE(copy()->call(slot, recent - 100));
  send(true);
  EXPECT_TRUE(copy()->call(slot, kCalls - kCollectives + 1));
}

TEST_F(Copies, HaveTheirTimesByTheClockOfWhereTheyLie) {
  constexpr std::int64_t kOffset = 3'600'000'000'000;
  Recorder::end(rank_.begin());
  rank_.begin();
  send(false, kOffset);
  const auto original = *RecordReader::open(here_.fd(), record_name(getpid()));
  const auto copied = copy();
  const auto slot = static_cast<std::uint16_t>(rank_.slot);
  const std::int64_t there = copied->started_ns(*copied->call(slot, 1));
  const std::int64_t here = original->started_ns(*original->call(slot, 1));
  EXPECT_NEAR(static_cast<double>(there - here), static_cast<double>(kOffset), 1e7);
  EXPECT_GT(copied->copied().at_ns, kOffset);
}

TEST_F(Copies, MadeWhileTheProcessGoesOnShowNothingThatNeverWas) {
  std::atomic<bool> over{false};
  std::thread caller([&] {
    while (!over.load()) Recorder::end(rank_.begin());
  });
  for (int round = 0; round < 200; ++round) {
    send();
    ProcessEvidence seen;
    ASSERT_TRUE(copy()->read(seen));
    ASSERT_LE(seen.communicators.size(), 1u);
    for (const BlockedCall& call : seen.blocked) {
      ASSERT_NE(call.record.stamp, 0u) << "a call without its record";
      EXPECT_EQ(call.record.function, Function::Allreduce);
      if (!seen.communicators.empty()) {
        EXPECT_LE(call.record.sequence, seen.communicators[0].record.sequence);
      }
    }
  }
  over.store(true);
  caller.join();
}

TEST_F(Copies, OfNonsenseAreNotMade) {
  const auto chunk = [](std::int32_t pid, std::uint64_t offset, std::size_t bytes) {
    return WireFrame{FrameKind::Chunk, chunk_body(pid, offset, std::string(bytes, 'x'))};
  };
  EXPECT_FALSE(copies_.take(chunk(0, 4096, 10)));
  EXPECT_FALSE(copies_.take(chunk(-5, 4096, 10)));
  EXPECT_FALSE(copies_.take(chunk(5, 0, 10))) << "the header goes another way";
  EXPECT_FALSE(copies_.take(chunk(5, 100, 10)));
  EXPECT_FALSE(copies_.take(chunk(5, 4096, 0)));
  EXPECT_FALSE(copies_.take({FrameKind::Chunk, "short"}));
  EXPECT_FALSE(copies_.take({FrameKind::Process, std::string(5000, 'x')}));
  EXPECT_FALSE(copies_.take({FrameKind::Hello, ""}));

  EXPECT_TRUE(copies_.take(chunk(5, 4096, 10)));
  EXPECT_NE(copies_.show(0), "") << "no header came with it";
  EXPECT_FALSE(RecordReader::open(there_.fd(), copy_name(1, 5)));

  EXPECT_TRUE(copies_.take(chunk(getpid(), std::uint64_t{1} << 40, 10)));
  std::string header_page;
  ASSERT_TRUE(source_.read(false, header_page, [](std::uint64_t, std::string_view) {}));
  EXPECT_TRUE(copies_.take({FrameKind::Process, process_body(getpid(), {}, header_page)}));
  EXPECT_NE(copies_.show(0), "") << "beyond the file's end";
  EXPECT_FALSE(RecordReader::open(there_.fd(), copy_name(1, getpid())));

  int taken = 0;
  for (int pid = 1; pid < 3000; ++pid) taken += copies_.take(chunk(pid, 4096, 10)) ? 1 : 0;
  EXPECT_EQ(taken, static_cast<int>(RecordCopies::kMostProcesses));
}

}  // namespace
}  // namespace accel
