// scale RANKS: a coordinator, and the leaders of RANKS / 8 nodes that talk to it over loopback, all with the
// real code of both sides; only what the leaders see of their ranks is made up. Data, tensor and pipeline
// parallel groups as Megatron lays them out, 100 collectives a second a rank. One line:
//   cores that the coordinator uses, bytes a second into it and out of it with all headers, its memory, and
//   how long it takes until it notices that one rank's calls differ from those of the other nodes.
#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

#include "nodes/coordinator.h"
#include "nodes/uplink.h"
#include "signature/hash.h"

namespace {

using namespace accel;

constexpr int kPerNode = 8;
constexpr int kPipeline = 8;

/// What both processes share.
struct Shared {
  std::atomic<int> connected;
  std::atomic<bool> differ;           ///< one rank makes another call from now on
  std::atomic<std::int64_t> said_ns;  ///< when its leader has sent the first mark that shows it
  std::atomic<bool> over;
  std::atomic<bool> ask, answered;
  std::atomic<std::uint64_t> into, out;  ///< bytes to and from the coordinator so far, with all headers
};

struct TcpSums {
  std::uint64_t into = 0, out = 0;
  void add(int socket) {
    constexpr std::uint64_t kHeaders = 14 + 20 + 32;
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
    into += info.tcpi_bytes_acked + kHeaders * info.tcpi_segs_out;
    out += info.tcpi_bytes_received + kHeaders * info.tcpi_segs_in;
  }
};

/// A rank's past: all ranks of a communicator have made the same calls, but for one.
class Past : public History {
 public:
  std::optional<CallRecord> call(std::uint16_t slot, std::uint64_t sequence) const override {
    CallRecord record{};
    record.sequence = sequence;
    record.chain = mix(keys[slot], sequence) + (odd ? 1 : 0);
    return record;
  }
  std::optional<CallRecord> pair_call(Function, std::uint16_t, std::int32_t, std::uint64_t) const override {
    return std::nullopt;
  }
  std::vector<CallRecord> recent_on_streams(std::size_t) const override { return {}; }
  std::int64_t started_ns(const CallRecord&) const override { return 0; }
  std::optional<VectorEvidence> vectors(const CallRecord&) const override { return std::nullopt; }
  DatatypeEvidence datatype(DatatypeId) const override { return {}; }
  SiteEvidence site(const CallRecord&) const override { return {}; }

  std::uint64_t keys[4]{};
  bool odd = false;
};

/// A node's leader, and what it sees.
struct Node {
  Node(const RunDirectory& run, int number, int ranks, const Invitation& invitation)
      : board(new Board{}), uplink(run, *board, invitation) {
    board->node.store(static_cast<std::uint64_t>(number) + 1);
    for (int local = 0; local < kPerNode; ++local) {
      const int rank = number * kPerNode + local;
      ProcessEvidence process;
      process.file = std::to_string(local + 1) + ".record";
      process.pid = local + 1;
      process.world_rank = rank;
      process.world_size = ranks;
      process.phase = Phase::Running;
      auto past = std::make_shared<Past>();
      // World, tensor (the node), pipeline (every so many nodes), data (all nodes of a pipeline stage).
      const int nodes = ranks / kPerNode;
      const int stage = number % kPipeline;
      const std::pair<std::uint64_t, int> groups[] = {
          {1, ranks},
          {mix(2, static_cast<std::uint64_t>(number)), kPerNode},
          {mix(mix(3, static_cast<std::uint64_t>(number / kPipeline)), static_cast<std::uint64_t>(local)),
           kPipeline},
          {mix(mix(4, static_cast<std::uint64_t>(stage)), static_cast<std::uint64_t>(local)),
           std::max(nodes / kPipeline, 1)}};
      for (std::uint16_t slot = 0; slot < 4; ++slot) {
        CommunicatorEvidence communicator;
        communicator.slot = slot;
        communicator.record.key = past->keys[slot] = groups[slot].first | 1;
        communicator.record.size = groups[slot].second;
        process.communicators.push_back(communicator);
      }
      process.history = past;
      evidence.processes.push_back(std::move(process));
    }
  }
  /// `seconds` into the run.
  void advance(double seconds) {
    constexpr double kPerSecond[] = {1, 79, 10, 10};
    evidence.now_ns = monotonic_ns();
    for (ProcessEvidence& process : evidence.processes) {
      for (CommunicatorEvidence& one : process.communicators)
        one.record.sequence = static_cast<std::uint64_t>(seconds * kPerSecond[one.slot]);
    }
  }

  std::unique_ptr<Board> board;
  Uplink uplink;
  Evidence evidence;
};

void lead(const RunDirectory& run, int ranks, const Invitation& invitation, Shared& shared) {
  std::vector<std::unique_ptr<Node>> nodes;
  for (int number = 0; number < ranks / kPerNode; ++number)
    nodes.push_back(std::make_unique<Node>(run, number, ranks, invitation));
  const std::int64_t begun = monotonic_ns();
  bool differs = false;
  std::size_t active = 1;
  while (!shared.over.load()) {
    const std::int64_t turn = monotonic_ns();
    if (shared.differ.load() && !differs) {
      differs = true;
      std::const_pointer_cast<Past>(
          std::dynamic_pointer_cast<const Past>(nodes.back()->evidence.processes[0].history))
          ->odd = true;
      shared.said_ns.store(monotonic_ns());
    }
    int connected = 0;
    for (std::size_t i = 0; i < active; ++i) {
      const auto& node = nodes[i];
      node->advance(static_cast<double>(monotonic_ns() - begun) / 1e9);
      node->uplink.turn(node->evidence);
      if (const auto fetch = node->uplink.take_fetch()) node->uplink.send_copies(*fetch, Evidence{});
      connected += node->uplink.is_connected() ? 1 : 0;
    }
    shared.connected.store(connected);
    // One thread plays all leaders: they come as fast as it can see to them.
    if (static_cast<std::size_t>(connected) == active) active = std::min(active + 200, nodes.size());
    TcpSums sums;
    if (shared.ask.exchange(false)) {
      for (const auto& node : nodes) sums.add(node->uplink.waits_for().fd);
      shared.into.store(sums.into);
      shared.out.store(sums.out);
      shared.answered.store(true);
    }
    const std::int64_t left = turn + 50'000'000 - monotonic_ns();
    if (left > 0) usleep(static_cast<useconds_t>(left / 1000));
  }
}

std::int64_t cpu_ns(pthread_t thread) {
  clockid_t clock{};
  pthread_getcpuclockid(thread, &clock);
  return nanoseconds(clock);
}

std::int64_t resident_kib() {
  std::ifstream file("/proc/self/status");
  std::int64_t kib = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmRSS:")) std::istringstream(line.substr(6)) >> kib;
  }
  return kib;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 1024;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < static_cast<rlim_t>(ranks / kPerNode + 100)) {
    std::cerr << "scale: " << ranks << " ranks need more open files than ulimit -Hn allows\n";
    return 1;
  }
  char name[] = "/dev/shm/accel-scale-XXXXXX";
  const std::string base = mkdtemp(name);
  auto opened = RunDirectory::open(base, "scale");
  const RunDirectory run = std::move(*opened);
  auto* const shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const Token token = Token::random();
  Coordinator coordinator(run, *run.map_board(), token, "scale", listeners("lo"));
  const pid_t child = fork();
  if (child == 0) {
    Invitation invitation{"scale", {*SocketAddress::parse(coordinator.addresses())}, token};
    lead(run, ranks, invitation, *shared);
    _exit(0);
  }
  std::atomic<bool> over{false};
  std::thread thread([&] { coordinator.run(over); });
  const auto wait_for_a_bell = [&](std::int64_t timeout_ms) {
    pollfd bell{coordinator.bell(), POLLIN, 0};
    return poll(&bell, 1, static_cast<int>(timeout_ms)) > 0;
  };
  const auto settle = [&](std::int64_t ns) {
    for (const std::int64_t until = monotonic_ns() + ns; monotonic_ns() < until;) {
      if (!wait_for_a_bell(50)) continue;
      coordinator.look();
      coordinator.looked();
    }
  };
  const std::int64_t begun = monotonic_ns();
  while (shared->connected.load() < ranks / kPerNode && monotonic_ns() - begun < 120'000'000'000)
    settle(100'000'000);
  const double seconds_to_connect = static_cast<double>(monotonic_ns() - begun) / 1e9;
  settle(3'000'000'000);

  constexpr double kSeconds = 10;
  const auto sums = [&] {
    shared->answered.store(false);
    shared->ask.store(true);
    while (!shared->answered.load()) settle(1'000'000);
    return std::pair(shared->into.load(), shared->out.load());
  };
  const auto before = sums();
  const std::int64_t cpu = cpu_ns(thread.native_handle());
  settle(static_cast<std::int64_t>(kSeconds * 1e9));
  const double cores = static_cast<double>(cpu_ns(thread.native_handle()) - cpu) / 1e9 / kSeconds;
  const auto after = sums();
  const double into = static_cast<double>(after.first - before.first) / kSeconds;
  const double out = static_cast<double>(after.second - before.second) / kSeconds;

  shared->differ.store(true);
  while (shared->said_ns.load() == 0) usleep(1000);
  bool noticed = false;
  while (!noticed && monotonic_ns() - shared->said_ns.load() < 30'000'000'000) noticed = wait_for_a_bell(100);
  const double latency = static_cast<double>(monotonic_ns() - shared->said_ns.load()) / 1e9;
  std::cout << fmt::format(
      "{:6} ranks, {:5} nodes: {} connected after {:.1f} s; {:.3f} cores; per 1,000 ranks {:.1f} KB/s in, "
      "{:.1f} KB/s "
      "out; {} MiB; a difference is noticed after {}\n",
      ranks, ranks / kPerNode, shared->connected.load(), seconds_to_connect, cores, into / ranks, out / ranks,
      resident_kib() / 1024, noticed ? fmt::format("{:.2f} s", latency) : "never");
  shared->over.store(true);
  over.store(true);
  thread.join();
  waitpid(child, nullptr, 0);
  run.remove();
  rmdir((base + "/accel-" + std::to_string(geteuid())).c_str());
  rmdir(base.c_str());
  return noticed ? 0 : 1;
}
