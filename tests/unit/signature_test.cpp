#include <gtest/gtest.h>

#include <random>

#include "interpose/handle_map.h"
#include "report/rank_set.h"
#include "signature/agreement.h"
#include "signature/datatype.h"
#include "signature/function.h"

namespace accel {
namespace {

TypeSignature one(BasicType type) { return TypeSignature::of(type); }

TEST(TypeSignature, DoesNotDependOnGrouping) {
  const TypeSignature mixed = concat(one(BasicType::Float64), one(BasicType::Int32));
  EXPECT_EQ(repeat(mixed, 6), repeat(repeat(mixed, 2), 3));
  EXPECT_EQ(repeat(mixed, 3),
            concat(concat(mixed, one(BasicType::Float64)), concat(one(BasicType::Int32), mixed)));
  EXPECT_EQ(block_hash(one(BasicType::Int32), 10), block_hash(repeat(one(BasicType::Int32), 10), 1));
  EXPECT_EQ(block_hash(mixed, 4), block_hash(repeat(mixed, 2), 2));
}

TEST(TypeSignature, DependsOnOrderTypeAndLength) {
  const TypeSignature ab = concat(one(BasicType::Float64), one(BasicType::Int32));
  const TypeSignature ba = concat(one(BasicType::Int32), one(BasicType::Float64));
  EXPECT_NE(ab, ba);
  EXPECT_NE(block_hash(one(BasicType::Int32), 4), block_hash(one(BasicType::Float32), 4));
  EXPECT_NE(block_hash(one(BasicType::Int32), 4), block_hash(one(BasicType::Int32), 5));
  EXPECT_NE(block_hash(ab, 2), block_hash(ab, 3));
}

TEST(TypeSignature, NothingIsNothingOfWhateverType) {
  EXPECT_EQ(block_hash(one(BasicType::Int32), 0), 0u);
  EXPECT_EQ(block_hash(one(BasicType::Float64), 0), 0u);
  EXPECT_EQ(block_hash({}, 7), 0u);
  EXPECT_EQ(block_hash(one(BasicType::Float64), -3), 0u);
}

TEST(TypeSignature, SplitsOfRandomSequencesAgree) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<BasicType> sequence;
    for (int i = 0; i < 20; ++i) sequence.push_back(static_cast<BasicType>(1 + random() % 4));
    TypeSignature whole;
    for (const BasicType type : sequence) whole = concat(whole, one(type));
    const std::size_t cut = random() % 20;
    TypeSignature left;
    TypeSignature right;
    for (std::size_t i = 0; i < 20; ++i)
      (i < cut ? left : right) = concat(i < cut ? left : right, one(sequence[i]));
    EXPECT_EQ(concat(left, right), whole);
  }
}

TEST(Agreement, BalancesToZeroExactlyWhenSendersAndReceiversMeet) {
  std::mt19937 random(2);
  for (int size = 1; size <= 8; ++size) {
    const auto n = static_cast<std::size_t>(size);
    std::vector<std::vector<PeerBlock>> sends(n, std::vector<PeerBlock>(n));
    for (auto& row : sends) {
      for (PeerBlock& block : row) {
        const int count = static_cast<int>(random() % 4);
        block = {block_hash(one(BasicType::Int32), count), count};
      }
    }
    const auto sum_for = [&](const std::vector<std::vector<PeerBlock>>& sent) {
      std::uint64_t sum = 0;
      for (std::size_t rank = 0; rank < n; ++rank) {
        std::vector<PeerBlock> expects(n);
        for (std::size_t peer = 0; peer < n; ++peer) expects[peer] = sends[peer][rank];
        sum +=
            agree_vectors(1, static_cast<int>(rank), size, sent[rank].data(), expects.data(), false).balance;
      }
      return sum;
    };
    EXPECT_EQ(sum_for(sends), 0u);
    auto wrong = sends;
    wrong[0][n - 1] = {block_hash(one(BasicType::Int32), 9), 9};
    EXPECT_NE(sum_for(wrong), 0u);
  }
}

TEST(Function, TableSaysWhatEachIs) {
  EXPECT_EQ(traits(Function::Allreduce).name, "MPI_Allreduce");
  EXPECT_TRUE(traits(Function::Allreduce).reduces);
  EXPECT_FALSE(traits(Function::Allreduce).rooted);
  EXPECT_TRUE(traits(Function::Gatherv).vector);
  EXPECT_EQ(traits(Function::Gatherv).flow, Flow::ToRoot);
  EXPECT_FALSE(traits(Function::Recv).numbered);
  EXPECT_TRUE(traits(Function::Comm_split).creates);
  EXPECT_FALSE(traits(Function::Comm_split).data);
  EXPECT_EQ(traits(static_cast<Function>(65535)).name, "(no call)");
}

TEST(RankSet, Folds) {
  EXPECT_EQ(rank_set({}), "");
  EXPECT_EQ(rank_set({3}), "3");
  EXPECT_EQ(rank_set({0, 2, 3}), "0, 2, 3");
  EXPECT_EQ(rank_set({0, 2, 3, 4, 5, 9}), "0, 2-5, 9");
}

TEST(HandleMap, FollowsReuse) {
  HandleMap<16> map;
  for (int round = 0; round < 1000; ++round) {
    const Handle handle = 0x84000000u + static_cast<unsigned>(round % 7);
    EXPECT_TRUE(map.set(handle, round));
    EXPECT_EQ(map.find(handle), round);
    EXPECT_EQ(map.erase(handle), round);
    EXPECT_EQ(map.find(handle), -1);
  }
  for (int i = 1; i <= 16; ++i) EXPECT_TRUE(map.set(static_cast<Handle>(i), i));
  EXPECT_FALSE(map.set(99, 1)) << "full";
  EXPECT_EQ(map.find(99), -1);
  EXPECT_EQ(map.find(7), 7);
}

}  // namespace
}  // namespace accel
