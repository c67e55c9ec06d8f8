// devices [COUNT [COUNT]]: one process, several devices: ncclCommInitAll, then ncclCommInitRank in a group,
// then in threads. With COUNT device 1 calls with another one, the first time or in its thread.
#include <thread>

#include "tests/programs/nccl/rank.h"

namespace {

constexpr int kDevices = 3;
constexpr std::size_t kCount = 256;
cudaStream_t streams[kDevices];
float* buffers[kDevices];

void reduce(ncclComm_t* comms, std::size_t odd) {
  NCCL(ncclGroupStart());
  for (int device = 0; device < kDevices; ++device) {
    NCCL(ncclAllReduce(buffers[device], buffers[device], device == 1 ? odd : kCount, ncclFloat32, ncclSum,
                       comms[device], streams[device]));
  }
  NCCL(ncclGroupEnd());
  for (int device = 0; device < kDevices; ++device) {
    CUDA(cudaSetDevice(device));
    CUDA(cudaStreamSynchronize(streams[device]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = [&](int which) {
    return argc > which ? static_cast<std::size_t>(std::atoi(argv[which])) : kCount;
  };
  const std::size_t odd = given(1);
  const std::size_t odd_in_thread = given(2);
  for (int device = 0; device < kDevices; ++device) {
    CUDA(cudaSetDevice(device));
    CUDA(cudaStreamCreate(&streams[device]));
    buffers[device] = device_floats(kCount);
  }
  ncclComm_t comms[kDevices];
  NCCL(ncclCommInitAll(comms, kDevices, nullptr));
  reduce(comms, odd);
  for (ncclComm_t comm : comms) NCCL(ncclCommDestroy(comm));

  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclGroupStart());
  for (int device = 0; device < kDevices; ++device) {
    CUDA(cudaSetDevice(device));
    NCCL(ncclCommInitRank(&comms[device], kDevices, id, device));
  }
  NCCL(ncclGroupEnd());
  reduce(comms, kCount);

  NCCL(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int device = 0; device < kDevices; ++device) {
    threads.emplace_back([&, device] {
      CUDA(cudaSetDevice(device));
      ncclComm_t comm;
      NCCL(ncclCommInitRank(&comm, kDevices, id, device));
      for (int step = 0; step < 10; ++step)
        NCCL(ncclAllReduce(buffers[device], buffers[device],
                           device == 1 && step == 5 ? odd_in_thread : kCount, ncclFloat32, ncclSum, comm,
                           streams[device]));
      CUDA(cudaStreamSynchronize(streams[device]));
      NCCL(ncclCommDestroy(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::puts("ok");
  return 0;
}
