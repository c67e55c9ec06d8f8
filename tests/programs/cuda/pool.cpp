// Gives 600 MiB back to the device's memory pool, which keeps them, and finds no room for 600 MiB beside it.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

int main() {
  const auto expect = [](bool right, const char* what) {
    if (right) return;
    std::printf("wrong: %s\n", what);
    std::exit(64);
  };
  constexpr std::size_t kBytes = std::size_t{600} << 20;
  CUcontext context;
  CUmemoryPool pool;
  CUdeviceptr memory;
  std::uint64_t all = UINT64_MAX;
  expect(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "cuInit");
  cuCtxSetCurrent(context);
  expect(cuDeviceGetMemPool(&pool, 0) == CUDA_SUCCESS, "cuDeviceGetMemPool");
  expect(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all) == CUDA_SUCCESS, "a threshold");
  expect(cuMemAllocAsync(&memory, kBytes, nullptr) == CUDA_SUCCESS, "cuMemAllocAsync");
  expect(cuMemFreeAsync(memory, nullptr) == CUDA_SUCCESS, "cuMemFreeAsync");
  expect(cuStreamSynchronize(nullptr) == CUDA_SUCCESS, "cuStreamSynchronize");
  return cuMemAlloc(&memory, kBytes) == CUDA_ERROR_OUT_OF_MEMORY ? 1 : 64;
}
