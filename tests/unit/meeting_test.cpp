#include "nodes/meeting.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "recorded_rank.h"

namespace accel {
namespace {

using namespace testing;

/// As NCCL 2.16 and later fill it: a random number, an address, zeros.
UniqueIdBytes id_at(const char* host) {
  UniqueIdBytes id{};
  std::memset(id.data(), 0x5a, 8);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(40000);
  inet_pton(AF_INET, host, &four.sin_addr);
  std::memcpy(id.data() + 8, &four, sizeof four);
  return id;
}

MeetingPlace some_place() {
  MeetingPlace place{};
  place.family = 4;
  place.port = 4711;
  inet_pton(AF_INET, "10.0.0.7", place.address);
  std::memset(place.token, 7, sizeof place.token);
  return place;
}

TEST(Meeting, StandsInBytesThatNcclLeavesAlone) {
  UniqueIdBytes id = id_at("10.0.0.7");
  const UniqueIdBytes before = id;
  EXPECT_FALSE(place_in(id));
  put_place(id, some_place());
  EXPECT_EQ(std::memcmp(id.data(), before.data(), 64), 0);
  const auto found = place_in(id);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->port, 4711);
  EXPECT_EQ(std::memcmp(found->token, some_place().token, sizeof found->token), 0);
  for (std::size_t byte = 64; byte < 64 + 62; ++byte) {
    UniqueIdBytes damaged = id;
    damaged[byte] ^= 1;
    EXPECT_FALSE(place_in(damaged)) << byte;
  }
  UniqueIdBytes garbage;
  garbage.fill(0xaa);  // as older NCCLs leave it
  EXPECT_FALSE(place_in(garbage));
}

class MeetingPlaces : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  const RunDirectory run_ = directory_.run();
  Board& board_ = *run_.map_board();
};

TEST_F(MeetingPlaces, OfTheLargestCommunicatorCounts) {
  MeetingPlace place = some_place();
  EXPECT_FALSE(invitation_of(board_));
  attend_meeting(board_, run_, place, 1);
  EXPECT_FALSE(invitation_of(board_)) << "alone";
  attend_meeting(board_, run_, place, 2);
  ASSERT_TRUE(invitation_of(board_));
  EXPECT_EQ(invitation_of(board_)->addresses.at(0).text(), "10.0.0.7:4711");
  place.port = 4712;
  attend_meeting(board_, run_, place, 16);
  EXPECT_EQ(invitation_of(board_)->addresses.at(0).text(), "10.0.0.7:4712");
  place.port = 4713;
  attend_meeting(board_, run_, place, 8);
  EXPECT_EQ(invitation_of(board_)->addresses.at(0).text(), "10.0.0.7:4712");
}

TEST_F(MeetingPlaces, AreOpenedByTheLeaderAndAgainByTheNext) {
  std::optional<MeetingPlace> place;
  std::thread rank([&] { place = host_meeting(board_, run_, id_at("127.0.0.2"), 10'000'000'000); });
  rank.join();
  EXPECT_FALSE(place) << "of this host alone";

  // An address of this machine that is not loopback is not needed: what is bound is what the board says.
  rank = std::thread([&] { place = host_meeting(board_, run_, id_at("10.0.0.7"), 10'000'000'000); });
  while (board_.meeting.wanted.load() != 2) std::this_thread::yield();
  inet_pton(AF_INET, "127.0.0.1", board_.meeting.host.address);
  std::uint16_t port = 0;
  {
    const FileDescriptor leader = open_meeting(board_);
    ASSERT_TRUE(leader);
    rank.join();
    ASSERT_TRUE(place);
    port = place->port;
    EXPECT_EQ(SocketAddress::of(leader.get())->port(), port);
  }
  const FileDescriptor next = open_meeting(board_);
  ASSERT_TRUE(next);
  EXPECT_EQ(SocketAddress::of(next.get())->port(), port);
  attend_meeting(board_, run_, *place, 4);
  EXPECT_FALSE(invitation_of(board_)) << "it is here";
}

TEST_F(MeetingPlaces, WithoutALeaderTheIdStaysAsItIs) {
  EXPECT_FALSE(host_meeting(board_, run_, id_at("10.0.0.7"), 20'000'000));
}

}  // namespace
}  // namespace accel
