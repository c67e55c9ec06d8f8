// Gets 1 MiB from the driver by each of its routes; then virtual memory, freed in the orders that programs
// use.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
int wrong = 0;
void check(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  ++wrong;
}

CUmemGenericAllocationHandle create(std::size_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  check(cuMemCreate(&handle, bytes, &properties, 0) == CUDA_SUCCESS, "cuMemCreate");
  return handle;
}

}  // namespace

int main() {
  check(cuInit(0) == CUDA_SUCCESS, "cuInit");
  CUcontext context;
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);

  using Allocate = CUresult (*)(CUdeviceptr*, std::size_t);
  CUdeviceptr memory[5];
  check(cuMemAlloc(&memory[0], kMiB) == CUDA_SUCCESS, "linked");
  void* function = nullptr;
  CUdriverProcAddressQueryResult status;
  cuGetProcAddress("cuMemAlloc", &function, 12000, 0, &status);
  check(reinterpret_cast<Allocate>(function)(&memory[1], kMiB) == CUDA_SUCCESS, "cuGetProcAddress");
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  check(reinterpret_cast<Allocate>(dlsym(library, "cuMemAlloc_v2"))(&memory[2], kMiB) == CUDA_SUCCESS,
        "dlsym");
  check(reinterpret_cast<Allocate>(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"))(&memory[3], kMiB) == CUDA_SUCCESS,
        "dlsym(RTLD_DEFAULT)");
  using Lookup = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  void* lookup = nullptr;
  cuGetProcAddress("cuGetProcAddress", &lookup, 12000, 0, &status);
  reinterpret_cast<Lookup>(lookup)("cuMemAlloc", &function, 12000, 0, &status);
  check(reinterpret_cast<Allocate>(function)(&memory[4], kMiB) == CUDA_SUCCESS, "cuGetProcAddress of itself");
  check(dlsym(library, "cuNoSuchFunction") == nullptr, "a function that is not there");
  for (const CUdeviceptr one : memory) check(cuMemFree(one) == CUDA_SUCCESS, "cuMemFree");

  CUdeviceptr where;
  cuMemAddressReserve(&where, 4 * kMiB, 0, 0, 0);
  CUmemGenericAllocationHandle one = create(2 * kMiB);  // released while mapped
  cuMemMap(where, 2 * kMiB, 0, one, 0);
  cuMemRelease(one);
  cuMemUnmap(where, 2 * kMiB);
  one = create(2 * kMiB);  // as NCCL: retained, released, unmapped, released
  cuMemMap(where, 2 * kMiB, 0, one, 0);
  CUmemGenericAllocationHandle again;
  cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(where));
  cuMemRelease(again);
  cuMemUnmap(where, 2 * kMiB);
  cuMemRelease(one);
  one = create(2 * kMiB);  // two mappings in one unmap
  const CUmemGenericAllocationHandle other = create(2 * kMiB);
  cuMemMap(where, 2 * kMiB, 0, one, 0);
  cuMemMap(where + 2 * kMiB, 2 * kMiB, 0, other, 0);
  cuMemUnmap(where, 4 * kMiB);
  cuMemRelease(one);
  cuMemRelease(other);
  std::size_t free = 0;
  std::size_t total = 0;
  cuMemGetInfo(&free, &total);
  check(free == total, "all is given back");
  std::puts(wrong == 0 ? "ok" : "wrong");
  return wrong;
}
