// Calls that return at once and wait on streams: what the judge makes of them.
#include <gtest/gtest.h>

#include "simulated_job.h"

namespace accel::testing {
namespace {

TEST(Streams, OneOrderOfTwoCommunicatorsIsSilent) {
  SimulatedJob job(3);
  const auto a = job.add_nccl(11);
  const auto b = job.add_nccl(12);
  for (int rank = 0; rank < 3; ++rank) {
    job.enqueue(rank, a, nccl_allreduce(4));
    job.enqueue(rank, b, nccl_allreduce(4));
  }
  EXPECT_TRUE(job.judge().empty());
}

TEST(Streams, TwoOrdersOnOneStreamAreACircle) {
  SimulatedJob job(3);
  const auto a = job.add_nccl(11);
  const auto b = job.add_nccl(12);
  for (int rank = 0; rank < 3; ++rank) {
    job.enqueue(rank, rank == 1 ? b : a, nccl_allreduce(4));
    job.enqueue(rank, rank == 1 ? a : b, nccl_allreduce(4));
  }
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::Deadlock);
  EXPECT_EQ(blamed(verdicts[0]), (Ranks{0, 1}));
}

TEST(Streams, TwoOrdersOnTwoStreamsOrInOneGroupAreNone) {
  for (const bool grouped : {false, true}) {
    SimulatedJob job(2);
    const auto a = job.add_nccl(11);
    const auto b = job.add_nccl(12);
    for (int rank = 0; rank < 2; ++rank) {
      job.enqueue(rank, rank == 1 ? b : a, nccl_allreduce(4), 0);
      job.enqueue(rank, rank == 1 ? a : b, nccl_allreduce(4), grouped ? 0 : 1, grouped);
    }
    EXPECT_TRUE(job.judge().empty()) << grouped;
  }
}

TEST(Streams, WhatIsKnownToBeCompleteWaitsForNobody) {
  SimulatedJob job(2);
  const auto a = job.add_nccl(11);
  const auto b = job.add_nccl(12);
  for (int rank = 0; rank < 2; ++rank) {
    job.enqueue(rank, rank == 1 ? b : a, nccl_allreduce(4));
    job.enqueue(rank, rank == 1 ? a : b, nccl_allreduce(4));
    job.stand_still(rank, 0, 2, 0);
  }
  EXPECT_TRUE(job.judge().empty());
}

TEST(Streams, SendsMayEndWithoutTheirReceivesUntilTheyAreSeenToStand) {
  SimulatedJob job(2);
  const auto comm = job.add_nccl(11);
  for (int rank = 0; rank < 2; ++rank) {
    job.enqueue(rank, comm, nccl_send(4, 1 - rank));
    job.enqueue(rank, comm, nccl_recv(4, 1 - rank));
  }
  EXPECT_TRUE(job.judge().empty());
  for (int rank = 0; rank < 2; ++rank) job.stand_still(rank, 0, 0, 2);
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::Deadlock);
  EXPECT_EQ(blamed(verdicts[0]), (Ranks{0, 1}));
}

TEST(Streams, TheFirstMessageThatDiffersIsNamed) {
  SimulatedJob job(2);
  const auto comm = job.add_nccl(11);
  for (int message = 1; message <= 5; ++message) {
    job.enqueue(0, comm, nccl_send(message == 3 ? 7 : 4, 1));
    job.enqueue(1, comm, nccl_recv(4, 0));
  }
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::Mismatch);
  ASSERT_EQ(verdicts[0].parties.size(), 2U);
  EXPECT_EQ(verdicts[0].parties[0].call->count, 7);
  EXPECT_EQ(verdicts[0].parties[1].call->count, 4);
  EXPECT_EQ(verdicts[0].parties[0].call->sequence, 3U);
}

TEST(Streams, ARankBehindIsNoFaultUntilItHasLeft) {
  SimulatedJob job(3);
  const auto comm = job.add_nccl(11);
  for (int rank = 0; rank < 3; ++rank) job.enqueue(rank, comm, nccl_allreduce(4));
  job.enqueue(0, comm, nccl_allreduce(4));
  job.enqueue(2, comm, nccl_allreduce(4));
  JudgePolicy patient;
  patient.warn_after_ns = patient.timeout_ns = 0;
  EXPECT_TRUE(job.judge(patient).empty());
  job.process(1).phase = Phase::Exiting;
  job.process(1).exit_status = 0;
  const auto verdicts = job.judge(patient);
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::EarlyExit);
  EXPECT_EQ(blamed(verdicts[0]), (Ranks{1}));
}

TEST(Streams, ACommunicatorThatWasGivenUpIsNotJudged) {
  SimulatedJob job(2);
  const auto comm = job.add_nccl(11);
  job.enqueue(0, comm, nccl_allreduce(4));
  job.enqueue(1, comm, nccl_allreduce(8));
  job.communicator(1, comm).flags |= kCommunicatorAborted | kCommunicatorFreed;
  EXPECT_TRUE(job.judge().empty());
}

TEST(Streams, AGpuThatStandsIsATimeOutAndNobodysFault) {
  SimulatedJob job(2);
  const auto comm = job.add_nccl(11);
  for (int rank = 0; rank < 2; ++rank) {
    job.enqueue(rank, comm, nccl_allreduce(4));
    job.stand_still(rank, 0, 0, 50);
    job.ranks[static_cast<std::size_t>(rank)]->calls[{comm, 1}].started = 0;
  }
  const auto verdicts = job.judge({.timeout_ns = 20 * kSecond});
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::TimeOut);
  EXPECT_TRUE(blamed(verdicts[0]).empty());
}

TEST(Streams, OutOfMemoryComesBeforeWhatFollowsFromIt) {
  SimulatedJob job(2);
  const auto comm = job.add_nccl(11);
  job.enqueue(0, comm, nccl_allreduce(4));
  MemoryEpisode episode{};
  episode.state = EpisodeState::GaveUp;
  episode.bytes = 1 << 30;
  episode.started = static_cast<std::uint64_t>(job.evidence.now_ns - kSecond);
  job.process(1).episodes.push_back(episode);
  EXPECT_TRUE(job.judge({.warn_after_ns = 0}).empty()) << "it lives and may recover";
  job.process(1).phase = Phase::Exiting;
  job.process(1).exit_status = 1;
  const auto verdicts = job.judge();
  ASSERT_FALSE(verdicts.empty());
  EXPECT_EQ(verdicts[0].kind, VerdictKind::OutOfMemory);
  EXPECT_EQ(blamed(verdicts[0]), (Ranks{1}));
  // An allocation that failed long ago is not why it fails now.
  job.process(1).episodes.back().started = 1;
  job.evidence.now_ns += 3600 * kSecond;
  EXPECT_NE(job.judge().front().kind, VerdictKind::OutOfMemory);
}

}  // namespace
}  // namespace accel::testing
