// How a node's leader and the coordinator talk: frames over a TCP connection.
//   u32  bytes that follow
//   u8   FrameKind
//   ...  body: plain structs of both sides' layout version, little-endian as all machines that NCCL runs on
// Whatever comes in is foreign: nothing is believed without a bound.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace accel {

enum class FrameKind : std::uint8_t {
  Hello = 1,  ///< leader: who it is; handshake.h has this one and the next two
  Challenge,  ///< coordinator: proves that it knows the token, and asks for the same
  Proof,      ///< leader
  Chunk,      ///< leader: a part of a process's recorder file; record_copies.h
  Process,    ///< leader: how that process is, and its file's header
  Welcome,    ///< coordinator: the leader is believed; messages.h has this one and all that follow
  Ping,       ///< coordinator
  Pong,       ///< leader
  Beat,       ///< leader, several times a second: it is there, and how its node gets on
  Fetch,      ///< coordinator: asks for what has changed in all recorder files
  Copied,     ///< leader: that was all
  Alarm,      ///< leader: somebody should look now
  Leaving,    ///< leader: the last process of its node is about to exit
  Seen,       ///< coordinator: it has looked, at something at least as new as that alarm
  Bye,        ///< coordinator: the same, to somebody who leaves
  End,        ///< coordinator: the verdict, and with which status the ranks of a world end themselves
};

/// The longest frame, kind and body; and of somebody who has not proved anything yet.
inline constexpr std::size_t kLongestFrame = std::size_t{1} << 20;
inline constexpr std::size_t kLongestOfStranger = 512;

struct WireFrame {
  FrameKind kind;
  std::string body;
};

/// As it goes over the wire.
std::string encoded(FrameKind kind, std::string_view body);

/// Bytes as they come in, to frames. Used by one thread.
class FrameParser {
 public:
  explicit FrameParser(std::size_t longest) : longest_(longest) {}
  /// The other side has proved who it is.
  void allow(std::size_t longest) { longest_ = longest; }

  void add(std::string_view bytes);
  /// The next whole frame; nothing: it has not come yet, or never will.
  std::optional<WireFrame> next();
  /// A frame was announced that is longer than allowed, or empty: there is no way back into step.
  bool is_broken() const { return broken_; }

 private:
  std::size_t longest_;
  std::string bytes_;
  std::size_t taken_ = 0;
  bool broken_ = false;
};

template <class T>
void put(std::string& body, const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
  body.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Takes a value off the front. False: there is too little.
template <class T>
bool take_value(std::string_view& body, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (body.size() < sizeof value) return false;
  std::memcpy(&value, body.data(), sizeof value);
  body.remove_prefix(sizeof value);
  return true;
}

}  // namespace accel
