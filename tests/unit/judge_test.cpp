#include "judge/judge.h"

#include <gtest/gtest.h>

#include <csignal>

#include "simulated_job.h"

namespace accel::testing {
namespace {

using Fields = std::vector<Field>;

TEST(Judge, AgreementIsSilent) {
  SimulatedJob job(4);
  for (int step = 0; step < 5; ++step) {
    for (int rank = 0; rank < 4; ++rank) job.call(rank, 0, allreduce(1024));
  }
  job.enter(2, 0, barrier());
  EXPECT_TRUE(job.judge().empty());
}

TEST(Judge, NamesTheFieldAndTheMinority) {
  struct Case {
    Arguments right, wrong;
    Fields fields;
  };
  const Case cases[] = {
      {allreduce(1024), allreduce(512), {Field::Count}},
      {allreduce(4), allreduce(4, BasicType::Float32), {Field::Datatype}},
      {allreduce(4), allreduce(4, BasicType::Float64, 1), {Field::ReduceOp}},
      {allreduce(4), allreduce(8, BasicType::Float32, 1), {Field::ReduceOp, Field::Datatype, Field::Count}},
      {bcast(4, 0), bcast(4, 2), {Field::Root}},
      {allreduce(4), barrier(), {Field::Kind}},
  };
  for (const Case& one : cases) {
    SimulatedJob job(4);
    for (int rank = 0; rank < 4; ++rank) job.call(rank, 0, barrier());
    for (int rank = 0; rank < 4; ++rank) job.enter(rank, 0, rank == 1 ? one.wrong : one.right);
    const auto verdicts = job.judge();
    ASSERT_FALSE(verdicts.empty());
    EXPECT_EQ(verdicts[0].kind, VerdictKind::Mismatch);
    EXPECT_EQ(verdicts[0].sequence, 2u);
    EXPECT_EQ(verdicts[0].function, one.right.function);
    EXPECT_EQ(verdicts[0].fields, one.fields);
    EXPECT_EQ(blamed(verdicts[0]), Ranks{1});
    EXPECT_TRUE(verdicts[0].settled);
    EXPECT_EQ(exit_status(verdicts[0].kind), 80);
  }
}

TEST(Judge, FindsTheFirstOfManyDifferencesThoughOthersHaveGoneOn) {
  SimulatedJob job(3);
  for (int step = 1; step <= 1000; ++step) {
    for (int rank = 0; rank < 3; ++rank) job.call(rank, 0, allreduce(step >= 617 && rank == 2 ? 5 : 4));
  }
  for (int i = 0; i < 20; ++i) job.call(0, 0, allreduce(4));
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].sequence, 617u);
  EXPECT_EQ(blamed(verdicts[0]), Ranks{2});
}

TEST(Judge, BlamesNobodyWithoutAMajority) {
  SimulatedJob job(2);
  job.enter(0, 0, allreduce(4));
  job.enter(1, 0, allreduce(5));
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(blamed(verdicts[0]), Ranks{});
  EXPECT_EQ(verdicts[0].fields, Fields{Field::Count});
}

TEST(Judge, WaitsForTheOthersBeforeItBlames) {
  SimulatedJob job(4);
  job.enter(0, 0, allreduce(4));
  job.enter(1, 0, allreduce(5));
  ASSERT_FALSE(job.judge().empty());
  EXPECT_FALSE(job.judge()[0].settled);
  job.evidence.now_ns += kSecond;
  EXPECT_TRUE(job.judge()[0].settled);
}

TEST(Judge, WaitsForAMemberThatIsStillInsideTheCallThatMakesTheCommunicator) {
  SimulatedJob job(3);
  const auto copy = job.add_communicator({0, 1, 2}, 9);
  job.enter(0, copy, bcast(4, 2));
  job.enter(1, copy, bcast(4, 0));
  const CommunicatorEvidence theirs = job.process(2).communicators.back();
  job.process(2).communicators.pop_back();
  ASSERT_FALSE(job.judge().empty());
  EXPECT_FALSE(job.judge()[0].settled);
  job.process(2).communicators.push_back(theirs);
  job.enter(2, copy, bcast(4, 2));
  EXPECT_TRUE(job.judge()[0].settled);
  EXPECT_EQ(blamed(job.judge()[0]), Ranks{1});
}

TEST(Judge, ComparesSubCommunicatorsByThemselves) {
  SimulatedJob job(6);
  const auto evens = job.add_communicator({0, 2, 4}, 11);
  const auto odds = job.add_communicator({1, 3, 5}, 12);
  for (int rank = 0; rank < 6; ++rank)
    job.call(rank, rank % 2 == 0 ? evens : odds, allreduce(rank % 2 == 0 ? 8 : 9));
  EXPECT_TRUE(job.judge().empty());
  for (int rank = 1; rank < 6; rank += 2) job.call(rank, odds, bcast(2, rank == 5 ? 1 : 0));
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].communicator, 12u);
  EXPECT_EQ(blamed(verdicts[0]), Ranks{5});
}

TEST(Judge, SaysNothingOfWhatCannotBeCompared) {
  SimulatedJob job(2);
  job.communicator(1, 0).flags = kCommunicatorOpaque;
  job.enter(0, 0, allreduce(4));
  job.enter(1, 0, allreduce(5));
  EXPECT_TRUE(job.judge().empty());
}

TEST(Judge, InvisibleRanksAreNoEvidence) {
  SimulatedJob job(4);  // ranks 2 and 3 live on another node
  job.evidence.processes.resize(2);
  job.enter(0, 0, barrier());
  job.enter(1, 0, barrier());
  EXPECT_TRUE(job.judge().empty());
}

VectorEvidence alltoallv_of(int rank, const std::vector<std::vector<int>>& sends,
                            const std::vector<std::vector<int>>& expects) {
  VectorEvidence vectors;
  const auto block = [](int count) {
    return PeerBlock{block_hash(TypeSignature::of(BasicType::Int32), count), count};
  };
  for (std::size_t peer = 0; peer < sends.size(); ++peer) {
    vectors.sends.push_back(block(sends[static_cast<std::size_t>(rank)][peer]));
    vectors.expects.push_back(block(expects[peer][static_cast<std::size_t>(rank)]));
  }
  return vectors;
}

TEST(Judge, VectorsMayDifferButMustMeet) {
  const std::vector<std::vector<int>> sends = {{1, 0, 2}, {3, 3, 0}, {0, 5, 7}};
  SimulatedJob job(3);
  for (int rank = 0; rank < 3; ++rank) {
    job.call(rank, 0, {Function::Alltoallv, 0, BasicType::Int32, 0, 0, alltoallv_of(rank, sends, sends)});
  }
  EXPECT_TRUE(job.judge().empty());
  auto expects = sends;
  expects[2][1] = 6;  // rank 1 expects 6 of rank 2, which sends 5
  for (int rank = 0; rank < 3; ++rank) {
    job.enter(rank, 0, {Function::Alltoallv, 0, BasicType::Int32, 0, 0, alltoallv_of(rank, sends, expects)});
  }
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].fields, Fields{Field::Peers});
  EXPECT_EQ(verdicts[0].sequence, 2u);
  ASSERT_EQ(verdicts[0].details.size(), 1u);
  EXPECT_EQ(verdicts[0].details[0], "process 2 sends 5 elements to process 1, which expects 6");
}

TEST(Judge, EarlyFinalize) {
  SimulatedJob job(3);
  job.process(1).phase = Phase::Finalized;
  job.enter(1, 0, finalize());
  job.enter(0, 0, allreduce(4));
  job.enter(2, 0, allreduce(4));
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::EarlyExit);
  EXPECT_EQ(verdicts[0].function, Function::Allreduce);
  EXPECT_EQ(blamed(verdicts[0]), Ranks{1});
  EXPECT_EQ(exit_status(verdicts[0].kind), 82);
}

TEST(Judge, EarlyExitOnlyIfSomebodyCannotGoOnWithoutIt) {
  SimulatedJob job(3);
  job.process(2).alive = false;
  job.process(2).phase = Phase::Exiting;
  job.process(2).exit_status = 3;
  job.enter(1, 0, bcast(4, 0));  // needs the root alone
  EXPECT_TRUE(job.judge().empty());
  job.enter(0, 0, bcast(4, 0));
  EXPECT_TRUE(job.judge().empty());
  job.evidence.now_ns += kSecond;  // but it would have returned by now
  ASSERT_FALSE(job.judge().empty());
  EXPECT_EQ(job.judge()[0].kind, VerdictKind::EarlyExit);
  EXPECT_EQ(blamed(job.judge()[0]), Ranks{2});
  SimulatedJob other(3);
  other.process(0).alive = false;
  other.process(0).signal = SIGKILL;
  other.process(0).gone_since_ns = 1;
  other.enter(1, 0, bcast(4, 0));
  const auto verdicts = other.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::EarlyExit);
  EXPECT_EQ(blamed(verdicts[0]), Ranks{0});
}

TEST(Judge, ZeroElementsMakeNobodyWait) {
  SimulatedJob job(2);
  job.process(1).phase = Phase::Finalized;
  job.enter(0, 0, allreduce(0));
  EXPECT_TRUE(job.judge().empty());
}

TEST(Judge, AbortAndTerminationAreNoEarlyExit) {
  SimulatedJob job(3);
  job.enter(0, 0, barrier());
  job.process(1).phase = Phase::Aborting;
  EXPECT_TRUE(job.judge().empty());
  job.process(1).phase = Phase::Running;
  job.process(1).alive = false;
  job.process(1).terminated = true;
  job.process(1).signal = SIGTERM;
  EXPECT_TRUE(job.judge().empty());
  job.process(1).terminated = false;
  job.process(1).signal = SIGKILL;
  EXPECT_FALSE(job.judge().empty());
  JudgePolicy ending;
  ending.ending = true;
  EXPECT_TRUE(job.judge(ending).empty());
}

TEST(Judge, AllKilledTogetherIsNobodysEarlyExit) {
  SimulatedJob job(2);
  job.enter(0, 0, barrier());
  for (int rank = 0; rank < 2; ++rank) {
    job.process(rank).alive = false;
    job.process(rank).signal = SIGKILL;
    job.process(rank).gone_since_ns = 5;
  }
  EXPECT_TRUE(job.judge().empty());
}

TEST(Judge, CrashIsNamedBeforeWhatFollowsFromIt) {
  SimulatedJob job(3);
  job.enter(0, 0, barrier());
  job.process(1).signal = SIGSEGV;
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::Crash);
  EXPECT_EQ(blamed(verdicts[0]), Ranks{1});
  EXPECT_EQ(exit_status(verdicts[0].kind), 85);
}

TEST(Judge, AMismatchIsTheCauseOfACrash) {
  SimulatedJob job(3);
  for (int rank = 0; rank < 3; ++rank) job.enter(rank, 0, allreduce(rank == 0 ? 1 : 2));
  job.process(2).signal = SIGABRT;
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::Mismatch);
}

TEST(Judge, CircleOverTwoCommunicators) {
  SimulatedJob job(3);
  const auto other = job.add_communicator({0, 1, 2}, 9);
  job.enter(0, 0, barrier());
  job.enter(1, other, barrier());
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::Deadlock);
  EXPECT_EQ(blamed(verdicts[0]), (Ranks{0, 1}));
  EXPECT_EQ(exit_status(verdicts[0].kind), 81);
}

TEST(Judge, CircleOfThree) {
  SimulatedJob job(3);
  const std::uint16_t pairs[3] = {job.add_communicator({0, 1}, 21), job.add_communicator({1, 2}, 22),
                                  job.add_communicator({2, 0}, 23)};
  for (int rank = 0; rank < 2; ++rank) job.enter(rank, pairs[rank], barrier());
  EXPECT_TRUE(job.judge().empty());  // rank 2 may still come
  job.enter(2, pairs[2], barrier());
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(blamed(verdicts[0]), (Ranks{0, 1, 2}));
}

TEST(Judge, NoCircleWhereAnotherThreadCouldMakeTheCall) {
  SimulatedJob job(2);
  const auto other = job.add_communicator({0, 1}, 9);
  job.enter(0, 0, barrier());
  job.enter(1, other, barrier());
  job.process(0).no_other_thread = false;
  EXPECT_TRUE(job.judge().empty());
}

TEST(Judge, AStandstillOfAllIsADeadlockThoughNoCircleIsCertain) {
  SimulatedJob job(3);
  const auto other = job.add_communicator({0, 1, 2}, 9);
  job.enter(0, 0, bcast(4, 1));      // needs rank 1
  job.enter(1, other, bcast(4, 1));  // the root needs nobody for certain
  job.enter(2, 0, bcast(4, 1));
  job.evidence.now_ns += 9 * kSecond;
  EXPECT_TRUE(job.judge().empty());
  job.evidence.now_ns += 2 * kSecond;
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::Deadlock);
  EXPECT_EQ(blamed(verdicts[0]), Ranks{1});
  job.process(2).blocked.clear();  // one of them computes: it may still come
  EXPECT_TRUE(job.judge().empty());
}

TEST(Judge, LateThenTimeOut) {
  SimulatedJob job(3);
  job.enter(0, 0, barrier());
  job.enter(2, 0, barrier());
  job.evidence.now_ns += 29 * kSecond;
  EXPECT_TRUE(job.judge().empty());
  job.evidence.now_ns += 2 * kSecond;
  auto verdicts = job.judge();
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].kind, VerdictKind::Late);
  EXPECT_FALSE(verdicts[0].is_fault());
  EXPECT_EQ(blamed(verdicts[0]), Ranks{1});
  job.evidence.now_ns += 600 * kSecond;
  verdicts = job.judge();
  EXPECT_EQ(verdicts[0].kind, VerdictKind::TimeOut);
  JudgePolicy slept;
  slept.not_before_ns = job.evidence.now_ns - kSecond;  // the observer was stopped all that time
  EXPECT_TRUE(job.judge(slept).empty());
  JudgePolicy never;
  never.timeout_ns = never.warn_after_ns = 0;
  EXPECT_TRUE(job.judge(never).empty());
}

TEST(Judge, WaitingForAMessageIsNobodysFault) {
  SimulatedJob job(2);
  CallRecord receive{};
  receive.function = Function::Recv;
  receive.root = 1;
  job.process(0).blocked.push_back({1000, receive, job.evidence.now_ns});
  job.evidence.now_ns += 1000 * kSecond;
  EXPECT_TRUE(job.judge().empty());
  job.process(1).alive = false;
  job.process(1).signal = SIGKILL;
  job.process(1).gone_since_ns = job.evidence.now_ns - kSecond;
  EXPECT_TRUE(job.judge().empty()) << "its last message may be under way";
  job.evidence.now_ns += 5 * kSecond;
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::EarlyExit);
}

TEST(Judge, ARankThatStandsStillAfterAnOutOfMemoryIsOne) {
  const auto job_at = [](int seconds) {
    SimulatedJob job(3);
    MemoryEpisode episode{};
    episode.state = EpisodeState::GaveUp;
    episode.bytes = 1000;
    episode.started = 1;
    job.enter(0, 0, allreduce(4));
    job.enter(2, 0, allreduce(4));
    job.process(1).episodes.push_back(episode);
    job.evidence.now_ns += seconds * kSecond;
    return job;
  };
  JudgePolicy policy;
  policy.warn_after_ns = 0;
  EXPECT_TRUE(job_at(30).judge(policy).empty()) << "it may still come out of it";
  const auto verdicts = job_at(61).judge(policy);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].kind, VerdictKind::OutOfMemory);
  EXPECT_EQ(blamed(verdicts[0]), Ranks{1});
  policy.oom_grace_ns = 0;
  EXPECT_TRUE(job_at(400).judge(policy).empty()) << "never";
}

TEST(Judge, AnOutOfMemoryThatIsOverIsNone) {
  SimulatedJob job(2);
  MemoryEpisode episode{};
  episode.state = EpisodeState::Open;
  episode.bytes = 1000;
  job.process(1).episodes.push_back(episode);
  for (int step = 0; step < 3; ++step) {
    job.call(0, 0, allreduce(4));
    job.call(1, 0, allreduce(4));
  }
  job.enter(0, 0, allreduce(4));
  job.evidence.now_ns += 100 * kSecond;
  JudgePolicy policy;
  policy.warn_after_ns = 0;
  EXPECT_TRUE(job.judge(policy).empty()) << "it went on with its collectives";
}

TEST(Judge, ARankThatLeavesOthersAfterAnOutOfMemoryIsOneWhateverItReturns) {
  SimulatedJob job(2);
  MemoryEpisode episode{};
  episode.state = EpisodeState::Open;
  episode.bytes = 1000;
  episode.started = static_cast<std::uint64_t>(job.evidence.now_ns);
  job.process(1).episodes.push_back(episode);
  job.process(1).phase = Phase::Exiting;
  job.process(1).exit_status = 0;
  EXPECT_TRUE(job.judge().empty()) << "nobody waits for it";
  job.enter(0, 0, allreduce(4));
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::OutOfMemory);
}

TEST(Judge, HostileEvidenceIsHarmless) {
  SimulatedJob job(3);
  job.communicator(2, 0).rank = 0;  // claims to be rank 0 as well
  for (int rank = 0; rank < 3; ++rank) job.enter(rank, 0, allreduce(rank));
  EXPECT_TRUE(job.judge().empty());
  job.process(1).blocked[0].record.function = static_cast<Function>(60000);
  job.process(1).blocked[0].record.communicator = 999;
  job.judge();
}

}  // namespace
}  // namespace accel::testing
