// faults FAULT: a data-parallel step in which rank 1 does something wrong.
#include <csignal>
#include <thread>

#include "tests/programs/nccl/rank.h"

namespace {

constexpr std::size_t kCount = 1024;
Rank me;
ncclComm_t comm;
cudaStream_t stream;
float* send;
float* receive;

bool is(const char* fault, const std::string& wanted) { return wanted == fault; }

/// On a disk that never answers.
__attribute__((noinline)) void save_checkpoint() {
  int disk[2];
  char block = 0;
  if (pipe(disk) == 0 && read(disk[0], &block, 1) == 1) std::puts("saved");
}

__attribute__((noinline)) void wait_for_gradients() { CUDA(cudaStreamSynchronize(stream)); }

__attribute__((noinline)) void reduce_gradients(std::size_t count, ncclDataType_t type = ncclFloat32,
                                                ncclRedOp_t op = ncclSum) {
  NCCL(ncclAllReduce(send, receive, count, type, op, comm, stream));
}

void pass_on(std::size_t sent, std::size_t expected, bool grouped) {
  const int next = (me.rank + 1) % me.size;
  const int previous = (me.rank + me.size - 1) % me.size;
  if (grouped) NCCL(ncclGroupStart());
  NCCL(ncclSend(send, sent, ncclFloat32, next, comm, stream));
  NCCL(ncclRecv(receive, expected, ncclFloat32, previous, comm, stream));
  if (grouped) NCCL(ncclGroupEnd());
}

__attribute__((noinline)) void train_step(const std::string& fault) {
  const bool odd = me.rank == 1;
  const bool leaves = is("exit0", fault) || is("raises", fault) || is("killed", fault) ||
                      is("throws", fault) || is("oom", fault) || is("destroyed", fault) ||
                      is("kernel-fault", fault);
  if (leaves && !odd) {
    reduce_gradients(kCount);
    return arrive(me);
  }
  if (leaves) await_others(me);
  if (is("count", fault)) return reduce_gradients(odd ? kCount / 2 : kCount);
  if (is("count-and-on", fault)) {
    reduce_gradients(odd ? kCount / 2 : kCount);
    for (int step = 0; step < 3000; ++step) {
      reduce_gradients(kCount);
      usleep(1000);
    }
    return;
  }
  if (is("zero", fault)) return reduce_gradients(odd ? 0 : kCount);
  if (is("datatype", fault)) return reduce_gradients(kCount, odd ? ncclInt32 : ncclFloat32);
  if (is("op", fault)) return reduce_gradients(kCount, ncclFloat32, odd ? ncclMax : ncclSum);
  if (is("root", fault)) {
    NCCL(ncclBroadcast(send, receive, kCount, ncclFloat32, odd ? 1 : 0, comm, stream));
  } else if (is("bytes", fault)) {
    NCCL(ncclAllGather(send, receive, odd ? kCount / 2 : kCount, ncclFloat32, comm, stream));
  } else if (is("kind", fault)) {
    if (odd) {
      NCCL(ncclReduceScatter(receive, send, kCount / 4, ncclFloat32, ncclSum, comm, stream));
    } else {
      reduce_gradients(kCount);
    }
  } else if (is("order", fault)) {
    if (odd) NCCL(ncclBroadcast(send, receive, kCount, ncclFloat32, 0, comm, stream));
    reduce_gradients(kCount);
    if (!odd) NCCL(ncclBroadcast(send, receive, kCount, ncclFloat32, 0, comm, stream));
  } else if (is("group", fault)) {
    NCCL(ncclGroupStart());
    reduce_gradients(kCount);
    reduce_gradients(odd ? 7 : 8);
    NCCL(ncclGroupEnd());
  } else if (is("split", fault)) {
    ncclComm_t half;
    NCCL(ncclCommSplit(comm, me.rank % 2, me.rank, &half, nullptr));
    NCCL(ncclAllReduce(send, receive, me.rank == 1 ? 16 : 32, ncclFloat32, ncclSum, half, stream));
  } else if (is("swapped-communicators", fault)) {
    ncclComm_t other;
    NCCL(ncclCommSplit(comm, 0, me.rank, &other, nullptr));
    NCCL(ncclAllReduce(send, receive, kCount, ncclFloat32, ncclSum, odd ? other : comm, stream));
    NCCL(ncclAllReduce(send, receive, kCount, ncclFloat32, ncclSum, odd ? comm : other, stream));
  } else if (is("send-cycle", fault)) {
    pass_on(kCount, kCount, false);
  } else if (is("no-receive", fault)) {
    if (me.rank == 0) NCCL(ncclSend(send, kCount, ncclFloat32, 1, comm, stream));
  } else if (is("no-send", fault)) {
    if (me.rank == 0) NCCL(ncclRecv(receive, kCount, ncclFloat32, 1, comm, stream));
  } else if (is("receive-size", fault)) {
    pass_on(kCount, odd ? kCount / 2 : kCount, true);
  } else if (is("same-peer-twice", fault)) {
    NCCL(ncclGroupStart());
    pass_on(kCount, kCount, true);
    pass_on(kCount / 2, kCount / 2, true);
    NCCL(ncclGroupEnd());
  } else if (is("exit0", fault)) {
    std::exit(0);
  } else if (is("throws", fault)) {
    throw std::string("data loader: file not found");
  } else if (is("killed", fault)) {
    raise(SIGKILL);
  } else if (is("destroyed", fault)) {
    NCCL(ncclCommDestroy(comm));
    for (;;) pause();
  } else if (is("one-more", fault)) {
    for (int step = 0; step < (me.rank == 0 ? 4 : 3); ++step) reduce_gradients(kCount);
  } else if (is("data-loader", fault)) {
    if (odd) {
      for (;;) pause();
    }
    reduce_gradients(kCount);
  } else if (is("checkpoint", fault)) {
    if (me.rank == 0) save_checkpoint();
    reduce_gradients(kCount);
  } else if (is("oom", fault)) {
    CUDA(cudaMalloc(reinterpret_cast<void**>(&send), std::size_t{2} << 30));
  } else if (is("oom-caught", fault)) {
    // It goes on with half of what it wanted, as all others.
    float* batch = nullptr;
    std::size_t bytes = std::size_t{2} << 30;
    while (odd && cudaMalloc(reinterpret_cast<void**>(&batch), bytes) != cudaSuccess) bytes /= 2;
    for (int step = 0; step < 20; ++step) reduce_gradients(kCount);
    if (odd) CUDA(cudaFree(batch));
  } else if (is("oom-skips", fault)) {
    float* batch = nullptr;
    const bool skips =
        odd && cudaMalloc(reinterpret_cast<void**>(&batch), std::size_t{2} << 30) != cudaSuccess;
    if (!skips) reduce_gradients(kCount);
    if (skips) {
      for (;;) pause();
    }
  } else if (is("kernel-fault", fault)) {
    // The stand-in cannot run the kernel; what the driver says after it is what matters here.
    wait_for_gradients();
  } else if (is("fork", fault)) {
    // A data loader: a child that leaves by itself and may not disturb anybody.
    const pid_t child = fork();
    if (child == 0) _exit(0);
    reduce_gradients(kCount);
  } else if (is("blocked-stream", fault)) {
    // Work before the call on the same stream that never ends.
    const auto forever = [](void*) {
      for (;;) pause();
    };
    if (odd) CUDA(cudaLaunchHostFunc(stream, forever, nullptr));
    reduce_gradients(kCount);
  } else if (is("captured", fault)) {
    cudaGraph_t graph;
    if (odd) CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    reduce_gradients(kCount);
    if (odd) CUDA(cudaStreamEndCapture(stream, &graph));
  } else if (is("oom-collective", fault)) {
    reduce_gradients(kCount);
  } else if (is("raises", fault)) {
    std::exit(1);
  } else {
    std::fprintf(stderr, "unknown fault %s\n", fault.c_str());
    std::exit(64);
  }
}

/// What only rank 1's driver and NCCL do. Before their first use.
void prepare(const std::string& fault) {
  if (me.rank != 1) return;
  if (is("kernel-fault", fault)) setenv("ACCEL_STANDIN_FAIL", "cuStreamSynchronize:1", 1);
  if (is("oom-init", fault)) setenv("ACCEL_STANDIN_NCCL_MEMORY", "2147483648", 1);
  if (is("oom-collective", fault)) setenv("ACCEL_STANDIN_NCCL_LAZY_MEMORY", "2147483648", 1);
}

/// Without blocking, as PyTorch does it by TORCH_NCCL_USE_COMM_NONBLOCKING.
void join_polling(int size, const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  NCCL(ncclCommInitRankConfig(&comm, size, id, rank, &config));
  for (ncclResult_t state = ncclInProgress; state == ncclInProgress; usleep(1000))
    NCCL(ncclCommGetAsyncError(comm, &state));
}

void create(const std::string& wanted) {
  const std::size_t suffix = wanted.rfind("-polling");
  const bool polls = suffix != std::string::npos;
  const std::string fault = wanted.substr(0, suffix);
  const bool odd = me.rank == 1;
  const ncclUniqueId id = share_id(me);
  int rank = me.rank;
  int size = me.size;
  if (is("same-rank", fault) && odd) rank = 2;
  if (is("sizes", fault) && odd) size = me.size + 1;
  if (is("never", fault) && odd) {
    for (;;) pause();
  }
  if (is("leaves-before", fault) && odd) {
    ncclComm_t own;
    ncclUniqueId own_id;
    NCCL(ncclGetUniqueId(&own_id));
    NCCL(ncclCommInitRank(&own, 1, own_id, 0));
    await_others_asleep(me);
    std::exit(3);
  }
  if (is("leaves-before", fault)) arrive(me);
  if (polls) return join_polling(size, id, rank);
  NCCL(ncclCommInitRank(&comm, size, id, rank));
  if (is("id-twice", fault)) NCCL(ncclCommInitRank(&comm, size, id, rank));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  prepare(fault);
  CUDA(cudaSetDevice(me.rank));
  create(fault);
  CUDA(cudaStreamCreate(&stream));
  send = device_floats(kCount * static_cast<std::size_t>(me.size));
  receive = device_floats(kCount * static_cast<std::size_t>(me.size));
  if (!is("oom-collective", fault)) NCCL(ncclAllReduce(send, receive, 1, ncclFloat32, ncclSum, comm, stream));
  train_step(fault);
  wait_for_gradients();
  std::printf("rank %d ok\n", me.rank);
  return 0;
}
