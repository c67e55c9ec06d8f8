#include "interpose/mpi/communicators.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "interpose/handle_map.h"

namespace accel {

namespace detail {
HandleMap<4096> slots;
CommunicatorInfo communicators[kMaxCommunicators];
}  // namespace detail

namespace {

using detail::slots;

void add(Recorder& recorder, Handle handle, const CommunicatorInfo& communicator, std::uint32_t flags) {
  CommunicatorRecord record{};
  record.key = communicator.key;
  record.rank = communicator.rank;
  record.size = communicator.size;
  record.flags = flags | (communicator.inter ? kCommunicatorInter : 0);
  const int slot = recorder.add_communicator(record);
  if (slot < 0) return;
  CommunicatorInfo& info = detail::communicators[slot];
  info = communicator;
  info.slot = slot;
  if (!slots.set(handle, slot)) recorder.free_communicator(slot);
}

/// World ranks of a group's members, in order.
std::vector<int> world_ranks(Handle group) {
  int size = 0;
  Handle world_group = 0;
  mpi().Group_size(group, &size);
  std::vector<int> own(static_cast<std::size_t>(std::max(size, 0)));
  std::vector<int> world(own.size(), -1);
  std::iota(own.begin(), own.end(), 0);
  if (mpi().Comm_group(abi().comm_world, &world_group) != 0) return world;
  if (!own.empty()) mpi().Group_translate_ranks(group, size, own.data(), world_group, world.data());
  mpi().Group_free(&world_group);
  return world;
}

std::uint64_t members_hash(std::vector<int> members) {
  std::sort(members.begin(), members.end());
  std::uint64_t hash = members.size();
  for (const int member : members)
    hash = mix(hash, static_cast<std::uint64_t>(static_cast<std::int64_t>(member)));
  return hash;
}

}  // namespace

void load_communicators(Recorder& recorder, std::uint64_t world_key, int world_rank, int world_size) {
  add(recorder, abi().comm_world, {-1, world_rank, world_size, false, world_key}, kCommunicatorWorld);
  const std::uint64_t self_key = mix(world_key, 0x73656c66u + static_cast<std::uint64_t>(world_rank)) | 1;
  add(recorder, abi().comm_self, {-1, 0, 1, false, self_key}, 0);
}

void adopt_communicator(Recorder& recorder, const CommunicatorInfo& parent, std::uint64_t sequence,
                        std::int64_t salt, Handle created) {
  if (created == 0 || created == abi().comm_null) return;
  CommunicatorInfo child;
  int inter = 0;
  Handle group = 0;
  if (mpi().Comm_rank(created, &child.rank) != 0 || mpi().Comm_size(created, &child.size) != 0 ||
      mpi().Comm_test_inter(created, &inter) != 0 || mpi().Comm_group(created, &group) != 0) {
    return;
  }
  child.inter = inter != 0;
  const std::vector<int> members = world_ranks(group);
  mpi().Group_free(&group);
  if (child.inter) {
    // Both sides must find the same key, whichever communicator each made the call on.
    Handle remote = 0;
    if (mpi().Comm_remote_group(created, &remote) != 0) return;
    const std::uint64_t here = members_hash(members);
    const std::uint64_t there = members_hash(world_ranks(remote));
    mpi().Group_free(&remote);
    child.key = mix(mix(std::min(here, there), std::max(here, there)), 0x696e746572u);
    child.key = parent.inter ? mix(mix(parent.key, sequence), child.key) : child.key;
  } else if (sequence == 0) {
    // Only the members made the call: their number on the parent says nothing.
    child.key = mix(mix(parent.key, members_hash(members)), static_cast<std::uint64_t>(salt));
  } else {
    child.key =
        mix(mix(parent.key, sequence), static_cast<std::uint64_t>(members.empty() ? 0 : members.front()));
  }
  if (sequence == 0 || (child.inter && !parent.inter)) {
    // The same members may do so again: the n-th time.
    static std::mutex mutex;
    static std::map<std::uint64_t, std::uint64_t> times;
    const std::lock_guard lock(mutex);
    child.key = mix(child.key, ++times[child.key]);
  }
  child.key |= 1;
  add(recorder, created, child, 0);
}

void adopt_duplicate(Recorder& recorder, const CommunicatorInfo& parent, std::uint64_t sequence,
                     Handle created) {
  if (created == 0 || created == abi().comm_null) return;
  CommunicatorInfo child = parent;
  child.key = mix(mix(parent.key, sequence), 0x647570) | 1;
  add(recorder, created, child, 0);
}

void forget_communicator(Recorder& recorder, Handle handle) {
  const int slot = slots.erase(handle);
  if (slot >= 0) recorder.free_communicator(slot);
}

}  // namespace accel
