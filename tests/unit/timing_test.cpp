// Who waited for whom, from when ranks came.
#include <gtest/gtest.h>

#include "record/layout.h"
#include "timing/arrivals.h"
#include "timing/wait_tally.h"

namespace accel {
namespace {

Arrival came(std::uint32_t process, std::uint64_t sequence, std::int64_t at,
             Function function = Function::Allreduce, std::int32_t root = -1) {
  Arrival arrival;
  arrival.process = process;
  arrival.rank = static_cast<std::int32_t>(process);
  arrival.sequence = sequence;
  arrival.started_ns = at;
  arrival.function = function;
  arrival.root = root;
  return arrival;
}

TEST(Arrivals, EverybodyWaitsForTheLast) {
  Meetings meetings;
  const std::int64_t times[] = {100, 700, 400};
  for (std::uint32_t process = 0; process < 3; ++process) meetings.add(came(process, 1, times[process]));
  const Meeting& meeting = *meetings.find(1);
  EXPECT_EQ(meeting.last, 1u);
  EXPECT_EQ(waited(came(0, 1, 100), meeting, 3), 600);
  EXPECT_EQ(waited(came(1, 1, 700), meeting, 3), 0);
  EXPECT_EQ(lost(meeting, 3), 300) << "had it come with the last but one";
  EXPECT_EQ(waited(came(0, 1, 100), meeting, 4), 0) << "one has not been seen: nothing is concluded";
  EXPECT_EQ(lost(meeting, 4), 0);
}

TEST(Arrivals, WhoWaitsDependsOnWhereDataFlows) {
  Meetings meetings;
  for (const auto& [function, number] : {std::pair(Function::Bcast, 1), std::pair(Function::Reduce, 2)}) {
    meetings.add(came(0, number, 500, function, 0));
    meetings.add(came(1, number, 200, function, 0));
    meetings.add(came(2, number, 900, function, 0));
  }
  EXPECT_EQ(waited(came(1, 1, 200, Function::Bcast, 0), *meetings.find(1), 3), 300) << "for the root";
  EXPECT_EQ(waited(came(0, 1, 500, Function::Bcast, 0), *meetings.find(1), 3), 0);
  EXPECT_EQ(waited(came(0, 2, 500, Function::Reduce, 0), *meetings.find(2), 3), 400) << "the root for all";
  EXPECT_EQ(waited(came(1, 2, 200, Function::Reduce, 0), *meetings.find(2), 3), 0);
}

TEST(Arrivals, NobodyWaitsLongerThanTheCallTook) {
  Meetings meetings;
  meetings.add(came(0, 1, 0));
  meetings.add(came(1, 1, 1000));
  Arrival arrival = came(0, 1, 0);
  arrival.duration_ns = 10;  // the message was small enough to be sent at once
  EXPECT_EQ(waited(arrival, *meetings.find(1), 2), 10);
}

TEST(Arrivals, HalvesThatWereReadApartMerge) {
  Meetings whole;
  Meetings one;
  Meetings other;
  for (std::uint64_t number = 1000; number > 0; --number) {
    for (std::uint32_t process = 0; process < 4; ++process) {
      const Arrival arrival =
          came(process, number, static_cast<std::int64_t>(number * 1000 + (process * number) % 7));
      whole.add(arrival);
      (process % 2 == 0 ? one : other).add(arrival);
    }
  }
  one.size = whole.size = 4;
  one.merge(other);
  for (std::uint64_t number = 1; number <= 1000; ++number) {
    const Meeting& a = *whole.find(number);
    const Meeting& b = *one.find(number);
    EXPECT_EQ(a.seen, b.seen);
    EXPECT_EQ(a.last_ns, b.last_ns);
    EXPECT_EQ(a.second_ns, b.second_ns);
    EXPECT_EQ(a.first_ns, b.first_ns);
  }
  EXPECT_EQ(one.find(0), nullptr);
  EXPECT_EQ(one.find(1001), nullptr);
}

TEST(Arrivals, ANumberFromADamagedFileTakesNoMemory) {
  Meetings meetings;
  meetings.add(came(0, 5, 100));
  meetings.add(came(1, UINT64_MAX - 3, 100));
  meetings.add(came(1, 0, 100));
  EXPECT_EQ(meetings.all.size(), 1u);
}

TEST(WaitTally, CountsWhatIsWholeAndKeepsWhatIsNot) {
  WaitTally tally;
  constexpr std::uint64_t kWorld = 7;
  // Rank 0 comes early to all, rank 2 late; they are read one after another.
  for (std::uint32_t process = 0; process < 3; ++process) {
    for (std::uint64_t number = 1; number <= 10; ++number)
      tally.add(kWorld, 3, came(process, number, static_cast<std::int64_t>(number * 1000 + process * 100)));
  }
  EXPECT_EQ(tally.waited_ns(0), 10 * 200);
  EXPECT_EQ(tally.waited_ns(1), 10 * 100);
  EXPECT_EQ(tally.waited_ns(2), 0);
  EXPECT_EQ(tally.waited_ns(99), 0);
  // To these one never comes: nothing is concluded, and they do not pile up.
  for (std::uint64_t number = 11; number < 20'000; ++number) tally.add(kWorld, 3, came(0, number, 0));
  EXPECT_EQ(tally.waited_ns(0), 2000);
  tally.add(kWorld, 3, came(1, 19'999, 50));
  tally.add(kWorld, 3, came(2, 19'999, 60));
  EXPECT_EQ(tally.waited_ns(0), 2060) << "the latest are still known";
  tally.add(kWorld, 1, came(0, 30'000, 0));
  EXPECT_EQ(tally.waited_ns(0), 2060);
}

TEST(Stragglers, OneThatCostsTimeIsNamedAndJitterIsNot) {
  std::vector<RankTiming> ranks(4);
  for (int i = 0; i < 100; ++i) ranks[static_cast<std::size_t>(i % 4)].late_ns.push_back(10);
  for (RankTiming& rank : ranks) rank.last = 25, rank.lost_ns = 250;
  EXPECT_TRUE(stragglers(ranks, 100, 1'000'000).empty()) << "everybody is last at times";
  ranks[2].last = 80;
  ranks[2].lost_ns = 80 * 5000;
  ranks[2].late_ns.assign(80, 5000);
  const auto found = stragglers(ranks, 155, 1'000'000);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].process, 2u);
  EXPECT_EQ(found[0].last, 80u);
  EXPECT_EQ(found[0].median_late_ns, 5000);
  EXPECT_TRUE(stragglers(ranks, 155, 1'000'000'000).empty()) << "it costs next to nothing";
  EXPECT_TRUE(stragglers(ranks, 19, 1'000'000).empty()) << "of so few nothing is said";
}

TEST(DurationCode, KeepsThreeDigitsOfAnyTime) {
  for (std::uint64_t ticks = 2; ticks < std::uint64_t{1} << 41; ticks = ticks * 5 / 4 + 1) {
    const std::uint64_t again = Duration::decode(Duration::encode(ticks));
    EXPECT_LE(again, ticks);
    EXPECT_LE(static_cast<double>(ticks - again), static_cast<double>(ticks) / 2048) << ticks;
    EXPECT_GE(Duration::encode(ticks), 2);
  }
  EXPECT_EQ(Duration::encode(0), 2);
  EXPECT_EQ(Duration::decode(0), 0u);
  EXPECT_EQ(Duration::decode(1), 0u);
  EXPECT_EQ(Duration::encode(UINT64_MAX), 0xffff);
}

}  // namespace
}  // namespace accel
