// Communicators come and go: written out, since each function is different.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "interpose/export.h"
#include "interpose/nccl/errors.h"
#include "interpose/nccl/observe.h"
#include "interpose/nccl/profiler.h"
#include "interpose/nccl/wrapper.h"
#include "lifecycle/agent.h"
#include "lifecycle/process.h"
#include "nodes/meeting.h"

namespace accel::nccl {
namespace {

/// `key`: of the communicator that is about to be made.
const Session* start(int rank, int size, std::uint64_t key) {
  if (thread_state.nested != 0) return nullptr;
  withdraw_plugin();
  const auto how = [] {
    int version = 0;
    if (auto* get_version = reinterpret_cast<int (*)(int*)>(find_real("GetVersion", nullptr)))
      get_version(&version);
    return "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100) + " (" + library_path() + ")";
  };
  if (!observe(rank, size, key, how)) return nullptr;
  static Session now;
  static const bool made = [&] {
    Process& process = Process::self();
    now = {process.recorder(), &process.sites(), process.settings().check == Check::Sync};
    on_verdict(tell_program);
    session.store(&now, std::memory_order_release);
    return true;
  }();
  (void)made;
  return active();
}

/// Common to all ways to join a communicator by id. `really` returns NCCL's result.
template <class Create>
int create(const Session& now, const Key& key, int rank, int size, Handle* handle, const void* caller,
           const void* frame, Create&& really) {
  const DepthGuard guard(thread_state.nested);
  if (const int error = standing_verdict()) return error;
  Pending pending;
  pending.communicator = announce(*now.recorder, key.value, rank, size);
  if (pending.communicator == nullptr) return really();
  if (key.reused) now.recorder->flag_communicator(pending.communicator->slot, kCommunicatorReused);
  pending.draft.function = Function::NcclCommInitRank;
  pending.draft.communicator = static_cast<std::uint16_t>(pending.communicator->slot);
  pending.draft.site = now.sites->find(caller, frame);
  pending.draft.count = size;
  pending.agreement.agreed =
      mix(agreed_start(Function::NcclCommInitRank, 0, 0), static_cast<std::uint64_t>(size));
  Group& together = group();
  if (together.depth > 0) {
    const int result = really();
    if (accepted(result)) {
      together.calls.push_back(pending);
      together.creations.push_back({pending.communicator, handle});
    } else {
      together.refused = true;
      resolve(*now.recorder, *pending.communicator, 0);
    }
    return result;
  }
  Session unchecked = now;
  unchecked.sync = false;  // NCCL itself waits for all here
  Launch launch(unchecked, &pending, 1);
  const int result = really();
  launch.end(result);
  settle(*now.recorder, *pending.communicator, handle, result);
  return result;
}

bool valid(int rank, int size) { return size > 0 && rank >= 0 && rank < size; }

int query(const char* name, Handle handle) {
  int value = -1;
  auto* ask = reinterpret_cast<int (*)(Handle, int*)>(find_real(name, nullptr));
  if (ask == nullptr || ask(handle, &value) != kSuccess) return -1;
  return value;
}

/// A child that exists. Its rank and size are asked for: NCCL knows them only now.
void adopt(const Session& now, std::uint64_t key, Handle handle) {
  if (handle == 0) return;
  const int rank = query("CommUserRank", handle);
  const int size = query("CommCount", handle);
  if (!valid(rank, size)) return;  // not ready yet (non-blocking): its calls are not judged
  if (Communicator* child = announce(*now.recorder, key, rank, size)) resolve(*now.recorder, *child, handle);
}

std::uint64_t child_key(Communicator& parent, std::uint64_t kind, std::uint64_t which) {
  return mix(mix(mix(parent.key, ++parent.children), kind), which) | 1;
}

/// A call on a communicator that returns when it is done, as the ones that end it.
template <class Call>
int alone(const Session& now, Function function, Communicator& own, Agreement agreement, std::int32_t root,
          const void* caller, const void* frame, Call&& really) {
  const DepthGuard guard(thread_state.nested);
  Pending pending;
  pending.communicator = &own;
  pending.draft.function = function;
  pending.draft.communicator = static_cast<std::uint16_t>(own.slot);
  pending.draft.site = now.sites->find(caller, frame);
  pending.draft.root = root;
  pending.agreement = agreement;
  Group& together = group();
  if (together.depth > 0) {
    const int result = really();
    if (accepted(result)) {
      together.calls.push_back(pending);
    } else {
      together.refused = true;
    }
    return result;
  }
  Launch launch(now, &pending, 1);
  if (launch.verdict() != kSuccess) return launch.verdict();
  const int result = really();
  launch.end(result);
  return result;
}

bool all_ranks_are_here() {
  const auto number = [](const char* name) {
    const char* const text = std::getenv(name);
    return text != nullptr && *text != '\0' ? std::atoi(text) : -1;
  };
  for (const auto& [here, all] :
       {std::pair("LOCAL_WORLD_SIZE", "WORLD_SIZE"), std::pair("MPI_LOCALNRANKS", "PMI_SIZE"),
        std::pair("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE")}) {
    if (number(here) > 0 && number(here) == number(all)) return true;
  }
  return number("SLURM_STEP_NUM_NODES") == 1;
}

/// The id is on its way to all ranks: it tells their hosts' leaders where to meet. With NCCL_COMM_ID the ids
/// of all ranks must be the same, so that nothing may be added.
void invite(UniqueId& id) {
  constexpr std::int64_t kPatience = 300'000'000;
  constexpr std::uint64_t kOfCommId = 0x0280028002800280;  // NCCL_MAGIC, bootstrap.cc
  if (std::getenv("NCCL_COMM_ID") != nullptr || id.words[0] == kOfCommId || all_ranks_are_here()) return;
  Process& process = Process::self();
  if (!process.start(kUsesNccl) || process.is_invited()) return;
  start_agent();
  UniqueIdBytes bytes;
  std::memcpy(bytes.data(), &id, bytes.size());
  const auto place = host_meeting(process.board(), process.run(), bytes, kPatience);
  if (!place) return;
  put_place(bytes, *place);
  std::memcpy(&id, bytes.data(), bytes.size());
}

void attend(const UniqueId& id, int size) {
  UniqueIdBytes bytes;
  std::memcpy(bytes.data(), &id, bytes.size());
  Process& process = Process::self();
  if (const auto place = place_in(bytes); place && !process.is_invited())
    attend_meeting(process.board(), process.run(), *place, size);
}

}  // namespace
}  // namespace accel::nccl

using namespace accel;
using nccl::UniqueId;

#define CALLER __builtin_return_address(0)
#define FRAME __builtin_frame_address(0)
/// `next`: the real function; returns from the wrapper where there is none.
#define REAL(function, ...)                              \
  static constinit nccl::Real real(#function);           \
  auto* const next = real.get<int(__VA_ARGS__)>(CALLER); \
  if (next == nullptr) return nccl::lacks(real.name())

ACCEL_EXPORT int ncclGetUniqueId(UniqueId* id) {
  REAL(GetUniqueId, UniqueId*);
  const int result = next(id);
  if (result == nccl::kSuccess && id != nullptr && thread_state.nested == 0) nccl::invite(*id);
  return result;
}

ACCEL_EXPORT int ncclCommInitRank(Handle* comm, int size, UniqueId id, int rank) {
  REAL(CommInitRank, Handle*, int, UniqueId, int);
  if (thread_state.nested != 0 || !nccl::valid(rank, size)) return next(comm, size, id, rank);
  const nccl::Key key = nccl::key_of(id, rank);
  const Session* now = nccl::start(rank, size, key.value);
  if (now != nullptr) nccl::attend(id, size);
  if (now == nullptr) return next(comm, size, id, rank);
  return nccl::create(*now, key, rank, size, comm, CALLER, FRAME, [&] { return next(comm, size, id, rank); });
}

ACCEL_EXPORT int ncclCommInitRankConfig(Handle* comm, int size, UniqueId id, int rank, void* config) {
  REAL(CommInitRankConfig, Handle*, int, UniqueId, int, void*);
  if (thread_state.nested != 0 || !nccl::valid(rank, size)) return next(comm, size, id, rank, config);
  const nccl::Key key = nccl::key_of(id, rank);
  const Session* now = nccl::start(rank, size, key.value);
  if (now != nullptr) nccl::attend(id, size);
  if (now == nullptr) return next(comm, size, id, rank, config);
  return nccl::create(*now, key, rank, size, comm, CALLER, FRAME,
                      [&] { return next(comm, size, id, rank, config); });
}

ACCEL_EXPORT int ncclCommInitRankScalable(Handle* comm, int size, int rank, int count, UniqueId* ids,
                                          void* config) {
  REAL(CommInitRankScalable, Handle*, int, int, int, UniqueId*, void*);
  if (thread_state.nested != 0 || !nccl::valid(rank, size) || count < 1)
    return next(comm, size, rank, count, ids, config);
  const nccl::Key key = nccl::key_of(ids[0], rank);
  const Session* now = nccl::start(rank, size, key.value);
  if (now != nullptr) nccl::attend(ids[0], size);
  if (now == nullptr) return next(comm, size, rank, count, ids, config);
  return nccl::create(*now, key, rank, size, comm, CALLER, FRAME,
                      [&] { return next(comm, size, rank, count, ids, config); });
}

ACCEL_EXPORT int ncclCommInitAll(Handle* comms, int count, const int* devices) {
  REAL(CommInitAll, Handle*, int, const int*);
  const Session* now = count > 0 ? nccl::start(0, 1, 0) : nullptr;
  if (now == nullptr) return next(comms, count, devices);
  const DepthGuard guard(thread_state.nested);
  const int result = next(comms, count, devices);
  if (result != nccl::kSuccess) return result;
  static std::atomic<std::uint64_t> times{0};
  // All its ranks are in this process: nobody else needs to find the key.
  const std::uint64_t key =
      mix(mix(static_cast<std::uint64_t>(monotonic_ns()), static_cast<std::uint64_t>(getpid())), ++times) | 1;
  for (int rank = 0; rank < count; ++rank) {
    if (auto* own = nccl::announce(*now->recorder, key, rank, count))
      resolve(*now->recorder, *own, comms[rank]);
  }
  return result;
}

ACCEL_EXPORT int ncclCommSplit(Handle comm, int color, int key, Handle* created, void* config) {
  REAL(CommSplit, Handle, int, int, Handle*, void*);
  const Session* now = nccl::active();
  nccl::Communicator* parent = now != nullptr ? nccl::communicator(comm) : nullptr;
  if (parent == nullptr) return next(comm, color, key, created, config);
  if (const int error = nccl::standing_verdict()) return error;
  const std::uint64_t child = nccl::child_key(*parent, 0x73706c69, static_cast<std::uint32_t>(color));
  const Agreement agreement{agreed_start(Function::NcclCommSplit, 0, 0), 0};
  const bool grouped = nccl::group().depth > 0;
  const int result = nccl::alone(*now, Function::NcclCommSplit, *parent, agreement, -1, CALLER, FRAME,
                                 [&] { return next(comm, color, key, created, config); });
  constexpr int kNoColor = -1;
  if (result == nccl::kSuccess && !grouped && color != kNoColor) nccl::adopt(*now, child, *created);
  return result;
}

ACCEL_EXPORT int ncclCommShrink(Handle comm, int* excluded, int count, Handle* created, void* config,
                                int flags) {
  REAL(CommShrink, Handle, int*, int, Handle*, void*, int);
  const Session* now = nccl::active();
  nccl::Communicator* parent = now != nullptr ? nccl::communicator(comm) : nullptr;
  if (parent == nullptr) return next(comm, excluded, count, created, config, flags);
  std::vector<int> sorted(excluded, excluded + std::max(count, 0));
  std::sort(sorted.begin(), sorted.end());
  std::uint64_t without = 0;
  for (const int rank : sorted) without = mix(without, static_cast<std::uint64_t>(rank) + 1);
  const std::uint64_t child = nccl::child_key(*parent, 0x7368726e, without);
  constexpr int kAbort = 1;
  if ((flags & kAbort) != 0) now->recorder->flag_communicator(parent->slot, kCommunicatorAborted);
  const bool grouped = nccl::group().depth > 0;
  const int result = nccl::alone(*now, Function::NcclCommShrink, *parent, {}, -1, CALLER, FRAME,
                                 [&] { return next(comm, excluded, count, created, config, flags); });
  if (result == nccl::kSuccess && !grouped) nccl::adopt(*now, child, *created);
  return result;
}

ACCEL_EXPORT int ncclCommWindowRegister(Handle comm, void* buffer, std::size_t bytes, void* window,
                                        int flags) {
  REAL(CommWindowRegister, Handle, void*, std::size_t, void*, int);
  const Session* now = nccl::active();
  nccl::Communicator* own = now != nullptr ? nccl::communicator(comm) : nullptr;
  if (own == nullptr || library_at(CALLER) == Library::Nccl) return next(comm, buffer, bytes, window, flags);
  const Agreement agreement{
      mix(agreed_start(Function::NcclCommWindowRegister, 0, 0), static_cast<std::uint64_t>(flags)), 0};
  return nccl::alone(*now, Function::NcclCommWindowRegister, *own, agreement, -1, CALLER, FRAME,
                     [&] { return next(comm, buffer, bytes, window, flags); });
}

ACCEL_EXPORT int ncclCommFinalize(Handle comm) {
  REAL(CommFinalize, Handle);
  const Session* now = nccl::active();
  nccl::Communicator* own = now != nullptr ? nccl::communicator(comm) : nullptr;
  if (own == nullptr) return next(comm);
  return nccl::alone(*now, Function::NcclCommFinalize, *own, {}, -1, CALLER, FRAME,
                     [&] { return next(comm); });
}

ACCEL_EXPORT int ncclCommDestroy(Handle comm) {
  REAL(CommDestroy, Handle);
  const Session* now = nccl::active();
  nccl::Communicator* own = now != nullptr ? nccl::communicator(comm) : nullptr;
  if (own == nullptr) return next(comm);
  return nccl::alone(*now, Function::NcclCommDestroy, *own, {}, -1, CALLER, FRAME, [&] {
    nccl::forget(*now->recorder, comm, 0);
    return next(comm);
  });
}

/// The program gives the communicator up: it knows why.
ACCEL_EXPORT int ncclCommAbort(Handle comm) {
  REAL(CommAbort, Handle);
  if (const Session* now = nccl::active()) nccl::forget(*now->recorder, comm, kCommunicatorAborted);
  const DepthGuard guard(thread_state.nested);
  return next(comm);
}

/// By this a program waits for a non-blocking communicator: until it exists, the thread is still in the call
/// that makes it.
ACCEL_EXPORT int ncclCommGetAsyncError(Handle comm, int* error) {
  REAL(CommGetAsyncError, Handle, int*);
  const int result = next(comm, error);
  const Session* now = nccl::active();
  nccl::Communicator* own = now != nullptr && result == nccl::kSuccess ? nccl::communicator(comm) : nullptr;
  const std::uint64_t call = own != nullptr ? own->initializing.load(std::memory_order_relaxed) : 0;
  ThreadRecord* thread = call != 0 ? thread_record(*now->recorder) : nullptr;
  if (thread == nullptr) return result;
  const bool done = *error != nccl::kInProgress;
  if (done) own->initializing.store(0);
  now->recorder->wait_for(*thread, call, done);
  return result;
}

ACCEL_EXPORT int ncclCommRevoke(Handle comm, int flags) {
  REAL(CommRevoke, Handle, int);
  const Session* now = nccl::active();
  nccl::Communicator* own = now != nullptr ? nccl::communicator(comm) : nullptr;
  if (own != nullptr) now->recorder->flag_communicator(own->slot, kCommunicatorAborted);
  const DepthGuard guard(thread_state.nested);
  return next(comm, flags);
}

ACCEL_EXPORT int ncclRedOpCreatePreMulSum(int* op, void* scalar, int datatype, int residence, Handle comm) {
  REAL(RedOpCreatePreMulSum, int*, void*, int, int, Handle);
  const int result = next(op, scalar, datatype, residence, comm);
  nccl::Communicator* own = nccl::active() != nullptr ? nccl::communicator(comm) : nullptr;
  if (result == nccl::kSuccess && own != nullptr) {
    const Handle name = static_cast<Handle>(*op) ^ static_cast<Handle>(own->slot) << 32;
    nccl::detail::ops.set(name, static_cast<int>(own->ops++ & 0xfff));
  }
  return result;
}

ACCEL_EXPORT int ncclRedOpDestroy(int op, Handle comm) {
  REAL(RedOpDestroy, int, Handle);
  nccl::Communicator* own = nccl::active() != nullptr ? nccl::communicator(comm) : nullptr;
  if (own != nullptr) nccl::detail::ops.erase(static_cast<Handle>(op) ^ static_cast<Handle>(own->slot) << 32);
  return next(op, comm);
}
