// Gets memory from the runtime in every way it has and gives it back; one request fails. Ends at the first
// call that does something else than expected.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

int main() {
  const auto expect = [](cudaError_t got, cudaError_t wanted, const char* what) {
    if (got == wanted) return;
    std::printf("%s: %s\n", what, cudaGetErrorString(got));
    std::exit(1);
  };
#define OK(call) expect(call, cudaSuccess, #call)
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  cudaStream_t stream;
  void *device, *pooled, *managed, *pinned, *other, *pitched, *huge = nullptr;
  std::size_t pitch = 0;
  OK(cudaSetDevice(0));
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc(&device, 10 * kMiB));
  OK(cudaMallocAsync(&pooled, 5 * kMiB, stream));
  OK(cudaMemsetAsync(pooled, 1, 5 * kMiB, stream));
  OK(cudaMallocManaged(&managed, kMiB, cudaMemAttachGlobal));
  OK(cudaMallocPitch(&pitched, &pitch, 1000, 1024));
  OK(cudaMallocHost(&pinned, kMiB));
  OK(cudaHostAlloc(&other, kMiB, cudaHostAllocMapped));
  std::size_t free = 0;
  std::size_t total = 0;
  OK(cudaMemGetInfo(&free, &total));
  expect(cudaMalloc(&huge, total + kMiB), cudaErrorMemoryAllocation, "more than there is");
  OK(cudaMalloc(&huge, 10 * kMiB));
  OK(cudaFree(huge));
  OK(cudaFreeAsync(pooled, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaFree(device));
  OK(cudaFree(managed));
  OK(cudaFree(pitched));
  OK(cudaFreeHost(pinned));
  OK(cudaFreeHost(other));
  OK(cudaStreamDestroy(stream));
  std::puts("ok");
  return 0;
}
