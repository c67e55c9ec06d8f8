#include "tests/standin/nccl/mesh.h"

#include <arpa/inet.h>
#include <gloo/transport/tcp/device.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <thread>

namespace standin {
namespace {

/// As NCCL lays out its 128 bytes since 2.16: a random number, then the root's address.
struct Handle {
  std::uint64_t magic;
  sockaddr_in address;
};

struct Greeting {
  std::int32_t rank, size;
  std::uint64_t magic, bytes;
};

bool read_all(int fd, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = read(fd, at, bytes);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (put <= 0) return false;
    at += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

void serve(int listener, std::uint64_t magic) {
  std::map<int, std::pair<int, Bytes>> guests;
  int expected = 0;
  while (expected == 0 || static_cast<int>(guests.size()) < expected) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) continue;
    Greeting greeting;
    if (!read_all(fd, &greeting, sizeof greeting) || greeting.magic != magic) {
      close(fd);
      continue;
    }
    Bytes data(greeting.bytes);
    read_all(fd, data.data(), data.size());
    const bool contradicts = (expected != 0 && greeting.size != expected) || guests.count(greeting.rank) != 0;
    if (contradicts) break;
    expected = greeting.size;
    guests[greeting.rank] = {fd, std::move(data)};
  }
  close(listener);
  if (static_cast<int>(guests.size()) != expected) {
    for (;;) pause();
  }
  for (const auto& [rank, guest] : guests) {
    for (const auto& [other, one] : guests) {
      const std::uint64_t bytes = one.second.size();
      write_all(guest.first, &bytes, sizeof bytes);
      write_all(guest.first, one.second.data(), bytes);
    }
  }
  for (const auto& [rank, guest] : guests) close(guest.first);
}

/// Gloo asks a store for the others' host names (all are this one's) and then for their addresses: that is
/// the one exchange.
class ExchangeStore : public gloo::rendezvous::Store {
 public:
  explicit ExchangeStore(const Exchange& exchange) : exchange_(exchange) {}
  void set(const std::string& key, const Bytes& data) override {
    if (is_host(key)) {
      host_ = data;
    } else {
      all_ = exchange_(data);
    }
  }
  Bytes get(const std::string& key) override {
    if (is_host(key)) return host_;
    const auto rank = static_cast<std::size_t>(std::stoi(key));
    return rank < all_.size() ? all_[rank] : Bytes{};
  }
  void wait(const std::vector<std::string>&) override {}
  bool complete() const { return !all_.empty(); }

 private:
  static bool is_host(const std::string& key) { return key.compare(0, 5, "rank_") == 0; }

  const Exchange& exchange_;
  Bytes host_;
  std::vector<Bytes> all_;
};

/// Of the interface that NCCL_SOCKET_IFNAME begins, as with NCCL; else all ranks are on this host.
in_addr own_address() {
  in_addr result{htonl(INADDR_LOOPBACK)};
  const char* const name = std::getenv("NCCL_SOCKET_IFNAME");
  ifaddrs* all = nullptr;
  if (name == nullptr || getifaddrs(&all) != 0) return result;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET ||
        std::strncmp(one->ifa_name, name, std::strlen(name)) != 0)
      continue;
    sockaddr_in four;
    std::memcpy(&four, one->ifa_addr, sizeof four);
    result = four.sin_addr;
    break;
  }
  freeifaddrs(all);
  return result;
}

constexpr std::uint64_t kReady = std::uint64_t{1} << 61;
constexpr std::uint64_t kSize = std::uint64_t{1} << 60;

}  // namespace

bool start_root(ncclUniqueId& id) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Handle handle{};
  handle.address.sin_family = AF_INET;
  handle.address.sin_addr = own_address();
  socklen_t length = sizeof handle.address;
  auto* const address = reinterpret_cast<sockaddr*>(&handle.address);
  if (bind(listener, address, length) != 0 || listen(listener, 1024) != 0 ||
      getsockname(listener, address, &length) != 0)
    return false;
  std::random_device random;
  handle.magic = std::uint64_t{random()} << 32 | random();
  std::memset(&id, 0, sizeof id);
  std::memcpy(&id, &handle, sizeof handle);
  std::thread(serve, listener, handle.magic).detach();
  return true;
}

std::vector<Bytes> meet(const ncclUniqueId& id, int rank, int size, const Bytes& own,
                        const std::atomic<bool>& aborted) {
  Handle handle;
  std::memcpy(&handle, &id, sizeof handle);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // A root that is done is gone: NCCL tries for ever too.
  while (connect(fd, reinterpret_cast<sockaddr*>(&handle.address), sizeof handle.address) != 0) {
    if (aborted.load()) return {};
    usleep(10'000);
  }
  const Greeting greeting{rank, size, handle.magic, own.size()};
  write_all(fd, &greeting, sizeof greeting);
  write_all(fd, own.data(), own.size());
  std::vector<Bytes> all(static_cast<std::size_t>(size));
  for (Bytes& one : all) {
    pollfd waiting{fd, POLLIN, 0};
    while (poll(&waiting, 1, 50) == 0) {
      if (aborted.load()) return {};
    }
    std::uint64_t bytes = 0;
    bool whole = read_all(fd, &bytes, sizeof bytes);
    one.resize(bytes);
    whole = whole && read_all(fd, one.data(), bytes);
    while (!whole && !aborted.load()) usleep(50'000);
    if (!whole) return {};
  }
  close(fd);
  return all;
}

namespace {

/// A peer that is gone is a connection that is gone, and no signal, as with NCCL's own transports.
void ignore_broken_pipes() {
  struct sigaction present {};
  if (sigaction(SIGPIPE, nullptr, &present) == 0 && present.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
}

}  // namespace

Mesh::Mesh(int rank, int size, const Exchange& exchange) {
  ignore_broken_pipes();
  static auto device = gloo::transport::tcp::CreateDevice(inet_ntoa(own_address()));
  context_ = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context_->setTimeout(std::chrono::hours(24));
  if (size == 1) return;
  ExchangeStore store(exchange);
  try {
    context_->connectFullMesh(store, device);
  } catch (const std::exception& error) {
    aborted_ = true;
    if (store.complete()) std::fprintf(stderr, "stand-in NCCL: %s\n", error.what());
  }
}

bool Mesh::hang() {
  while (!aborted_.load()) usleep(2'000);
  return false;
}

bool Mesh::move(int peer, std::uint64_t slot, void* data, std::size_t bytes, bool out) {
  if (bytes == 0) return !aborted();
  try {
    const auto buffer = context_->createUnboundBuffer(data, bytes);
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) return false;
      waiting_.insert(buffer.get());
    }
    if (out) {
      buffer->send(peer, slot);
    } else {
      buffer->recv(peer, slot);
    }
    const bool done = out ? buffer->waitSend() : buffer->waitRecv();
    const std::lock_guard lock(mutex_);
    waiting_.erase(buffer.get());
    return done && !aborted_;
  } catch (const std::exception&) {
    return hang();
  }
}

bool Mesh::send(int peer, std::uint64_t slot, const void* data, std::size_t bytes) {
  std::uint64_t expected = 0;
  std::uint64_t size = bytes;
  return move(peer, slot | kReady, &expected, sizeof expected, false) &&
         move(peer, slot | kSize, &size, sizeof size, true) &&
         move(peer, slot, const_cast<void*>(data), bytes, true);
}

bool Mesh::receive(int peer, std::uint64_t slot, void* data, std::size_t bytes) {
  static const bool hangs = std::getenv("ACCEL_STANDIN_NCCL_MISMATCH") != nullptr &&
                            std::string(std::getenv("ACCEL_STANDIN_NCCL_MISMATCH")) == "hang";
  std::uint64_t expected = bytes;
  std::uint64_t size = 0;
  if (!move(peer, slot | kReady, &expected, sizeof expected, true) ||
      !move(peer, slot | kSize, &size, sizeof size, false))
    return false;
  if (size == bytes) return move(peer, slot, data, bytes, false);
  if (hangs) return hang();
  Bytes other(size);
  if (!move(peer, slot, other.data(), size, false)) return false;
  std::memcpy(data, other.data(), std::min<std::size_t>(size, bytes));
  return true;
}

bool Mesh::send(int peer, std::uint64_t slot, const Bytes& data) {
  return send(peer, slot, data.data(), data.size());
}

bool Mesh::receive(int peer, std::uint64_t slot, Bytes& data) {
  std::uint64_t expected = 0;
  std::uint64_t size = 0;
  if (!move(peer, slot | kReady, &expected, sizeof expected, true) ||
      !move(peer, slot | kSize, &size, sizeof size, false))
    return false;
  data.resize(size);
  return move(peer, slot, data.data(), size, false);
}

void Mesh::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (auto* buffer : waiting_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

}  // namespace standin
