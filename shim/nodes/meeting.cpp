#include "nodes/meeting.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "record/futex.h"
#include "signature/hash.h"

namespace accel {
namespace {

/// In bytes 64 to 127 of an id.
struct Stash {
  char magic[4];
  std::uint32_t check;  ///< of all that follows
  std::uint16_t version;
  MeetingPlace place;
};
constexpr std::size_t kStashAt = 64;
constexpr char kMagic[4] = {'A', 'C', 'C', 'L'};
constexpr std::uint16_t kVersion = 1;
static_assert(kStashAt + sizeof(Stash) <= sizeof(UniqueIdBytes));

/// Of a host's own leader's meeting.
enum class Wanted : std::uint32_t { No, BeingSaid, Yes };

std::uint32_t check_of(const Stash& stash) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&stash);
  std::uint64_t hash = 0x61636365;
  for (std::size_t at = offsetof(Stash, version); at < sizeof stash; ++at) hash = mix(hash, bytes[at]);
  return static_cast<std::uint32_t>(hash);
}

SocketAddress address_of(const MeetingPlace& place, std::uint16_t port) {
  SocketAddress address{};
  address.family = place.family == 6 ? AF_INET6 : AF_INET;
  if (place.family == 6) {
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    std::memcpy(&six.sin6_addr, place.address, sizeof six.sin6_addr);
    std::memcpy(address.bytes, &six, sizeof six);
    address.length = sizeof six;
  } else {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    std::memcpy(&four.sin_addr, place.address, sizeof four.sin_addr);
    std::memcpy(address.bytes, &four, sizeof four);
    address.length = sizeof four;
  }
  return address;
}

/// The address in an id: at its beginning up to NCCL 2.15, behind eight bytes from then on. Loopback and what
/// means something else on every host do not count.
std::optional<MeetingPlace> address_in(const UniqueIdBytes& id) {
  for (const std::size_t at : {std::size_t{8}, std::size_t{0}}) {
    std::uint16_t family = 0;
    std::memcpy(&family, id.data() + at, sizeof family);
    MeetingPlace place{};
    if (family == AF_INET) {
      sockaddr_in four;
      std::memcpy(&four, id.data() + at, sizeof four);
      if (ntohl(four.sin_addr.s_addr) >> 24 == 127 || four.sin_addr.s_addr == 0) return std::nullopt;
      place.family = 4;
      std::memcpy(place.address, &four.sin_addr, sizeof four.sin_addr);
      return place;
    }
    if (family == AF_INET6) {
      sockaddr_in6 six;
      std::memcpy(&six, id.data() + at, sizeof six);
      if (IN6_IS_ADDR_LOOPBACK(&six.sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) return std::nullopt;
      place.family = 6;
      std::memcpy(place.address, &six.sin6_addr, sizeof six.sin6_addr);
      return place;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<MeetingPlace> place_in(const UniqueIdBytes& id) {
  Stash stash;
  std::memcpy(&stash, id.data() + kStashAt, sizeof stash);
  const bool ours = std::memcmp(stash.magic, kMagic, sizeof kMagic) == 0 && stash.version == kVersion &&
                    stash.check == check_of(stash) && stash.place.port != 0;
  return ours ? std::optional(stash.place) : std::nullopt;
}

void put_place(UniqueIdBytes& id, const MeetingPlace& place) {
  Stash stash;
  std::memset(&stash, 0, sizeof stash);
  std::memcpy(stash.magic, kMagic, sizeof kMagic);
  stash.version = kVersion;
  stash.place = place;
  stash.check = check_of(stash);
  std::memcpy(id.data() + kStashAt, &stash, sizeof stash);
}

std::optional<MeetingPlace> host_meeting(Board& board, const RunDirectory& run, const UniqueIdBytes& id,
                                         std::int64_t patience_ns) {
  const auto address = address_in(id);
  if (!address) return std::nullopt;
  MeetingPoint& meeting = board.meeting;
  std::uint32_t state = static_cast<std::uint32_t>(Wanted::No);
  if (meeting.wanted.compare_exchange_strong(state, static_cast<std::uint32_t>(Wanted::BeingSaid))) {
    meeting.host = *address;
    const Token token = Token::random();
    std::memcpy(meeting.host.token, token.bytes.data(), sizeof meeting.host.token);
    meeting.wanted.store(static_cast<std::uint32_t>(Wanted::Yes));
  }
  run.ring();
  const std::int64_t deadline = monotonic_ns() + patience_ns;
  while (meeting.port.load() == 0) {
    const std::int64_t left = deadline - monotonic_ns();
    if (left <= 0) return std::nullopt;
    futex_wait(meeting.port, 0, left);
  }
  MeetingPlace place = meeting.host;
  place.port = static_cast<std::uint16_t>(meeting.port.load());
  return place;
}

void attend_meeting(Board& board, const RunDirectory& run, const MeetingPlace& place, int members) {
  MeetingPoint& meeting = board.meeting;
  std::uint32_t stamp = meeting.stamp.load();
  if (members < 2 || stamp % 2 != 0 || static_cast<std::uint32_t>(members) <= meeting.members.load()) return;
  if (!meeting.stamp.compare_exchange_strong(stamp, stamp + 1)) return;
  meeting.guest = place;
  meeting.members.store(static_cast<std::uint32_t>(members));
  meeting.stamp.store(stamp + 2);
  run.ring();
}

std::optional<Invitation> invitation_of(Board& board) {
  MeetingPoint& meeting = board.meeting;
  const std::uint32_t stamp = meeting.stamp.load();
  if (stamp == 0 || stamp % 2 != 0) return std::nullopt;
  const MeetingPlace place = meeting.guest;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (meeting.stamp.load() != stamp) return std::nullopt;
  const bool here = meeting.wanted.load() == static_cast<std::uint32_t>(Wanted::Yes) &&
                    std::memcmp(place.token, meeting.host.token, sizeof place.token) == 0;
  if (here) return std::nullopt;
  Invitation invitation{kMeetingName, {address_of(place, place.port)}, {}};
  std::memcpy(invitation.token.bytes.data(), place.token, sizeof place.token);
  return invitation;
}

FileDescriptor open_meeting(Board& board) {
  MeetingPoint& meeting = board.meeting;
  if (meeting.wanted.load() != static_cast<std::uint32_t>(Wanted::Yes)) return {};
  const SocketAddress address = address_of(meeting.host, static_cast<std::uint16_t>(meeting.port.load()));
  FileDescriptor socket = listen_at(address);
  if (!socket) return socket;
  const auto own = SocketAddress::of(socket.get());
  if (!own) return {};
  meeting.port.store(own->port());
  futex_wake_all(meeting.port);
  return socket;
}

}  // namespace accel
