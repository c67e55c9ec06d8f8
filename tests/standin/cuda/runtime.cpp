// A small stand-in for the CUDA runtime. It reaches the driver exactly as the real one (13.0) was seen to:
// dlopen("libcuda.so.1"), dlsym("cuGetProcAddress_v2"), and all else through that function, asked for itself
// again. Linked statically with hidden symbols it makes cudaMalloc as invisible to a preloaded library as
// libcudart_static.a does.
//
//   ACCEL_STANDIN_ROUTE=v2 (default), v1 (as cudart 11.3), dlsym (as older ones)
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

// clang-format off
/// name, version, exported symbol
#define DRIVER(X)                                                                                             \
  X(cuInit, 2000, cuInit) X(cuDriverGetVersion, 2020, cuDriverGetVersion)                                      \
  X(cuDeviceGetCount, 2000, cuDeviceGetCount) X(cuDeviceGetName, 2000, cuDeviceGetName)                        \
  X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute) X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId)        \
  X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain)                                                  \
  X(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2)                                                \
  X(cuCtxSetCurrent, 4000, cuCtxSetCurrent) X(cuCtxSynchronize, 2000, cuCtxSynchronize)                        \
  X(cuMemAlloc, 3020, cuMemAlloc_v2) X(cuMemFree, 3020, cuMemFree_v2) X(cuMemGetInfo, 3020, cuMemGetInfo_v2)   \
  X(cuMemAllocPitch, 3020, cuMemAllocPitch_v2) X(cuMemAllocManaged, 6000, cuMemAllocManaged)                   \
  X(cuMemHostAlloc, 2020, cuMemHostAlloc) X(cuMemFreeHost, 2000, cuMemFreeHost)                                \
  X(cuMemHostRegister, 6050, cuMemHostRegister_v2) X(cuMemHostUnregister, 4000, cuMemHostUnregister)           \
  X(cuPointerGetAttribute, 4000, cuPointerGetAttribute)                                                        \
  X(cuStreamCreate, 2000, cuStreamCreate) X(cuStreamDestroy, 4000, cuStreamDestroy_v2)                         \
  X(cuEventCreate, 2000, cuEventCreate) X(cuEventDestroy, 4000, cuEventDestroy_v2)                             \
  X(cuEventQuery, 2000, cuEventQuery) X(cuEventSynchronize, 2000, cuEventSynchronize)                          \
  X(cuModuleLoadData, 2000, cuModuleLoadData) X(cuModuleGetFunction, 2000, cuModuleGetFunction)                \
  X(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool)                                               \
  X(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags)                                           \
  X(cuGraphExecDestroy, 10000, cuGraphExecDestroy) X(cuGraphDestroy, 10000, cuGraphDestroy)                    \
  X(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode)
/// name, version, per-thread version, exported symbol: asked for in both flavours
#define DRIVER_BOTH(X)                                                                                        \
  X(cuMemcpy, 4000, 7000, cuMemcpy) X(cuMemcpyAsync, 4000, 7000, cuMemcpyAsync)                                \
  X(cuMemsetD8, 3020, 7000, cuMemsetD8_v2) X(cuMemsetD8Async, 3020, 7000, cuMemsetD8Async)                     \
  X(cuMemAllocAsync, 11020, 11020, cuMemAllocAsync) X(cuMemFreeAsync, 11020, 11020, cuMemFreeAsync)            \
  X(cuMemAllocFromPoolAsync, 11020, 11020, cuMemAllocFromPoolAsync)                                            \
  X(cuStreamSynchronize, 2000, 7000, cuStreamSynchronize) X(cuStreamQuery, 2000, 7000, cuStreamQuery)          \
  X(cuStreamWaitEvent, 3020, 7000, cuStreamWaitEvent) X(cuEventRecord, 2000, 7000, cuEventRecord)              \
  X(cuStreamBeginCapture, 10010, 10010, cuStreamBeginCapture_v2)                                               \
  X(cuStreamEndCapture, 10000, 10000, cuStreamEndCapture)                                                      \
  X(cuStreamIsCapturing, 10000, 10000, cuStreamIsCapturing) X(cuGraphLaunch, 10000, 10000, cuGraphLaunch)      \
  X(cuLaunchHostFunc, 10000, 10000, cuLaunchHostFunc) X(cuLaunchKernel, 4000, 7000, cuLaunchKernel)
// clang-format on

namespace {

using GetProcV1 = CUresult (*)(const char*, void**, int, cuuint64_t);
using GetProcV2 = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

/// Finds one entry point on the route that is asked for.
class Route {
 public:
  explicit Route(void* library) : library_(library) {
    const char* name = std::getenv("ACCEL_STANDIN_ROUTE");
    const std::string route = name != nullptr ? name : "v2";
    if (route == "v2") {
      v2_ = reinterpret_cast<GetProcV2>(dlsym(library, "cuGetProcAddress_v2"));
      void* again = nullptr;
      CUdriverProcAddressQueryResult status{};
      if (v2_ != nullptr && v2_("cuGetProcAddress", &again, 12000, 0, &status) == 0 && again != nullptr)
        v2_ = reinterpret_cast<GetProcV2>(again);
    }
    if (route == "v1") v1_ = reinterpret_cast<GetProcV1>(dlsym(library, "cuGetProcAddress"));
  }

  void* find(const char* name, int version, bool per_thread, const std::string& exported) const {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    const cuuint64_t flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    if (v2_ != nullptr) return v2_(name, &found, version, flags, &status) == 0 ? found : nullptr;
    if (v1_ != nullptr) return v1_(name, &found, version, flags) == 0 ? found : nullptr;
    if (!per_thread) return dlsym(library_, exported.c_str());
    if (void* one = dlsym(library_, (exported + "_ptsz").c_str())) return one;
    return dlsym(library_, (exported + "_ptds").c_str());
  }

 private:
  void* library_;
  GetProcV1 v1_ = nullptr;
  GetProcV2 v2_ = nullptr;
};

struct Driver {
#define X(name, version, symbol) decltype(&::symbol) name = nullptr;
  DRIVER(X)
#undef X
#define X(name, version, per_thread_version, symbol) \
  decltype(&::symbol) name = nullptr;                \
  decltype(&::symbol) name##_per_thread = nullptr;
  DRIVER_BOTH(X)
#undef X
  cudaError_t status = cudaSuccess;

  static const Driver& get() {
    static const Driver* const driver = new Driver;
    return *driver;
  }

 private:
  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
      status = cudaErrorInsufficientDriver;
      return;
    }
    const Route route(library);
#define X(name, version, symbol) take(name, route.find(#name, version, false, #symbol));
    DRIVER(X)
#undef X
#define X(name, version, per_thread_version, symbol)      \
  take(name, route.find(#name, version, false, #symbol)); \
  take(name##_per_thread, route.find(#name, per_thread_version, true, #symbol));
    DRIVER_BOTH(X)
#undef X
    if (status == cudaSuccess) status = static_cast<cudaError_t>(cuInit(0));
  }
  template <class Function>
  void take(Function& function, void* found) {
    function = reinterpret_cast<Function>(found);
    if (found == nullptr) status = cudaErrorSymbolNotFound;
  }
};

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device = 0;
thread_local CUcontext bound = nullptr;

cudaError_t note(int result) {
  if (result != 0 && result != cudaErrorNotReady) last_error = static_cast<cudaError_t>(result);
  return static_cast<cudaError_t>(result);
}

/// Makes the device's primary context this thread's.
int bind() {
  const Driver& driver = Driver::get();
  if (driver.status != cudaSuccess) return driver.status;
  static std::mutex mutex;
  static std::map<int, CUcontext> primary;
  CUcontext context;
  {
    const std::lock_guard lock(mutex);
    CUcontext& one = primary[device];
    if (one == nullptr) {
      if (const int error = driver.cuDevicePrimaryCtxRetain(&one, device)) return error;
    }
    context = one;
  }
  if (bound == context) return 0;
  bound = context;
  return driver.cuCtxSetCurrent(context);
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

#define API extern "C" cudaError_t CUDARTAPI
#define BIND                                        \
  if (const int error = bind()) return note(error); \
  [[maybe_unused]] const Driver& driver = Driver::get()

API cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
API cudaDriverGetVersion(int* version) {
  *version = 0;
  const Driver& driver = Driver::get();
  return driver.cuDriverGetVersion != nullptr ? note(driver.cuDriverGetVersion(version)) : cudaSuccess;
}
API cudaGetDeviceCount(int* count) {
  const Driver& driver = Driver::get();
  *count = 0;
  return note(driver.status != cudaSuccess ? static_cast<int>(driver.status)
                                           : static_cast<int>(driver.cuDeviceGetCount(count)));
}
API cudaSetDevice(int ordinal) {
  device = ordinal;
  BIND;
  return cudaSuccess;
}
API cudaGetDevice(int* ordinal) {
  *ordinal = device;
  return cudaSuccess;
}
API cudaDeviceGetPCIBusId(char* text, int length, int ordinal) {
  BIND;
  return note(driver.cuDeviceGetPCIBusId(text, length, ordinal));
}
API cudaDeviceSynchronize() {
  BIND;
  return note(driver.cuCtxSynchronize());
}
API cudaDeviceReset() {
  BIND;
  bound = nullptr;
  return note(driver.cuDevicePrimaryCtxReset(device));
}
API cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
API cudaPeekAtLastError() { return last_error; }
extern "C" const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess                 ? "cudaSuccess"
         : error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
                                              : "cudaErrorOther";
}
extern "C" const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess                 ? "no error"
         : error == cudaErrorMemoryAllocation ? "out of memory"
                                              : "another error";
}

API cudaMalloc(void** where, size_t bytes) {
  BIND;
  CUdeviceptr memory = 0;
  const int result = driver.cuMemAlloc(&memory, bytes);
  *where = reinterpret_cast<void*>(memory);
  return note(result);
}
API cudaFree(void* where) {
  BIND;
  return where != nullptr ? note(driver.cuMemFree(address(where))) : cudaSuccess;
}
API cudaMallocPitch(void** where, size_t* pitch, size_t width, size_t height) {
  BIND;
  CUdeviceptr memory = 0;
  const int result = driver.cuMemAllocPitch(&memory, pitch, width, height, 4);
  *where = reinterpret_cast<void*>(memory);
  return note(result);
}
API cudaMallocManaged(void** where, size_t bytes, unsigned flags) {
  BIND;
  CUdeviceptr memory = 0;
  const int result = driver.cuMemAllocManaged(&memory, bytes, flags);
  *where = reinterpret_cast<void*>(memory);
  return note(result);
}
API cudaMallocHost(void** where, size_t bytes) {
  BIND;
  return note(driver.cuMemHostAlloc(where, bytes, 0));
}
API cudaHostAlloc(void** where, size_t bytes, unsigned flags) {
  BIND;
  return note(driver.cuMemHostAlloc(where, bytes, flags));
}
API cudaFreeHost(void* where) {
  BIND;
  return note(driver.cuMemFreeHost(where));
}
API cudaHostRegister(void* where, size_t bytes, unsigned flags) {
  BIND;
  return note(driver.cuMemHostRegister(where, bytes, flags));
}
API cudaHostUnregister(void* where) {
  BIND;
  return note(driver.cuMemHostUnregister(where));
}
API cudaMemGetInfo(size_t* free, size_t* total) {
  BIND;
  return note(driver.cuMemGetInfo(free, total));
}
API cudaStreamCreate(cudaStream_t* stream) {
  BIND;
  return note(driver.cuStreamCreate(stream, 0));
}
API cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  BIND;
  return note(driver.cuStreamCreate(stream, flags));
}
API cudaStreamDestroy(cudaStream_t stream) {
  BIND;
  return note(driver.cuStreamDestroy(stream));
}
API cudaEventCreate(cudaEvent_t* event) {
  BIND;
  return note(driver.cuEventCreate(event, 0));
}
API cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  BIND;
  return note(driver.cuEventCreate(event, flags));
}
API cudaEventDestroy(cudaEvent_t event) {
  BIND;
  return note(driver.cuEventDestroy(event));
}
API cudaEventQuery(cudaEvent_t event) {
  BIND;
  return note(driver.cuEventQuery(event));
}
API cudaEventSynchronize(cudaEvent_t event) {
  BIND;
  return note(driver.cuEventSynchronize(event));
}
API cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int ordinal) {
  BIND;
  return note(driver.cuDeviceGetDefaultMemPool(pool, ordinal));
}
API cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  BIND;
  return note(driver.cuGraphInstantiateWithFlags(executable, graph, flags));
}
API cudaGraphExecDestroy(cudaGraphExec_t graph) {
  BIND;
  return note(driver.cuGraphExecDestroy(graph));
}
API cudaGraphDestroy(cudaGraph_t graph) {
  BIND;
  return note(driver.cuGraphDestroy(graph));
}
API cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  BIND;
  return note(driver.cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode)));
}

// With a stream: twice. The second name is what -default-stream per-thread compiles to.
#define BOTH(name, suffix, parameters, driver_name, ...)       \
  API name parameters {                                        \
    BIND;                                                      \
    return note(driver.driver_name(__VA_ARGS__));              \
  }                                                            \
  API name##suffix parameters {                                \
    BIND;                                                      \
    return note(driver.driver_name##_per_thread(__VA_ARGS__)); \
  }
// clang-format off
BOTH(cudaMemcpy, _ptds, (void* a, const void* b, size_t n, cudaMemcpyKind), cuMemcpy, address(a), address(b), n)
BOTH(cudaMemcpyAsync, _ptsz, (void* a, const void* b, size_t n, cudaMemcpyKind, cudaStream_t s), cuMemcpyAsync, address(a), address(b), n, s)
BOTH(cudaMemset, _ptds, (void* a, int v, size_t n), cuMemsetD8, address(a), static_cast<unsigned char>(v), n)
BOTH(cudaMemsetAsync, _ptsz, (void* a, int v, size_t n, cudaStream_t s), cuMemsetD8Async, address(a), static_cast<unsigned char>(v), n, s)
BOTH(cudaMallocAsync, _ptsz, (void** p, size_t n, cudaStream_t s), cuMemAllocAsync, reinterpret_cast<CUdeviceptr*>(p), n, s)
BOTH(cudaMallocFromPoolAsync, _ptsz, (void** p, size_t n, cudaMemPool_t q, cudaStream_t s), cuMemAllocFromPoolAsync, reinterpret_cast<CUdeviceptr*>(p), n, q, s)
BOTH(cudaFreeAsync, _ptsz, (void* p, cudaStream_t s), cuMemFreeAsync, address(p), s)
BOTH(cudaStreamSynchronize, _ptsz, (cudaStream_t s), cuStreamSynchronize, s)
BOTH(cudaStreamQuery, _ptsz, (cudaStream_t s), cuStreamQuery, s)
BOTH(cudaStreamWaitEvent, _ptsz, (cudaStream_t s, cudaEvent_t e, unsigned f), cuStreamWaitEvent, s, e, f)
BOTH(cudaEventRecord, _ptsz, (cudaEvent_t e, cudaStream_t s), cuEventRecord, e, s)
BOTH(cudaStreamBeginCapture, _ptsz, (cudaStream_t s, cudaStreamCaptureMode m), cuStreamBeginCapture, s, static_cast<CUstreamCaptureMode>(m))
BOTH(cudaStreamEndCapture, _ptsz, (cudaStream_t s, cudaGraph_t* g), cuStreamEndCapture, s, g)
BOTH(cudaStreamIsCapturing, _ptsz, (cudaStream_t s, cudaStreamCaptureStatus* v), cuStreamIsCapturing, s, reinterpret_cast<CUstreamCaptureStatus*>(v))
BOTH(cudaGraphLaunch, _ptsz, (cudaGraphExec_t g, cudaStream_t s), cuGraphLaunch, g, s)
BOTH(cudaLaunchHostFunc, _ptsz, (cudaStream_t s, cudaHostFn_t f, void* u), cuLaunchHostFunc, s, f, u)
// clang-format on

// What nvcc's output calls. Kernels do nothing here.

namespace {
struct Binary {
  void* code;
  CUmodule module = nullptr;
};
struct Function {
  Binary* binary;
  std::string name;
  CUfunction function = nullptr;
};
std::map<const void*, Function*>& functions() {
  static auto* const all = new std::map<const void*, Function*>;
  return *all;
}
struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local Configuration configuration;

cudaError_t launch(Function* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                   cudaStream_t stream) {
  BIND;
  if (function == nullptr) return note(cudaErrorInvalidDeviceFunction);
  if (function->binary->module == nullptr) {
    if (const int error = driver.cuModuleLoadData(&function->binary->module, function->binary->code))
      return note(error);
  }
  if (function->function == nullptr) {
    if (const int error =
            driver.cuModuleGetFunction(&function->function, function->binary->module, function->name.c_str()))
      return note(error);
  }
  return note(driver.cuLaunchKernel(function->function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                    static_cast<unsigned>(shared), stream, arguments, nullptr));
}
Function* function_of(const void* host) {
  const auto found = functions().find(host);
  return found != functions().end() ? found->second : nullptr;
}
}  // namespace

extern "C" void** CUDARTAPI __cudaRegisterFatBinary(void* code) {
  return reinterpret_cast<void**>(new Binary{code});
}
extern "C" void CUDARTAPI __cudaRegisterFatBinaryEnd(void**) {}
extern "C" void CUDARTAPI __cudaUnregisterFatBinary(void**) {}
extern "C" char CUDARTAPI __cudaInitModule(void**) { return 1; }
extern "C" void CUDARTAPI __cudaRegisterFunction(void** binary, const char* host, char*, const char* name,
                                                 int, uint3*, uint3*, dim3*, dim3*, int*) {
  functions()[host] = new Function{reinterpret_cast<Binary*>(binary), name};
}
extern "C" void CUDARTAPI __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
extern "C" unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                          CUstream_st* stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}
API __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}
API __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(function_of(host));
  return *kernel != nullptr ? cudaSuccess : note(cudaErrorInvalidDeviceFunction);
}
API __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                       cudaStream_t stream) {
  return launch(reinterpret_cast<Function*>(kernel), grid, block, arguments, shared, stream);
}
API cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, size_t shared,
                     cudaStream_t stream) {
  return launch(function_of(host), grid, block, arguments, shared, stream);
}
