// A correct program that uses most of NCCL. Prints the sums of what it got, for comparison with another run.
#include "tests/programs/nccl/rank.h"

namespace {

double sum_of(const float* device, std::size_t count, cudaStream_t stream) {
  std::vector<float> host(count);
  CUDA(cudaMemcpyAsync(host.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  double sum = 0;
  for (const float value : host) sum += value;
  return sum;
}

}  // namespace

int main() {
  const Rank me;
  CUDA(cudaSetDevice(me.rank));
  const ncclComm_t comm = connect(me);
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  constexpr std::size_t kCount = 1024;
  const auto n = static_cast<std::size_t>(me.size);
  float* send = device_floats(kCount * n, static_cast<float>(me.rank + 1));
  float* receive = device_floats(kCount * n, 0);

  NCCL(ncclAllReduce(send, receive, kCount, ncclFloat32, ncclSum, comm, stream));
  std::printf("rank %d allreduce %g\n", me.rank, sum_of(receive, kCount, stream));
  NCCL(ncclBroadcast(send, receive, kCount, ncclFloat32, 0, comm, stream));
  if (me.rank == 0) {
    NCCL(ncclBcast(send, kCount, ncclFloat32, 1 % me.size, comm, stream));
  } else {
    NCCL(ncclBroadcast(send, send, kCount, ncclFloat32, 1 % me.size, comm, stream));
  }
  NCCL(ncclReduce(send, receive, kCount, ncclFloat32, ncclMax, 0, comm, stream));
  NCCL(ncclAllGather(send, receive, kCount, ncclFloat32, comm, stream));
  std::printf("rank %d allgather %g\n", me.rank, sum_of(receive, kCount * n, stream));
  NCCL(ncclReduceScatter(receive, send, kCount, ncclFloat32, ncclAvg, comm, stream));
  std::printf("rank %d reducescatter %g\n", me.rank, sum_of(send, kCount, stream));

  const int next = (me.rank + 1) % me.size;
  const int previous = (me.rank + me.size - 1) % me.size;
  NCCL(ncclGroupStart());
  NCCL(ncclSend(send, kCount, ncclFloat32, next, comm, stream));
  NCCL(ncclSend(send, 0, ncclFloat32, next, comm, stream));
  NCCL(ncclRecv(receive, kCount, ncclFloat32, previous, comm, stream));
  NCCL(ncclRecv(receive, 0, ncclFloat32, previous, comm, stream));
  NCCL(ncclGroupEnd());
  std::printf("rank %d ring %g\n", me.rank, sum_of(receive, kCount, stream));

  ncclComm_t half = nullptr;
  NCCL(ncclCommSplit(comm, me.rank % 2, -me.rank, &half, nullptr));
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(send, receive, kCount, ncclFloat32, ncclSum, half, stream));
  NCCL(ncclAllReduce(receive, receive, kCount, ncclFloat32, ncclMin, comm, stream));
  NCCL(ncclGroupEnd());
  std::printf("rank %d split %g\n", me.rank, sum_of(receive, kCount, stream));

  ncclRedOp_t scaled;
  float factor = 0.5F;
  NCCL(ncclRedOpCreatePreMulSum(&scaled, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
  NCCL(ncclAllReduce(send, receive, kCount, ncclFloat32, scaled, comm, stream));
  NCCL(ncclRedOpDestroy(scaled, comm));
  NCCL(ncclAllReduce(send, receive, 0, ncclFloat32, ncclSum, comm, stream));
  std::printf("rank %d premulsum %g\n", me.rank, sum_of(receive, kCount, stream));

  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  NCCL(ncclAllReduce(send, receive, kCount, ncclFloat32, ncclSum, comm, stream));
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaGraphInstantiateWithFlags(&executable, graph, 0));
  for (int replay = 0; replay < 3; ++replay) CUDA(cudaGraphLaunch(executable, stream));
  std::printf("rank %d graph %g\n", me.rank, sum_of(receive, kCount, stream));

  NCCL(ncclCommDestroy(half));
  NCCL(ncclCommFinalize(comm));
  NCCL(ncclCommDestroy(comm));
  CUDA(cudaFree(send));
  CUDA(cudaFree(receive));
  std::printf("rank %d ok\n", me.rank);
  return 0;
}
