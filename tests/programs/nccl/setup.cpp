// Rank 1 has another NCCL and other settings than the others. All goes well, here.
#include "tests/programs/nccl/rank.h"

int main() {
  const Rank me;
  if (me.rank == 1) {
    setenv("NCCL_ALGO", "Ring", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("ACCEL_STANDIN_NCCL_VERSION", "22105", 1);
  }
  CUDA(cudaSetDevice(me.rank));
  const ncclComm_t comm = connect(me);
  float* data = device_floats(64);
  for (int step = 0; step < 100; ++step) {
    NCCL(ncclAllReduce(data, data, 64, ncclFloat32, ncclSum, comm, nullptr));
    CUDA(cudaDeviceSynchronize());
  }
  // The same bytes under another name.
  NCCL(ncclBroadcast(data, data, me.rank == 1 ? 64 : 16, me.rank == 1 ? ncclUint8 : ncclFloat32, 0, comm,
                     nullptr));
  CUDA(cudaDeviceSynchronize());
  for (int step = 0; step < 100; ++step) {
    NCCL(ncclAllReduce(data, data, 64, ncclFloat32, ncclSum, comm, nullptr));
    CUDA(cudaDeviceSynchronize());
  }
  NCCL(ncclCommDestroy(comm));
  return 0;
}
