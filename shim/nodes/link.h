// One end of a connection between nodes.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nodes/frames.h"
#include "record/file_descriptor.h"

namespace accel {

/// Never blocks. Used by one thread.
class Link {
 public:
  Link() = default;
  /// A connected socket, or one that is about to be.
  Link(FileDescriptor socket, std::size_t longest);

  /// Whether there is a connection. One that a program has closed under us (it closes what it does not know)
  /// is none any more.
  bool is_open() const { return is_ours(); }
  void close();
  /// It was the other side that has ended the connection, and not the way there.
  bool was_ended() const { return ended_; }
  int fd() const { return socket_.get(); }
  /// What poll is to wait for.
  short events() const;

  /// Puts it behind what is to be sent already.
  void send(FrameKind kind, std::string_view body);
  template <class Body>
  void send(FrameKind kind, const Body& body) {
    std::string bytes;
    put(bytes, body);
    send(kind, std::string_view(bytes));
  }
  std::size_t unsent() const { return out_.size() - sent_; }

  /// Sends as much as goes at once. Afterwards is_open() says whether it may go on.
  void flush();
  /// The same, and receives: what has come is to be taken at once, since nothing will tell of it again.
  void pump();
  /// The next whole frame.
  std::optional<WireFrame> next() { return parser_.next(); }
  /// The other side has proved who it is.
  void trust() { parser_.allow(kLongestFrame); }
  /// Something came in that is no frame.
  bool is_broken() const { return parser_.is_broken(); }

 private:
  bool is_ours() const;
  void send_some();

  FileDescriptor socket_;
  ino_t inode_ = 0;
  bool ended_ = false;
  FrameParser parser_{kLongestOfStranger};
  std::string out_;
  std::size_t sent_ = 0;
};

/// "10.0.0.1:4711" or "[fd00::1]:4711", as connect() and bind() take it. Nothing: it is neither.
struct SocketAddress {
  alignas(8) char bytes[128];
  std::uint32_t length;
  int family;

  static std::optional<SocketAddress> parse(const std::string& text);
  /// Of a socket's own end.
  static std::optional<SocketAddress> of(int socket);
  /// Of its other end.
  static std::optional<SocketAddress> of_peer(int socket);
  std::string text() const;
  std::uint16_t port() const;
};

/// Starts to connect. An invalid descriptor: that cannot work.
FileDescriptor start_connecting(const SocketAddress& to);
/// Whether it has worked. Nothing: not decided yet.
std::optional<bool> has_connected(int socket);

/// A socket that listens there; port 0: at any. An invalid descriptor: it cannot.
FileDescriptor listen_at(const SocketAddress& address);

/// A socket that listens at an address that other hosts can reach, one for each: of the interfaces that are
/// up and called as `interfaces` says ("eth0,ib0", or "eth" for all that begin so; empty: all but loopback),
/// IPv4 first.
std::vector<FileDescriptor> listeners(const std::string& interfaces);

}  // namespace accel
