// random SEED COUNT [fault]: COUNT random programs of NCCL calls, the same on all ranks; prints a hash of all
// results. With "fault", each ends with one call in which one rank differs from the others, and says how.
#include <cstdint>
#include <random>

#include "tests/programs/nccl/rank.h"

namespace {

constexpr std::size_t kMost = 512;
Rank me;
cudaStream_t streams[2];
char* send_all;
char* receive_all;
constexpr std::size_t kParts = 3;  ///< calls of one group work on different memory
std::size_t bytes_of_all() { return kParts * kMost * 8 * static_cast<std::size_t>(me.size); }
std::uint64_t results = 14695981039346656037U;

/// All ranks draw the same numbers.
std::mt19937 random_numbers;
int below(int limit) { return static_cast<int>(random_numbers() % static_cast<unsigned>(limit)); }

struct Communicator {
  ncclComm_t comm = nullptr;
  int rank = 0;
  int size = 0;
};

struct Call {
  int kind = 0;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  int stream = 0;
  int shift = 1;  ///< of the ring
};

const ncclDataType_t kTypes[] = {ncclInt8,    ncclUint8,   ncclInt32,  ncclInt64,
                                 ncclFloat16, ncclFloat32, ncclFloat64};
std::size_t size_of(ncclDataType_t type) {
  return type == ncclInt8 || type == ncclUint8      ? 1
         : type == ncclFloat16                      ? 2
         : type == ncclInt32 || type == ncclFloat32 ? 4
                                                    : 8;
}

Call draw(const Communicator& on) {
  Call call;
  call.kind = below(10);
  call.count = below(8) == 0 ? 0 : static_cast<std::size_t>(1 + below(static_cast<int>(kMost / 8)));
  call.type = kTypes[below(7)];
  call.op = static_cast<ncclRedOp_t>(below(4));
  call.root = below(on.size);
  call.stream = below(2);
  call.shift = 1 + below(on.size);
  return call;
}

void issue(const Communicator& on, const Call& call, std::size_t part = 0) {
  char* const send = send_all + part * (bytes_of_all() / kParts);
  char* const receive = receive_all + part * (bytes_of_all() / kParts);
  cudaStream_t stream = streams[call.stream];
  const int next = (on.rank + call.shift) % on.size;
  const int previous = (on.rank + on.size - call.shift % on.size) % on.size;
  switch (call.kind) {
    case 0:
      NCCL(ncclAllReduce(send, receive, call.count, call.type, call.op, on.comm, stream));
      break;
    case 1:
      // Who is the root may say so in another way, and with another name for the same bytes.
      if (on.rank == call.root) {
        NCCL(ncclBcast(send, call.count, call.type, call.root, on.comm, stream));
      } else {
        NCCL(ncclBroadcast(send, send, call.count * size_of(call.type), ncclUint8, call.root, on.comm,
                           stream));
      }
      break;
    case 2:
      NCCL(ncclReduce(send, on.rank == call.root ? receive : nullptr, call.count, call.type, call.op,
                      call.root, on.comm, stream));
      break;
    case 3:
      NCCL(ncclAllGather(send, receive, call.count, call.type, on.comm, stream));
      break;
    case 4:
      NCCL(ncclReduceScatter(send, receive, call.count, call.type, call.op, on.comm, stream));
      break;
    case 5:
      NCCL(ncclAlltoAll(send, receive, call.count, call.type, on.comm, stream));
      break;
    case 6:
      NCCL(ncclGather(send, receive, call.count, call.type, call.root, on.comm, stream));
      break;
    case 7:
      NCCL(ncclScatter(send, receive, call.count, call.type, call.root, on.comm, stream));
      break;
    default:
      NCCL(ncclGroupStart());
      NCCL(ncclSend(send, call.count, call.type, next, on.comm, stream));
      NCCL(ncclRecv(receive, call.count, call.type, previous, on.comm, stream));
      NCCL(ncclGroupEnd());
  }
}

void take_results() {
  for (cudaStream_t stream : streams) CUDA(cudaStreamSynchronize(stream));
  std::vector<unsigned char> host(bytes_of_all());
  CUDA(cudaMemcpy(host.data(), receive_all, host.size(), cudaMemcpyDeviceToHost));
  for (const unsigned char byte : host) results = (results ^ byte) * 1099511628211U;
}

void fill(unsigned seed) {
  std::vector<unsigned char> host(bytes_of_all());
  // Small integers as bytes: no reduction depends on rounding, no float is a NaN.
  for (std::size_t i = 0; i < host.size(); ++i)
    host[i] = static_cast<unsigned char>((i + seed + static_cast<unsigned>(me.rank)) % 3);
  CUDA(cudaMemcpy(send_all, host.data(), host.size(), cudaMemcpyHostToDevice));
  CUDA(cudaMemset(receive_all, 0, host.size()));
}

Communicator whole(ncclComm_t comm) { return {comm, me.rank, me.size}; }

Communicator split(const Communicator& parent) {
  Communicator child;
  const int colours = 1 + below(2);
  const int reverse = below(2);
  NCCL(ncclCommSplit(parent.comm, parent.rank % colours, reverse ? -parent.rank : parent.rank, &child.comm,
                     nullptr));
  NCCL(ncclCommCount(child.comm, &child.size));
  NCCL(ncclCommUserRank(child.comm, &child.rank));
  return child;
}

void run(ncclComm_t comm) {
  const Communicator world = whole(comm);
  // Draws depend on a communicator's size, which differs between the parts of a split: each part draws for
  // itself, and all meet again with the same numbers.
  const bool splits = me.size > 1 && below(4) == 0;
  const auto part_seed = random_numbers();
  const int calls = 1 + below(6);
  for (int i = 0; i < calls; ++i) {
    const bool grouped = below(4) == 0;
    if (grouped) NCCL(ncclGroupStart());
    const int together = grouped ? 1 + below(3) : 1;
    const int stream = below(2);
    for (int one = 0; one < together; ++one) {
      Call call = draw(world);
      if (grouped) call.stream = stream;
      issue(world, call, static_cast<std::size_t>(one));
    }
    if (grouped) NCCL(ncclGroupEnd());
    // What the streams do must not overlap on the same memory.
    for (cudaStream_t other : streams) CUDA(cudaStreamSynchronize(other));
  }
  if (splits) {
    const std::mt19937 before = random_numbers;
    const Communicator part = split(world);
    random_numbers.seed(static_cast<unsigned>(part_seed) + static_cast<unsigned>(part.size));
    for (int i = 0; i < 3; ++i) {
      issue(part, draw(part));
      for (cudaStream_t other : streams) CUDA(cudaStreamSynchronize(other));
    }
    NCCL(ncclCommDestroy(part.comm));
    random_numbers = before;
    below(2), below(2);
  }
  take_results();
}

void err(ncclComm_t comm) {
  const Communicator world = whole(comm);
  Call call = draw(world);
  call.kind = below(5);
  call.count = 8 + static_cast<std::size_t>(below(8));
  const int who = below(me.size);
  const bool odd = me.rank == who;
  const bool reduces = call.kind == 0 || call.kind == 2 || call.kind == 4;
  const bool rooted = call.kind == 1 || call.kind == 2;
  const int what = below(4);
  const char* name = "count";
  if (what == 1 && reduces) {
    name = "op";
    if (odd) call.op = call.op == ncclSum ? ncclMax : ncclSum;
  } else if (what == 2 && rooted) {
    name = "root";
    if (odd) call.root = (call.root + 1) % me.size;
  } else if (what == 3) {
    name = "kind";
    if (odd) call.kind = (call.kind + 1) % 5;
  } else if (odd) {
    ++call.count;
  }
  if (me.rank == 0) {
    std::printf("fault: rank %d differs in %s\n", who, name);
    std::fflush(stdout);
  }
  issue(world, call);
  for (cudaStream_t stream : streams) CUDA(cudaStreamSynchronize(stream));
}

}  // namespace

int main(int argc, char** argv) {
  const auto seed = static_cast<unsigned>(argc > 1 ? std::atoi(argv[1]) : 1);
  const int count = argc > 2 ? std::atoi(argv[2]) : 1;
  CUDA(cudaSetDevice(me.rank));
  for (cudaStream_t& stream : streams) CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMalloc(reinterpret_cast<void**>(&send_all), bytes_of_all()));
  CUDA(cudaMalloc(reinterpret_cast<void**>(&receive_all), bytes_of_all()));
  ncclComm_t comm = nullptr;
  for (int program = 0; program < count; ++program) {
    random_numbers.seed(seed + static_cast<unsigned>(program));
    if (program % 100 == 0) {
      if (comm != nullptr) NCCL(ncclCommDestroy(comm));
      comm = connect(me, ("id" + std::to_string(program)).c_str());
    }
    fill(seed + static_cast<unsigned>(program));
    run(comm);
  }
  std::printf("rank %d %016llx\n", me.rank, static_cast<unsigned long long>(results));
  std::fflush(stdout);
  if (argc > 3) err(comm);
  NCCL(ncclCommDestroy(comm));
  return 0;
}
