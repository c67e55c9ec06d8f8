// A CPU stand-in for libnccl.so.2, for tests on machines without a GPU: NCCL's own semantics on the stand-in
// driver's streams, data moved by Gloo. Calls return at once and run in stream order; groups run together; a
// call waits where a rank is missing; count 0 is dropped; ranks that disagree get garbage or hang;
// point-to-point is first come, first served for each pair. It checks nothing between ranks, as NCCL does
// not.
//
//   ACCEL_STANDIN_NCCL_MISMATCH=garbage (default), hang
//   ACCEL_STANDIN_NCCL_VERSION=22809
//   ACCEL_STANDIN_NCCL_MEMORY=1M     device memory that a communicator takes
//   ACCEL_STANDIN_NCCL_LAZY_MEMORY=0 device memory that its first collective takes
#pragma GCC visibility push(default)
#include <nccl.h>
#pragma GCC visibility pop
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "tests/standin/nccl/mesh.h"
#include "tests/standin/nccl/profiler.h"
#include "tests/standin/nccl/reduction.h"

using namespace standin;

struct ncclComm {
  int rank = 0;
  int size = 1;
  int device = 0;
  bool blocking = true;
  std::unique_ptr<Mesh> mesh;
  std::atomic<bool> aborted{false};
  std::atomic<bool> ready{false};
  std::atomic<int> async{ncclSuccess};
  std::uint64_t collectives = 0;
  std::uint64_t children = 0;
  std::vector<std::uint64_t> sends, receives;
  std::atomic<std::uint64_t> replayed{0};
  std::map<int, double> factors;  ///< of PreMulSum ops
  CUdeviceptr buffer = 0;
  CUdeviceptr lazy_buffer = 0;
  bool connected = false;
  Profiled profiled;
};

namespace {

thread_local std::string last_error;
ncclResult_t fail(ncclResult_t result, const std::string& why) {
  last_error = why;
  return result;
}

// The driver, as libnccl's own static runtime reaches it.

struct Driver {
  decltype(&::cuLaunchHostFunc) launch = nullptr;
  decltype(&::cuStreamIsCapturing) is_capturing = nullptr;
  decltype(&::cuMemAlloc_v2) allocate = nullptr;
  decltype(&::cuMemFree_v2) release = nullptr;
  decltype(&::cuCtxGetDevice) device = nullptr;
  decltype(&::cuCtxGetCurrent) current = nullptr;
  decltype(&::cuCtxSetCurrent) make_current = nullptr;
  decltype(&::cuStreamSynchronize) synchronize = nullptr;
  decltype(&::cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&::cuInit) init = nullptr;

  static const Driver& get() {
    static const Driver driver;
    return driver;
  }

 private:
  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return;
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    };
    take(launch, "cuLaunchHostFunc");
    take(is_capturing, "cuStreamIsCapturing");
    take(allocate, "cuMemAlloc_v2");
    take(release, "cuMemFree_v2");
    take(device, "cuCtxGetDevice");
    take(current, "cuCtxGetCurrent");
    take(make_current, "cuCtxSetCurrent");
    take(synchronize, "cuStreamSynchronize");
    take(retain, "cuDevicePrimaryCtxRetain");
    take(init, "cuInit");
  }
};

bool have_device() {
  const Driver& driver = Driver::get();
  if (driver.init == nullptr || driver.init(0) != CUDA_SUCCESS) return false;
  CUcontext context = nullptr;
  driver.current(&context);
  if (context != nullptr) return true;
  return driver.retain(&context, 0) == CUDA_SUCCESS && driver.make_current(context) == CUDA_SUCCESS;
}

/// NCCL works on its communicator's device, whichever is the caller's.
class AtDevice {
 public:
  explicit AtDevice(int device) {
    const Driver& driver = Driver::get();
    CUcontext context = nullptr;
    driver.current(&before_);
    if (driver.retain(&context, device) == CUDA_SUCCESS) driver.make_current(context);
  }
  ~AtDevice() { Driver::get().make_current(before_); }
  AtDevice(const AtDevice&) = delete;
  AtDevice& operator=(const AtDevice&) = delete;

 private:
  CUcontext before_ = nullptr;
};

/// As many bytes as a variable says.
bool take_memory(CUdeviceptr& buffer, const char* variable, std::size_t otherwise) {
  const char* text = std::getenv(variable);
  const std::size_t bytes = text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
  return bytes == 0 || Driver::get().allocate(&buffer, bytes) == CUDA_SUCCESS;
}

ncclResult_t out_of_memory() { return fail(ncclUnhandledCudaError, "Cuda failure 2 'out of memory'"); }

// Operations.

enum class Kind {
  AllReduce,
  Broadcast,
  Reduce,
  AllGather,
  ReduceScatter,
  AlltoAll,
  Gather,
  Scatter,
  Send,
  Recv
};
constexpr const char* kNames[] = {"AllReduce", "Broadcast", "Reduce",  "AllGather", "ReduceScatter",
                                  "AlltoAll",  "Gather",    "Scatter", "Send",      "Recv"};

struct Operation {
  Kind kind;
  const void* send;
  void* receive;
  std::size_t count;
  ncclDataType_t type;
  int op;
  int root;  ///< or the peer
  ncclComm_t comm;
  cudaStream_t stream;
  std::uint64_t number = 0;  ///< on the communicator, or on the pair
};

constexpr std::uint64_t kPointToPoint = std::uint64_t{1} << 56;
constexpr std::uint64_t kChild = std::uint64_t{2} << 56;
constexpr std::uint64_t kReplay = std::uint64_t{3} << 56;
constexpr std::uint64_t kNumber = std::uint64_t{4} << 56;

std::uint64_t slot(std::uint64_t space, std::uint64_t number, std::uint64_t step) {
  return space | number << 8 | step;
}

void apply(const Operation& one, void* into, const void* from, std::size_t count) {
  reducer(one.type)(into, from, count, one.op == ncclAvg || one.op >= ncclNumOps ? ncclSum : one.op);
}

/// Reduces everybody's data at `root`, in rank order, so that the result is the same in every run.
bool reduce_at(const Operation& one, int root, Bytes& result, std::size_t count, std::uint64_t space) {
  ncclComm& comm = *one.comm;
  const std::size_t bytes = count * size_of(one.type);
  Bytes own(static_cast<const char*>(one.send), static_cast<const char*>(one.send) + bytes);
  if (const auto factor = comm.factors.find(one.op); factor != comm.factors.end())
    scaler(one.type)(own.data(), count, factor->second);
  if (comm.rank != root) return comm.mesh->send(root, slot(space, one.number, 0), own);
  Bytes other(bytes);
  for (int rank = 0; rank < comm.size; ++rank) {
    if (rank != root && !comm.mesh->receive(rank, slot(space, one.number, 0), other.data(), bytes))
      return false;
    const Bytes& data = rank == root ? own : other;
    if (rank == 0) {
      result = data;
    } else {
      apply(one, result.data(), data.data(), count);
    }
  }
  if (one.op == ncclAvg) scaler(one.type)(result.data(), count, 1.0 / comm.size);
  return true;
}

bool broadcast_from(const Operation& one, int root, const void* from, void* to, std::size_t bytes,
                    std::uint64_t space, std::uint64_t step) {
  ncclComm& comm = *one.comm;
  if (comm.rank != root) return comm.mesh->receive(root, slot(space, one.number, step), to, bytes);
  for (int rank = 0; rank < comm.size; ++rank) {
    if (rank != root && !comm.mesh->send(rank, slot(space, one.number, step), from, bytes)) return false;
  }
  if (to != nullptr && to != from) std::memmove(to, from, bytes);
  return true;
}

/// What goes from rank to rank in pairs: all at once, each on a thread of its own.
void exchange(const std::vector<std::function<bool()>>& moves) {
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < moves.size(); ++i) threads.emplace_back([&, i] { moves[i](); });
  if (!moves.empty()) moves[0]();
  for (std::thread& thread : threads) thread.join();
}

bool execute(const Operation& one, std::uint64_t space) {
  ncclComm& comm = *one.comm;
  const std::size_t bytes = one.count * size_of(one.type);
  const auto* from = static_cast<const char*>(one.send);
  auto* to = static_cast<char*>(one.receive);
  const auto peers = static_cast<std::size_t>(comm.size);
  switch (one.kind) {
    case Kind::AllReduce: {
      Bytes result;
      if (!reduce_at(one, 0, result, one.count, space)) return false;
      return broadcast_from(one, 0, result.data(), to, bytes, space, 1);
    }
    case Kind::Reduce: {
      Bytes result;
      if (!reduce_at(one, one.root, result, one.count, space)) return false;
      if (comm.rank == one.root) std::memcpy(to, result.data(), bytes);
      return true;
    }
    case Kind::ReduceScatter: {
      Bytes result;
      if (!reduce_at(one, 0, result, one.count * peers, space)) return false;
      if (comm.rank != 0) return comm.mesh->receive(0, slot(space, one.number, 1), to, bytes);
      for (std::size_t rank = 1; rank < peers; ++rank) {
        const void* part = result.data() + rank * bytes;
        if (!comm.mesh->send(static_cast<int>(rank), slot(space, one.number, 1), part, bytes)) return false;
      }
      std::memcpy(to, result.data(), bytes);
      return true;
    }
    case Kind::Broadcast:
      return broadcast_from(one, one.root, from, to, bytes, space, 0);
    case Kind::AllGather: {
      const Bytes own(from, from + bytes);
      for (std::size_t rank = 0; rank < peers; ++rank) {
        if (!broadcast_from(one, static_cast<int>(rank), own.data(), to + rank * bytes, bytes, space,
                            rank % 128))
          return false;
      }
      return true;
    }
    case Kind::Gather:
      if (comm.rank != one.root) return comm.mesh->send(one.root, slot(space, one.number, 0), from, bytes);
      for (std::size_t rank = 0; rank < peers; ++rank) {
        if (static_cast<int>(rank) == comm.rank) {
          std::memmove(to + rank * bytes, from, bytes);
        } else if (!comm.mesh->receive(static_cast<int>(rank), slot(space, one.number, 0), to + rank * bytes,
                                       bytes)) {
          return false;
        }
      }
      return true;
    case Kind::Scatter:
      if (comm.rank != one.root) return comm.mesh->receive(one.root, slot(space, one.number, 0), to, bytes);
      for (std::size_t rank = 0; rank < peers; ++rank) {
        if (static_cast<int>(rank) == comm.rank) {
          std::memmove(to, from + rank * bytes, bytes);
        } else if (!comm.mesh->send(static_cast<int>(rank), slot(space, one.number, 0), from + rank * bytes,
                                    bytes)) {
          return false;
        }
      }
      return true;
    case Kind::AlltoAll: {
      const Bytes own(from, from + bytes * peers);
      std::vector<std::function<bool()>> moves;
      for (std::size_t rank = 0; rank < peers; ++rank) {
        const int peer = static_cast<int>(rank);
        if (peer == comm.rank) {
          std::memcpy(to + rank * bytes, own.data() + rank * bytes, bytes);
          continue;
        }
        moves.emplace_back([&, peer, rank] {
          return comm.mesh->send(peer, slot(space, one.number, 0), own.data() + rank * bytes, bytes);
        });
        moves.emplace_back([&, peer, rank] {
          return comm.mesh->receive(peer, slot(space, one.number, 0), to + rank * bytes, bytes);
        });
      }
      exchange(moves);
      return !comm.aborted;
    }
    case Kind::Send:
      return comm.mesh->send(one.root, slot(space | kPointToPoint, one.number, 0), from, bytes);
    case Kind::Recv:
      return comm.mesh->receive(one.root, slot(space | kPointToPoint, one.number, 0), to, bytes);
  }
  return false;
}

/// What one stream executes at once: a call, or all calls of a group on that stream.
struct Launch {
  std::vector<Operation> operations;
  bool captured = false;
};

void run(void* data) {
  const auto launch = static_cast<Launch*>(data);
  std::vector<std::function<bool()>> pairs;
  std::vector<const Operation*> to_self;
  for (Operation& one : launch->operations) {
    // A replay has no number of its own: it is counted as it comes.
    const std::uint64_t space = launch->captured ? kReplay : 0;
    if (launch->captured) one.number = ++one.comm->replayed;
    if (one.kind != Kind::Send && one.kind != Kind::Recv) {
      execute(one, space);
    } else if (one.root == one.comm->rank) {
      to_self.push_back(&one);
    } else {
      pairs.emplace_back([&one, space] { return execute(one, space); });
    }
  }
  for (const Operation* send : to_self) {
    for (const Operation* receive : to_self) {
      if (send->kind == Kind::Send && receive->kind == Kind::Recv && send->number == receive->number)
        std::memmove(receive->receive, send->send, receive->count * size_of(receive->type));
    }
  }
  exchange(pairs);
  if (!launch->captured) delete launch;
}

ncclResult_t launch(std::vector<Operation> operations) {
  std::vector<Launch*> launches;
  for (Operation& one : operations) {
    ncclComm& comm = *one.comm;
    const bool pair = one.kind == Kind::Send || one.kind == Kind::Recv;
    // NCCL drops empty collectives, and no others learn of it; empty messages need their pair.
    if (!pair && one.count == 0) continue;
    const auto peer = static_cast<std::size_t>(one.root);
    one.number = !pair                    ? ++comm.collectives
                 : one.kind == Kind::Send ? ++comm.sends[peer]
                                          : ++comm.receives[peer];
    const auto same = std::find_if(launches.begin(), launches.end(), [&](const Launch* other) {
      return other->operations.front().stream == one.stream && other->operations.front().comm == one.comm;
    });
    if (same != launches.end()) {
      (*same)->operations.push_back(one);
    } else {
      launches.push_back(new Launch{{one}});
    }
  }
  for (Launch* one : launches) {
    const AtDevice there(one->operations.front().comm->device);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const cudaStream_t stream = one->operations.front().stream;
    Driver::get().is_capturing(stream, &status);
    one->captured = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    Profiled& profiled = one->operations.front().comm->profiled;
    const std::vector<Operation> launched = one->operations;  // run may be done, and *one gone
    void* const event = profiled.begin_kernel(stream);
    const bool done = Driver::get().launch(stream, run, one) == CUDA_SUCCESS;
    profiled.end_kernel(event);
    if (!done) return fail(ncclUnhandledCudaError, "Cuda failure in a launch");
    for (const Operation& operation : launched) {
      const char* const name = kNames[static_cast<std::size_t>(operation.kind)];
      if (operation.kind == Kind::Send || operation.kind == Kind::Recv) {
        profiled.message(name, operation.count, operation.type, operation.root);
      } else {
        profiled.launch(name, operation.count, operation.type, operation.root);
      }
    }
  }
  return ncclSuccess;
}

// Groups.

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Operation> operations;
  std::vector<std::function<ncclResult_t()>> creations;
};
thread_local Group group;

ncclResult_t enqueue(Operation one) {
  ncclResult_t result = ncclSuccess;
  if (one.comm == nullptr || one.comm->aborted) {
    result = fail(ncclInvalidArgument, "invalid communicator");
  } else if (!one.comm->ready) {
    result = fail(ncclInvalidArgument, "the communicator is not ready");
  } else if (one.root < 0 || one.root >= one.comm->size) {
    result = fail(ncclInvalidArgument, "root or peer out of range");
  } else if (static_cast<int>(one.type) < 0 || static_cast<int>(one.type) > 11) {
    result = fail(ncclInvalidArgument, "invalid datatype");
  }
  if (result == ncclSuccess && one.kind != Kind::Send && one.kind != Kind::Recv) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    Driver::get().is_capturing(one.stream, &status);
    one.comm->profiled.call(kNames[static_cast<std::size_t>(one.kind)], one.count, one.type, one.root,
                            one.stream, status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  }
  if (result == ncclSuccess && !std::exchange(one.comm->connected, true) &&
      !take_memory(one.comm->lazy_buffer, "ACCEL_STANDIN_NCCL_LAZY_MEMORY", 0))
    result = out_of_memory();
  if (group.depth == 0) return result == ncclSuccess ? launch({one}) : result;
  if (result != ncclSuccess) {
    group.error = result;
  } else {
    group.operations.push_back(one);
  }
  return result;
}

ncclResult_t create(std::function<ncclResult_t()> creation) {
  if (group.depth == 0) return creation();
  group.creations.push_back(std::move(creation));
  return ncclSuccess;
}

// Communicators.

ncclResult_t complete(ncclComm& comm, int rank, int size, const Exchange& exchange) {
  comm.rank = rank;
  comm.size = size;
  comm.sends.resize(static_cast<std::size_t>(size));
  comm.receives.resize(static_cast<std::size_t>(size));
  if (!take_memory(comm.buffer, "ACCEL_STANDIN_NCCL_MEMORY", std::size_t{1} << 20)) {
    comm.async = ncclUnhandledCudaError;
    return out_of_memory();
  }
  comm.mesh = std::make_unique<Mesh>(rank, size, exchange);
  if (comm.aborted) return fail(ncclInternalError, "aborted");
  // One number for all its ranks.
  std::uint64_t number = std::random_device()();
  for (int peer = 1; rank == 0 && peer < size; ++peer)
    comm.mesh->send(peer, slot(kNumber, 0, 0), &number, sizeof number);
  if (rank != 0 && !comm.mesh->receive(0, slot(kNumber, 0, 0), &number, sizeof number))
    return fail(ncclInternalError, "aborted");
  comm.profiled.begin(number, size, rank);
  comm.ready = true;
  comm.async = ncclSuccess;
  return ncclSuccess;
}

bool is_blocking(const ncclConfig_t* config) { return config == nullptr || config->blocking != 0; }

/// Runs a creation now, at the end of the group, or in the background.
ncclResult_t begin(ncclComm* comm, std::function<ncclResult_t()> creation) {
  CUcontext context = nullptr;
  Driver::get().current(&context);
  auto there = [comm, context, creation = std::move(creation)] {
    Driver::get().make_current(context);
    const ncclResult_t result = creation();
    if (result != ncclSuccess) comm->async = result;
    return result;
  };
  if (comm->blocking) return create(there);
  comm->async = ncclInProgress;
  std::thread(there).detach();
  return ncclInProgress;
}

ncclResult_t init_rank(ncclComm_t* out, int size, ncclUniqueId id, int rank, const ncclConfig_t* config) {
  if (size < 1 || rank < 0 || rank >= size) return fail(ncclInvalidArgument, "Invalid rank requested");
  if (!have_device()) return fail(ncclUnhandledCudaError, "no device");
  auto* const comm = new ncclComm;
  comm->blocking = is_blocking(config);
  Driver::get().device(&comm->device);
  *out = comm;
  return begin(comm, [=] {
    return complete(*comm, rank, size,
                    [=](const Bytes& own) { return meet(id, rank, size, own, comm->aborted); });
  });
}

/// Everybody's data over a parent communicator.
std::vector<Bytes> gather(ncclComm& parent, std::uint64_t number, std::uint64_t step,
                          const std::vector<int>& members, const Bytes& own) {
  std::vector<Bytes> all(members.size());
  std::vector<std::function<bool()>> moves;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int peer = members[i];
    if (peer == parent.rank) {
      all[i] = own;
      continue;
    }
    moves.emplace_back([&, peer] { return parent.mesh->send(peer, slot(kChild, number, step), own); });
    moves.emplace_back(
        [&, peer, i] { return parent.mesh->receive(peer, slot(kChild, number, step), all[i]); });
  }
  exchange(moves);
  return parent.aborted ? std::vector<Bytes>{} : all;
}

ncclResult_t make_child(ncclComm& parent, std::uint64_t number, const std::vector<int>& members,
                        ncclComm& child) {
  const auto self = std::find(members.begin(), members.end(), parent.rank);
  return complete(child, static_cast<int>(self - members.begin()), static_cast<int>(members.size()),
                  [&](const Bytes& own) { return gather(parent, number, 1, members, own); });
}

void destroy(ncclComm_t comm) {
  if (comm->buffer != 0) Driver::get().release(comm->buffer);
  if (comm->lazy_buffer != 0) Driver::get().release(comm->lazy_buffer);
  comm->buffer = comm->lazy_buffer = 0;
  comm->profiled.end();
}

}  // namespace

#define API(result, name, parameters)                                                               \
  extern "C" __attribute__((visibility("default"))) result p##name parameters;                      \
  extern "C" __attribute__((visibility("default"), weak, alias("p" #name))) result name parameters; \
  result p##name parameters

API(ncclResult_t, ncclGetVersion, (int* version)) {
  const char* text = std::getenv("ACCEL_STANDIN_NCCL_VERSION");
  *version = text != nullptr ? std::atoi(text) : 22809;
  return ncclSuccess;
}
API(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id)) {
  return start_root(*id) ? ncclSuccess : fail(ncclSystemError, "no socket");
}
API(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int size, ncclUniqueId id, int rank)) {
  return init_rank(comm, size, id, rank, nullptr);
}
API(ncclResult_t, ncclCommInitRankConfig,
    (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config)) {
  return init_rank(comm, size, id, rank, config);
}
API(ncclResult_t, ncclCommInitRankScalable,
    (ncclComm_t * comm, int size, int rank, int count, ncclUniqueId* ids, ncclConfig_t* config)) {
  if (count < 1) return fail(ncclInvalidArgument, "no id");
  return init_rank(comm, size, ids[0], rank, config);
}
API(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int count, const int* devices)) {
  if (!have_device()) return fail(ncclUnhandledCudaError, "no device");
  ncclUniqueId id;
  ncclGetUniqueId(&id);  // through the PLT, as NCCL
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    comms[rank] = new ncclComm;
    comms[rank]->device = devices != nullptr ? devices[rank] : rank;
    threads.emplace_back([=] {
      ncclComm& comm = *comms[rank];
      CUcontext context = nullptr;
      Driver::get().retain(&context, comm.device);
      Driver::get().make_current(context);
      complete(comm, rank, count, [&](const Bytes& own) { return meet(id, rank, count, own, comm.aborted); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ncclSuccess;
}
API(ncclResult_t, ncclCommSplit,
    (ncclComm_t parent, int color, int key, ncclComm_t* out, ncclConfig_t* config)) {
  if (parent == nullptr) return fail(ncclInvalidArgument, "invalid communicator");
  const std::uint64_t number = ++parent->children;
  ncclComm_t child = nullptr;
  if (color != NCCL_SPLIT_NOCOLOR) {
    child = new ncclComm;
    child->device = parent->device;
    child->blocking = config != nullptr ? is_blocking(config) : parent->blocking;
  }
  *out = child;
  const auto split = [=] {
    std::vector<int> everybody(static_cast<std::size_t>(parent->size));
    std::iota(everybody.begin(), everybody.end(), 0);
    const int own[2] = {color, key};
    const char* bytes = reinterpret_cast<const char*>(own);
    const std::vector<Bytes> all = gather(*parent, number, 0, everybody, Bytes(bytes, bytes + sizeof own));
    if (all.empty()) return ncclInternalError;
    std::vector<std::pair<int, int>> members;
    for (int rank = 0; rank < parent->size; ++rank) {
      int theirs[2];
      std::memcpy(theirs, all[static_cast<std::size_t>(rank)].data(), sizeof theirs);
      if (theirs[0] == color) members.emplace_back(theirs[1], rank);
    }
    if (child == nullptr) return ncclSuccess;
    std::sort(members.begin(), members.end());
    std::vector<int> ranks;
    for (const auto& member : members) ranks.push_back(member.second);
    return make_child(*parent, number, ranks, *child);
  };
  return child != nullptr ? begin(child, split) : create(split);
}
API(ncclResult_t, ncclCommShrink,
    (ncclComm_t parent, int* excluded, int count, ncclComm_t* out, ncclConfig_t* config, int flags)) {
  if (parent == nullptr) return fail(ncclInvalidArgument, "invalid communicator");
  const std::uint64_t number = ++parent->children;
  std::sort(excluded, excluded + count);
  std::vector<int> members;
  for (int rank = 0; rank < parent->size; ++rank) {
    if (!std::binary_search(excluded, excluded + count, rank)) members.push_back(rank);
  }
  auto* const child = new ncclComm;
  child->device = parent->device;
  child->blocking = config != nullptr ? is_blocking(config) : parent->blocking;
  *out = child;
  (void)flags;
  return begin(child, [=] { return make_child(*parent, number, members, *child); });
}
API(ncclResult_t, ncclCommFinalize, (ncclComm_t)) { return ncclSuccess; }
API(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  destroy(comm);
  return ncclSuccess;
}
API(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  comm->aborted = true;
  if (comm->mesh) comm->mesh->abort();
  destroy(comm);
  return ncclSuccess;
}
API(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int)) {
  comm->aborted = true;
  if (comm->mesh) comm->mesh->abort();
  return ncclSuccess;
}
API(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error)) {
  if (comm == nullptr) return fail(ncclInvalidArgument, "invalid communicator");
  *error = static_cast<ncclResult_t>(comm->async.load());
  return ncclSuccess;
}
API(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int* count)) {
  if (comm == nullptr || !comm->ready) return fail(ncclInvalidArgument, "the communicator is not ready");
  *count = comm->size;
  return ncclSuccess;
}
API(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int* rank)) {
  if (comm == nullptr || !comm->ready) return fail(ncclInvalidArgument, "the communicator is not ready");
  *rank = comm->rank;
  return ncclSuccess;
}
API(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int* device)) {
  *device = comm->device;
  return ncclSuccess;
}
API(const char*, ncclGetErrorString, (ncclResult_t result)) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return static_cast<unsigned>(result) < std::size(kTexts) ? kTexts[result] : "unknown result code";
}
API(const char*, ncclGetLastError, (ncclComm_t)) { return last_error.c_str(); }
API(void, ncclResetDebugInit, ()) {}

API(ncclResult_t, ncclGroupStart, ()) {
  ++group.depth;
  return ncclSuccess;
}
API(ncclResult_t, ncclGroupEnd, ()) {
  if (group.depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::move(group);
  group = {};
  if (ended.error != ncclSuccess) return ended.error;
  std::vector<std::thread> threads;
  std::atomic<int> result{ncclSuccess};
  for (const auto& creation : ended.creations) {
    threads.emplace_back([&] {
      if (const ncclResult_t error = creation()) result = error;
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (result != ncclSuccess) return static_cast<ncclResult_t>(result.load());
  return launch(ended.operations);
}
API(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t*)) {
  if (group.depth > 0 && --group.depth == 0) group = {};
  return ncclSuccess;
}

#define RANK_OF(comm) ((comm) != nullptr ? (comm)->rank : 0)
API(ncclResult_t, ncclAllReduce,
    (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
     cudaStream_t stream)) {
  return enqueue({Kind::AllReduce, send, receive, count, type, op, 0, comm, stream});
}
// As of 2.31; how it is to be done changes nothing here.
API(ncclResult_t, ncclAllReduceConfig,
    (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
     cudaStream_t stream, const void*)) {
  return enqueue({Kind::AllReduce, send, receive, count, type, op, 0, comm, stream});
}
API(ncclResult_t, ncclBroadcast,
    (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
     cudaStream_t stream)) {
  return enqueue({Kind::Broadcast, send, receive, count, type, 0, root, comm, stream});
}
API(ncclResult_t, ncclBcast,
    (void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);  // through the PLT, as NCCL
}
API(ncclResult_t, ncclReduce,
    (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
     ncclComm_t comm, cudaStream_t stream)) {
  return enqueue({Kind::Reduce, send, receive, count, type, op, root, comm, stream});
}
API(ncclResult_t, ncclAllGather,
    (const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
     cudaStream_t stream)) {
  return enqueue({Kind::AllGather, send, receive, count, type, 0, 0, comm, stream});
}
API(ncclResult_t, ncclReduceScatter,
    (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
     cudaStream_t stream)) {
  return enqueue({Kind::ReduceScatter, send, receive, count, type, op, 0, comm, stream});
}
API(ncclResult_t, ncclAlltoAll,
    (const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
     cudaStream_t stream)) {
  return enqueue({Kind::AlltoAll, send, receive, count, type, 0, 0, comm, stream});
}
API(ncclResult_t, ncclGather,
    (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
     cudaStream_t stream)) {
  return enqueue({Kind::Gather, send, receive, count, type, 0, root, comm, stream});
}
API(ncclResult_t, ncclScatter,
    (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
     cudaStream_t stream)) {
  return enqueue({Kind::Scatter, send, receive, count, type, 0, root, comm, stream});
}
API(ncclResult_t, ncclSend,
    (const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) {
  return enqueue({Kind::Send, data, nullptr, count, type, 0, peer, comm, stream});
}
API(ncclResult_t, ncclRecv,
    (void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) {
  return enqueue({Kind::Recv, nullptr, data, count, type, 0, peer, comm, stream});
}

API(ncclResult_t, ncclRedOpCreatePreMulSum,
    (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t, ncclComm_t comm)) {
  const double factor = type == ncclFloat32   ? *static_cast<float*>(scalar)
                        : type == ncclFloat64 ? *static_cast<double*>(scalar)
                                              : static_cast<double>(*static_cast<std::int32_t*>(scalar));
  // As in NCCL the number differs from rank to rank: it is mangled with the communicator's address.
  const auto mangled = static_cast<int>(reinterpret_cast<std::uintptr_t>(comm) >> 4 & 0xffffff) +
                       static_cast<int>(comm->factors.size()) + ncclNumOps;
  comm->factors[mangled] = factor;
  *op = static_cast<ncclRedOp_t>(mangled);
  return ncclSuccess;
}
API(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t, ncclComm_t)) { return ncclSuccess; }

API(ncclResult_t, ncclMemAlloc, (void** where, size_t bytes)) {
  if (!have_device()) return ncclUnhandledCudaError;
  CUdeviceptr memory = 0;
  if (Driver::get().allocate(&memory, bytes) != CUDA_SUCCESS) return out_of_memory();
  *where = reinterpret_cast<void*>(memory);
  return ncclSuccess;
}
API(ncclResult_t, ncclMemFree, (void* where)) {
  return Driver::get().release(reinterpret_cast<CUdeviceptr>(where)) == CUDA_SUCCESS ? ncclSuccess
                                                                                     : ncclUnhandledCudaError;
}
API(ncclResult_t, ncclCommRegister, (const ncclComm_t, void*, size_t, void** handle)) {
  *handle = nullptr;
  return ncclSuccess;
}
API(ncclResult_t, ncclCommDeregister, (const ncclComm_t, void*)) { return ncclSuccess; }
API(ncclResult_t, ncclCommWindowRegister, (ncclComm_t, void*, size_t, ncclWindow_t* window, int)) {
  *window = nullptr;
  return ncclSuccess;
}
API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t, ncclWindow_t)) { return ncclSuccess; }
