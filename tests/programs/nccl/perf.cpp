// perf: as NVIDIA's nccl-tests: each collective over a range of sizes, in place and out of place, with the
// result checked on every rank. Prints a line a size, and how many values were wrong.
#include <cmath>
#include <functional>

#include "tests/programs/nccl/rank.h"

namespace {

constexpr std::size_t kLargest = 1 << 16;  // elements

Rank me;
ncclComm_t comm;
cudaStream_t stream;
long wrong = 0;

float value(int rank, std::size_t i) { return static_cast<float>((rank + 1) * static_cast<int>(i % 7)); }

void fill(float* device, std::size_t count) {
  std::vector<float> host(count);
  for (std::size_t i = 0; i < count; ++i) host[i] = value(me.rank, i);
  CUDA(cudaMemcpy(device, host.data(), count * sizeof(float), cudaMemcpyHostToDevice));
}

void check(const float* device, std::size_t count, const std::function<float(std::size_t)>& expected) {
  std::vector<float> host(count);
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaMemcpy(host.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost));
  for (std::size_t i = 0; i < count; ++i) wrong += std::fabs(host[i] - expected(i)) > 1e-3F ? 1 : 0;
}

float sum(std::size_t i) {
  float total = 0;
  for (int rank = 0; rank < me.size; ++rank) total += value(rank, i);
  return total;
}

void sweep(std::size_t count, float* send, float* receive) {
  const auto ranks = static_cast<std::size_t>(me.size);
  for (const bool in_place : {false, true}) {
    fill(send, count);
    float* const out = in_place ? send : receive;
    NCCL(ncclAllReduce(send, out, count, ncclFloat32, ncclSum, comm, stream));
    check(out, count, sum);
  }
  for (int root = 0; root < me.size; ++root) {
    fill(send, count);
    NCCL(ncclBroadcast(send, receive, count, ncclFloat32, root, comm, stream));
    check(receive, count, [root](std::size_t i) { return value(root, i); });
    NCCL(ncclReduce(send, receive, count, ncclFloat32, ncclMax, root, comm, stream));
    if (me.rank == root) check(receive, count, [](std::size_t i) { return value(me.size - 1, i); });
    CUDA(cudaStreamSynchronize(stream));
  }
  const std::size_t part = count / ranks;
  if (part == 0) return;
  fill(send, part);
  NCCL(ncclAllGather(send, receive, part, ncclFloat32, comm, stream));
  check(receive, part * ranks, [part](std::size_t i) { return value(static_cast<int>(i / part), i % part); });
  fill(send, count);
  NCCL(ncclReduceScatter(send, receive, part, ncclFloat32, ncclSum, comm, stream));
  check(receive, part, [part](std::size_t i) { return sum(static_cast<std::size_t>(me.rank) * part + i); });
  // All to all, as programs wrote it before there was a call for it.
  NCCL(ncclGroupStart());
  for (int peer = 0; peer < me.size; ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * part;
    NCCL(ncclSend(send + at, part, ncclFloat32, peer, comm, stream));
    NCCL(ncclRecv(receive + at, part, ncclFloat32, peer, comm, stream));
  }
  NCCL(ncclGroupEnd());
  check(receive, part * ranks, [part](std::size_t i) {
    return value(static_cast<int>(i / part), static_cast<std::size_t>(me.rank) * part + i % part);
  });
}

}  // namespace

int main() {
  CUDA(cudaSetDevice(me.rank));
  comm = connect(me);
  CUDA(cudaStreamCreate(&stream));
  float* send = device_floats(kLargest);
  float* receive = device_floats(kLargest);
  for (std::size_t count = 1; count <= kLargest; count *= 4) {
    sweep(count, send, receive);
    if (me.rank == 0) std::printf("%8zu bytes  #wrong %ld\n", count * sizeof(float), wrong);
  }
  NCCL(ncclCommDestroy(comm));
  return wrong == 0 ? 0 : 1;
}
