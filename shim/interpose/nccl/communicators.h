// NCCL communicators of this process: which slot of the recorder file, a key that is the same on all members,
// and what their calls need to be compared.
//
// The key comes from the ncclUniqueId, which all members pass; a child's from its parent's key, how many
// children the parent had before (all members agree on that), and the colour or the ranks that are left out.
// Never NCCL's own commHash: up to 2.23 it is the same for two splits of one colour.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "interpose/handle_map.h"
#include "record/recorder.h"

namespace accel::nccl {

/// ncclUniqueId. Passed by value.
struct UniqueId {
  std::uint64_t words[16];
};

struct Communicator {
  int slot = -1;
  int rank = 0;
  int size = 0;
  std::uint64_t key = 0;
  std::atomic<std::uint64_t> children{0};
  std::atomic<std::uint64_t> ops{0};           ///< made with ncclRedOpCreatePreMulSum
  std::atomic<std::uint64_t> initializing{0};  ///< non-blocking: its creation's ThreadRecord::current
  std::vector<PairRecord*> pairs[2];           ///< by peer: sends, receives; found at their first use
  std::mutex mutex;

  /// nullptr where there are too many.
  PairRecord* pair(Recorder& recorder, int peer, bool receives);
};

namespace detail {
extern HandleMap<4096> slots;
extern std::unique_ptr<Communicator> communicators[kMaxCommunicators];
extern HandleMap<1024> ops;  // handle ^ communicator's slot to number
}  // namespace detail

/// nullptr: made by a function that we do not follow; calls on it are not judged.
inline Communicator* communicator(Handle handle) {
  const int slot = detail::slots.find(handle);
  return slot >= 0 ? detail::communicators[slot].get() : nullptr;
}

/// Enters a communicator into the record, before it exists; nullptr where there are too many.
Communicator* announce(Recorder& recorder, std::uint64_t key, int rank, int size);
/// It exists now, or (handle 0) it has failed to come into being.
void resolve(Recorder& recorder, Communicator& communicator, Handle handle);
/// Before the real function: right after it another thread may get the same handle.
void forget(Recorder& recorder, Handle handle, std::uint32_t flags);

/// Key of what comes of an id: the same on all members, another one each time this process uses the id
/// for that rank, which is `reused` then.
struct Key {
  std::uint64_t value = 0;
  bool reused = false;
};
Key key_of(const UniqueId& id, int rank);

}  // namespace accel::nccl
