#include "nodes/link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sstream>

namespace accel {

Link::Link(FileDescriptor socket, std::size_t longest) : socket_(std::move(socket)), parser_(longest) {
  struct stat info;
  if (fstat(socket_.get(), &info) == 0) inode_ = info.st_ino;
  const int at_once = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
}

/// Its number may belong to the application by now: then it is not to be touched.
bool Link::is_ours() const {
  struct stat info;
  return socket_ && fstat(socket_.get(), &info) == 0 && S_ISSOCK(info.st_mode) && info.st_ino == inode_;
}

void Link::close() {
  if (is_ours()) {
    socket_.reset();
  } else {
    socket_.release();
  }
}

short Link::events() const { return static_cast<short>(POLLIN | (unsent() != 0 ? POLLOUT : 0)); }

void Link::send(FrameKind kind, std::string_view body) {
  constexpr std::size_t kWorthMoving = 1 << 16;
  if (sent_ > kWorthMoving && sent_ > out_.size() / 2) out_.erase(0, std::exchange(sent_, 0));
  out_ += encoded(kind, body);
}

void Link::send_some() {
  while (unsent() != 0) {
    const ssize_t written = ::send(socket_.get(), out_.data() + sent_, unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written <= 0) {
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOTCONN) {
        ended_ = errno == EPIPE || errno == ECONNRESET;
        close();
      }
      return;
    }
    sent_ += static_cast<std::size_t>(written);
  }
  out_.clear();
  sent_ = 0;
}

void Link::flush() {
  if (!is_ours()) return close();
  send_some();
}

void Link::pump() {
  flush();
  char bytes[1 << 16];
  constexpr int kMostAtOnce = 64;  // others want to be heard, too
  for (int i = 0; i < kMostAtOnce && socket_ && !is_broken(); ++i) {
    const ssize_t got = recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
      parser_.add(std::string_view(bytes, static_cast<std::size_t>(got)));
      if (static_cast<std::size_t>(got) < sizeof bytes) return;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOTCONN)) {
      ended_ = got == 0 || errno == ECONNRESET;
      close();
    }
    return;
  }
  if (is_broken()) close();
}

std::optional<SocketAddress> SocketAddress::parse(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size()) return std::nullopt;
  std::uint32_t port = 0;
  for (const char c : text.substr(colon + 1)) {
    if (c < '0' || c > '9' || (port = port * 10 + static_cast<std::uint32_t>(c - '0')) > 65535)
      return std::nullopt;
  }
  std::string host = text.substr(0, colon);
  SocketAddress address{};
  sockaddr_in four{};
  if (inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<std::uint16_t>(port));
    std::memcpy(address.bytes, &four, sizeof four);
    address.length = sizeof four;
    address.family = AF_INET;
    return address;
  }
  if (!host.starts_with("[") || !host.ends_with("]")) return std::nullopt;
  sockaddr_in6 six{};
  if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six.sin6_addr) != 1) return std::nullopt;
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<std::uint16_t>(port));
  std::memcpy(address.bytes, &six, sizeof six);
  address.length = sizeof six;
  address.family = AF_INET6;
  return address;
}

namespace {

std::optional<SocketAddress> named(int socket, decltype(getsockname)* name) {
  SocketAddress address{};
  socklen_t length = sizeof address.bytes;
  auto* const place = reinterpret_cast<sockaddr*>(address.bytes);
  if (name(socket, place, &length) != 0) return std::nullopt;
  address.length = length;
  address.family = place->sa_family;
  return address;
}

}  // namespace

std::optional<SocketAddress> SocketAddress::of(int socket) { return named(socket, getsockname); }
std::optional<SocketAddress> SocketAddress::of_peer(int socket) { return named(socket, getpeername); }

std::string SocketAddress::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, bytes, sizeof four);
    inet_ntop(AF_INET, &four.sin_addr, host, sizeof host);
    return fmt::format("{}:{}", host, ntohs(four.sin_port));
  }
  sockaddr_in6 six;
  std::memcpy(&six, bytes, sizeof six);
  inet_ntop(AF_INET6, &six.sin6_addr, host, sizeof host);
  return fmt::format("[{}]:{}", host, ntohs(six.sin6_port));
}

std::uint16_t SocketAddress::port() const {
  sockaddr_in four;  // both families have it at the same place
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  std::memcpy(&four, bytes, sizeof four);
  return ntohs(four.sin_port);
}

FileDescriptor listen_at(const SocketAddress& address) {
  constexpr int kBacklog = 4096;
  const int on = 1;
  FileDescriptor socket(::socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // What is left of connections to whoever listened before does not count.
  if (socket) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* const place = reinterpret_cast<const sockaddr*>(address.bytes);
  if (socket && (bind(socket.get(), place, address.length) != 0 || listen(socket.get(), kBacklog) != 0))
    socket.reset();
  return socket;
}

FileDescriptor start_connecting(const SocketAddress& to) {
  FileDescriptor socket(::socket(to.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  const int result = connect(socket.get(), reinterpret_cast<const sockaddr*>(to.bytes), to.length);
  if (result != 0 && errno != EINPROGRESS) socket.reset();
  return socket;
}

std::optional<bool> has_connected(int socket) {
  pollfd one{socket, POLLOUT, 0};
  if (poll(&one, 1, 0) <= 0) return std::nullopt;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

namespace {

bool is_named(const std::string& interfaces, const std::string& name) {
  std::istringstream words(interfaces);
  for (std::string word; std::getline(words, word, ',');) {
    if (!word.empty() && name.starts_with(word)) return true;
  }
  return false;
}

/// An address that means the same on other hosts.
bool is_global(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, address, sizeof four);
    return (ntohl(four.sin_addr.s_addr) >> 16) != 0xa9fe;  // 169.254.0.0/16
  }
  if (address->sa_family != AF_INET6) return false;
  sockaddr_in6 six;
  std::memcpy(&six, address, sizeof six);
  return !IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr) && !IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
}

}  // namespace

std::vector<FileDescriptor> listeners(const std::string& interfaces) {
  constexpr std::size_t kMost = 8;  // addresses that a leader tries one after another
  std::vector<FileDescriptor> result;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return result;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = all; one != nullptr && result.size() < kMost; one = one->ifa_next) {
      const bool up = (one->ifa_flags & IFF_UP) != 0;
      const bool chosen =
          interfaces.empty() ? (one->ifa_flags & IFF_LOOPBACK) == 0 : is_named(interfaces, one->ifa_name);
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || !up || !chosen ||
          !is_global(one->ifa_addr))
        continue;
      SocketAddress address{};
      address.family = family;
      address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(address.bytes, one->ifa_addr, address.length);
      if (FileDescriptor socket = listen_at(address)) result.push_back(std::move(socket));
    }
  }
  freeifaddrs(all);
  return result;
}

}  // namespace accel
