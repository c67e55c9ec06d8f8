// Rank 1 has another NCCL and other settings than the others. All goes well, here.
#include "tests/programs/nccl/rank.h"

// As of NCCL 2.31; not in every header.
struct CollConfig {
  std::size_t size = sizeof(CollConfig);
  unsigned magic = 0xcafebeef, version = 23200;
  void* extensions = nullptr;
  int min_ctas = -1, max_ctas = -1, nvls_ctas = -1, cga_cluster_size = -1;
  const char* algorithms = nullptr;
  int force_algorithms = 1, cta_policy = -1;
  unsigned long long tag = 0;
};
extern "C" ncclResult_t ncclAllReduceConfig(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t,
                                            ncclComm_t, cudaStream_t, const void*);

int main() {
  const Rank me;
  if (me.rank == 1) {
    setenv("NCCL_ALGO", "Ring", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("ACCEL_STANDIN_NCCL_VERSION", "22105", 1);
  }
  CUDA(cudaSetDevice(me.rank));
  const ncclComm_t comm = connect(me);
  // What sees the calls anyway needs no plugin.
  const char* plugin = std::getenv("NCCL_PROFILER_PLUGIN");
  if (plugin != nullptr && std::string(plugin) != "none") return 3;
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
  // The tag only names the call; the number of CTAs should be the same.
  CollConfig config;
  config.tag = static_cast<unsigned long long>(me.rank);
  NCCL(ncclAllReduceConfig(data, data, 64, ncclFloat32, ncclSum, comm, nullptr, nullptr));
  NCCL(ncclAllReduceConfig(data, data, 64, ncclFloat32, ncclSum, comm, nullptr, &config));
  if (me.rank == 1) config.max_ctas = 8;
  NCCL(ncclAllReduceConfig(data, data, 64, ncclFloat32, ncclSum, comm, nullptr, &config));
  for (int step = 0; step < 100; ++step) {
    NCCL(ncclAllReduce(data, data, 64, ncclFloat32, ncclSum, comm, nullptr));
    CUDA(cudaDeviceSynchronize());
  }
  NCCL(ncclCommDestroy(comm));
  return 0;
}
