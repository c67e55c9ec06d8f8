#include "interpose/nccl/communicators.h"

#include <cstdlib>
#include <map>

#include "signature/hash.h"

namespace accel::nccl {

namespace detail {
HandleMap<4096> slots;
std::unique_ptr<Communicator> communicators[kMaxCommunicators];
HandleMap<1024> ops;
}  // namespace detail

PairRecord* Communicator::pair(Recorder& recorder, int peer, bool receives) {
  if (peer < 0 || peer >= size) return nullptr;
  const std::lock_guard lock(mutex);
  auto& all = pairs[receives ? 1 : 0];
  if (all.empty()) all.resize(static_cast<std::size_t>(size));
  PairRecord*& one = all[static_cast<std::size_t>(peer)];
  if (one == nullptr) one = recorder.add_pair(key, peer, receives ? 1 : 0);
  return one;
}

Communicator* announce(Recorder& recorder, std::uint64_t key, int rank, int size) {
  CommunicatorRecord record{};
  record.key = key;
  record.rank = rank;
  record.size = size;
  record.flags = kCommunicatorOnStream;
  const int slot = recorder.add_communicator(record);
  if (slot < 0) return nullptr;
  auto& place = detail::communicators[slot];
  place = std::make_unique<Communicator>();
  place->slot = slot;
  place->rank = rank;
  place->size = size;
  place->key = key;
  return place.get();
}

void resolve(Recorder& recorder, Communicator& communicator, Handle handle) {
  const bool exists = handle != 0 && detail::slots.set(handle, communicator.slot);
  if (!exists) recorder.flag_communicator(communicator.slot, kCommunicatorFreed | kCommunicatorAborted);
}

void forget(Recorder& recorder, Handle handle, std::uint32_t flags) {
  const int slot = detail::slots.erase(handle);
  if (slot >= 0) recorder.flag_communicator(slot, kCommunicatorFreed | flags);
}

Key key_of(const UniqueId& id, int rank) {
  std::uint64_t key = 0x6e63636c;
  for (const std::uint64_t word : id.words) key = mix(key, word);
  static std::mutex mutex;
  static std::map<std::pair<std::uint64_t, int>, std::uint64_t> times;
  const std::lock_guard lock(mutex);
  const std::uint64_t before = times[{key, rank}]++;
  // With NCCL_COMM_ID every id is the same by right.
  const bool reused = before != 0 && std::getenv("NCCL_COMM_ID") == nullptr;
  return {(before == 0 ? key : mix(key, before)) | 1, reused};
}

}  // namespace accel::nccl
