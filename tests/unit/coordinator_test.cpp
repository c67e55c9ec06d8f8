// A coordinator and leaders of "other nodes", over this machine's loopback.
#include "nodes/coordinator.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "collect/observer.h"
#include "nodes/uplink.h"
#include "record/process_stat.h"
#include "recorded_rank.h"

namespace accel {
namespace {

using namespace testing;

class Nodes : public ::testing::Test {
 protected:
  Nodes() {
    thread_ = std::thread([this] { coordinator_.run(over_); });
  }
  ~Nodes() override {
    over_.store(true);
    thread_.join();
  }

  Invitation invitation(const Token& token) {
    Invitation result{"job", {}, token};
    result.addresses.push_back(*SocketAddress::parse(coordinator_.addresses()));
    return result;
  }

  /// A leader's turns go on until `done`, for at most ten seconds.
  bool lead(Uplink& uplink, const std::function<bool()>& done) {
    Observer observer(here_);
    for (int i = 0; i < 2000; ++i) {
      const Evidence evidence = observer.observe();
      uplink.turn(evidence);
      if (const auto fetch = uplink.take_fetch()) uplink.send_copies(*fetch, evidence);
      if (done()) return true;
      usleep(5000);
    }
    return false;
  }

  /// What the judge on this side sees.
  std::vector<ProcessEvidence> seen() {
    Observer observer(there_);
    return observer.observe().processes;
  }

  std::vector<std::string> warnings() {
    std::vector<std::string> result;
    for (const auto& notice : coordinator_.take_notices()) result.push_back(notice.text);
    return result;
  }

  TemporaryDirectory directory_;
  const RunDirectory here_ = make_run("leader");
  const RunDirectory there_ = make_run("accelrun");
  Board& board_here_ = *here_.map_board();
  Board& board_there_ = *there_.map_board();
  const Token token_ = Token::random();
  Coordinator coordinator_{there_, board_there_, token_, "job", listeners("lo")};
  std::atomic<bool> over_{false};
  std::thread thread_;

  /// Both sides' directories of one run: they lie on different hosts.
  RunDirectory make_run(const std::string& host) {
    const std::string base = directory_.path() + "/" + host;
    mkdir(base.c_str(), 0700);
    auto run = RunDirectory::open(base, "job");
    EXPECT_TRUE(run) << run.error;
    return std::move(*run);
  }
};

TEST_F(Nodes, ShowTheirRanksToTheCoordinatorWhenItAsks) {
  RecordedRank rank(here_, 1, 2);
  for (int i = 0; i < 10; ++i) Recorder::end(rank.begin());
  rank.begin();
  Uplink uplink(here_, board_here_, invitation(token_));
  ASSERT_TRUE(lead(uplink, [&] { return uplink.is_connected(); }));
  EXPECT_TRUE(coordinator_.has_nodes());

  std::atomic<bool> fetched{false};
  std::thread judge([&] {
    coordinator_.refresh(0, 5'000'000'000);
    fetched.store(true);
  });
  EXPECT_TRUE(lead(uplink, [&] { return fetched.load(); }));
  judge.join();
  const auto processes = seen();
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_TRUE(processes[0].copy);
  EXPECT_TRUE(processes[0].alive);
  EXPECT_EQ(processes[0].world_rank, 1);
  ASSERT_EQ(processes[0].communicators.size(), 1u);
  EXPECT_EQ(processes[0].communicators[0].record.sequence, 11u);
  ASSERT_EQ(processes[0].blocked.size(), 1u);
  EXPECT_NEAR(static_cast<double>(processes[0].blocked[0].since_ns), static_cast<double>(monotonic_ns()),
              10e9);
  EXPECT_TRUE(warnings().empty());
}

TEST_F(Nodes, AnAlarmMakesTheCoordinatorLookAndIsAnsweredAfterwards) {
  RecordedRank rank(here_, 1, 2);
  Uplink uplink(here_, board_here_, invitation(token_));
  ASSERT_TRUE(lead(uplink, [&] { return uplink.is_connected(); }));
  rank.begin();
  const std::uint32_t alarm = uplink.alarm();
  EXPECT_FALSE(uplink.is_seen(alarm));
  std::atomic<bool> looked{false};
  std::size_t found = 0;
  std::thread judge([&] {
    while (!looked.load()) {
      if (coordinator_.look()) found = std::max(found, seen().size());
      const bool over = found != 0;
      coordinator_.looked();
      looked.store(over);
      usleep(1000);
    }
  });
  EXPECT_TRUE(lead(uplink, [&] { return uplink.is_seen(alarm); }));
  judge.join();
  EXPECT_EQ(found, 1u);
}

TEST_F(Nodes, WhoeverDoesNotKnowTheTokenIsSentAwayAndNamedOnce) {
  Uplink stranger(here_, board_here_, invitation(Token::random()));
  const std::int64_t until = monotonic_ns() + 1'000'000'000;
  lead(stranger, [&] { return monotonic_ns() > until || stranger.is_connected(); });
  EXPECT_FALSE(stranger.is_connected());
  // A port scanner, and somebody who means another port.
  const std::string said[] = {"", "GET / HTTP/1.1\r\n\r\n", std::string("\0\0\0\0\1", 5)};
  for (const std::string& bytes : said) {
    FileDescriptor socket = start_connecting(*SocketAddress::parse(coordinator_.addresses()));
    usleep(20'000);
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    usleep(20'000);
  }
  EXPECT_FALSE(coordinator_.has_nodes());
  const auto all = warnings();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_NE(all[0].find("was refused"), std::string::npos) << all[0];

  Uplink known(here_, board_here_, invitation(token_));
  EXPECT_TRUE(lead(known, [&] { return known.is_connected(); })) << "and lets in who does";
}

TEST_F(Nodes, ANodeThatIsGoneForTwoSecondsTakesItsRanksWithIt) {
  RecordedRank rank(here_, 1, 2);
  {
    Uplink uplink(here_, board_here_, invitation(token_));
    std::atomic<bool> fetched{false};
    ASSERT_TRUE(lead(uplink, [&] { return uplink.is_connected(); }));
    std::thread judge([&] {
      coordinator_.refresh(0, 5'000'000'000);
      fetched.store(true);
    });
    EXPECT_TRUE(lead(uplink, [&] { return fetched.load(); }));
    judge.join();
  }
  const std::int64_t gone = monotonic_ns();
  const auto in_doubt = [&] {
    coordinator_.look();
    return coordinator_.is_in_doubt();
  };
  while (!in_doubt() && monotonic_ns() - gone < 1'000'000'000) usleep(5000);
  EXPECT_TRUE(in_doubt()) << "somebody else may come to lead there";
  while (in_doubt() && monotonic_ns() - gone < 5'000'000'000) usleep(20'000);
  EXPECT_GT(monotonic_ns() - gone, 1'500'000'000);
  const auto processes = seen();
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_FALSE(processes[0].alive);
  EXPECT_EQ(processes[0].signal, SIGKILL);
  EXPECT_TRUE(processes[0].signal_inferred);
}

TEST_F(Nodes, ALeaderWhoComesBackInTimeLosesNothing) {
  RecordedRank rank(here_, 1, 2);
  std::uint64_t node = 0;
  for (int leader = 0; leader < 3; ++leader) {
    Uplink uplink(here_, board_here_, invitation(token_));
    ASSERT_TRUE(lead(uplink, [&] { return uplink.is_connected(); }));
    Recorder::end(rank.begin());
    std::atomic<bool> fetched{false};
    std::thread judge([&] {
      coordinator_.refresh(0, 5'000'000'000);
      fetched.store(true);
    });
    EXPECT_TRUE(lead(uplink, [&] { return fetched.load(); }));
    judge.join();
    const auto processes = seen();
    ASSERT_EQ(processes.size(), 1u) << "the same node, whoever leads it";
    EXPECT_EQ(processes[0].communicators[0].record.sequence, static_cast<std::uint64_t>(leader + 1));
    if (leader == 0) node = board_here_.node.load();
    EXPECT_EQ(board_here_.node.load(), node);
  }
  EXPECT_TRUE(warnings().empty());
}

/// Two nodes whose ranks make the same calls, or one of them another one, and go on.
class GoingOn : public Nodes {
 protected:
  /// How often the coordinator asks for details of them afterwards.
  int fetches_after_calls(bool differ) {
    const RunDirectory first = make_run("first");
    const RunDirectory second = make_run("second");
    RecordedRank zero(first, 0, 2);
    RecordedRank one(second, 1, 2);
    zero.recorder.header().phase = one.recorder.header().phase = Phase::Running;
    Uplink uplinks[] = {{first, *first.map_board(), invitation(token_)},
                        {second, *second.map_board(), invitation(token_)}};
    Observer observers[] = {Observer(first), Observer(second)};
    int fetches = 0;
    std::atomic<bool> over{false};
    std::thread judge([&] {
      for (; !over.load(); usleep(5000)) {
        coordinator_.look();
        coordinator_.looked();
      }
    });
    const auto go_on_for = [&](std::int64_t ns) {
      fetches = 0;
      for (const std::int64_t until = monotonic_ns() + ns; monotonic_ns() < until; usleep(5000)) {
        for (int i = 0; i < 2; ++i) {
          const Evidence evidence = observers[i].observe();
          uplinks[i].turn(evidence);
          if (const auto fetch = uplinks[i].take_fetch()) uplinks[i].send_copies(*fetch, evidence), ++fetches;
        }
      }
    };
    go_on_for(2'500'000'000);
    EXPECT_EQ(fetches, 2) << "each once, when it has come";
    for (std::uint64_t call = 0; call < 70; ++call) {
      Recorder::end(zero.begin(1, {call, 0}));
      Recorder::end(one.begin(1, {call + (differ && call == 10 ? 1 : 0), 0}));
    }
    go_on_for(1'000'000'000);
    over.store(true);
    judge.join();
    return fetches;
  }
};

TEST_F(GoingOn, NodesWhoseCallsAgreeAreLeftAlone) { EXPECT_EQ(fetches_after_calls(false), 0); }

TEST_F(GoingOn, CallsThatDifferBetweenNodesAreWorthALookThoughNobodyStands) {
  EXPECT_EQ(fetches_after_calls(true), 2);
}

TEST(Crowd, OfManyNodesThoseAreLookedAtThatSayMost) {
  TemporaryDirectory directory;
  const auto run_at = [&](const std::string& host) {
    const std::string base = directory.path() + "/" + host;
    mkdir(base.c_str(), 0700);
    return std::move(*RunDirectory::open(base, "job"));
  };
  const RunDirectory there = run_at("there");
  const Token token = Token::random();
  constexpr std::size_t kMost = 2;
  Coordinator coordinator(there, *there.map_board(), token, "job", listeners("lo"), kMost);
  std::atomic<bool> over{false};
  std::thread hears([&] { coordinator.run(over); });
  std::thread looks([&] {
    for (; !over.load(); usleep(2000)) {
      coordinator.look();
      coordinator.looked();
    }
  });
  const Invitation invitation{"job", {*SocketAddress::parse(coordinator.addresses())}, token};
  struct Node {
    Node(RunDirectory directory, int rank, const Invitation& invitation)
        : run(std::move(directory)),
          recorded(run, rank, 4),
          observer(run),
          uplink(run, *run.map_board(), invitation) {
      recorded.recorder.header().phase = Phase::Running;
    }
    RunDirectory run;
    RecordedRank recorded;
    Observer observer;
    Uplink uplink;
  };
  std::vector<std::unique_ptr<Node>> nodes;
  for (int i = 0; i < 4; ++i)
    nodes.push_back(std::make_unique<Node>(run_at("node" + std::to_string(i)), i, invitation));
  const auto lead_until = [&](const std::function<bool()>& done) {
    for (int i = 0; i < 2000 && !done(); ++i, usleep(2000)) {
      for (const auto& node : nodes) {
        const Evidence evidence = node->observer.observe();
        node->uplink.turn(evidence);
        if (const auto fetch = node->uplink.take_fetch()) node->uplink.send_copies(*fetch, evidence);
      }
    }
    return done();
  };
  ASSERT_TRUE(lead_until([&] {
    return std::all_of(nodes.begin(), nodes.end(),
                       [](const auto& node) { return node->uplink.is_connected(); });
  }));
  Observer observer(there);
  for (const int alarmed : {3, 0, 2, 3, 1, 3}) {
    Recorder::end(nodes[static_cast<std::size_t>(alarmed)]->recorded.begin());
    const std::uint32_t alarm = nodes[static_cast<std::size_t>(alarmed)]->uplink.alarm();
    ASSERT_TRUE(lead_until([&] { return nodes[static_cast<std::size_t>(alarmed)]->uplink.is_seen(alarm); }));
    observer.rescan();
    const Evidence evidence = observer.observe();
    EXPECT_LE(evidence.processes.size(), kMost);
    const auto found = std::find_if(evidence.processes.begin(), evidence.processes.end(),
                                    [&](const ProcessEvidence& one) { return one.world_rank == alarmed; });
    ASSERT_NE(found, evidence.processes.end()) << alarmed;
    auto& recorder = nodes[static_cast<std::size_t>(alarmed)]->recorded.recorder;
    EXPECT_EQ(found->communicators.at(0).record.sequence, recorder.file().communicators[0].sequence);
    EXPECT_TRUE(found->history->call(0, found->communicators.at(0).record.sequence))
        << "whole, not only changes";
  }
  EXPECT_EQ(coordinator.take_notices().size(), 1u) << "that there are more than are looked at together";
  over.store(true);
  hears.join();
  looks.join();
}

}  // namespace
}  // namespace accel
