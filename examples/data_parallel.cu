// A small data-parallel trainer: each rank has its own part of the data, gradients are averaged with ncclAllReduce.
//
//   nvcc -O2 -o data_parallel data_parallel.cu -lnccl          (or any C++ compiler, on the stand-ins of tests/standin)
//   torchrun-like environment: RANK, WORLD_SIZE, LOCAL_RANK; NCCL's id through the directory RENDEZVOUS
//
//   data_parallel [--steps N] [--batch N] [--bug bucket|uneven]
//     bucket   rank 1 reduces only a part of its gradients in step 5
//     uneven   rank 0 has one batch more than the others, and so takes one step more
//   A batch that does not fit ends the program, as it does most programs.
#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#ifdef __CUDACC__
#define KERNEL __global__ void
#define FOR_EACH(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)
#define LAUNCH(kernel, stream, ...) kernel<<<64, 128, 0, stream>>>(__VA_ARGS__)
#else
// Without nvcc a kernel is a host function that the stream calls.
#define KERNEL static void
#define FOR_EACH(i, n) for (int i = 0; i < (n); ++i)
#define LAUNCH(kernel, stream, ...) launch(kernel, stream, __VA_ARGS__)
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), cudaStream_t stream, Arguments... arguments) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  };
  cudaLaunchHostFunc(
      stream,
      [](void* data) {
        auto* call = static_cast<Call*>(data);
        std::apply(call->kernel, call->arguments);
        delete call;
      },
      new Call{kernel, {arguments...}});
}
#endif

#define CUDA(call)                                                                                        \
  do {                                                                                                    \
    const cudaError_t error = (call);                                                                     \
    if (error != cudaSuccess) fail(#call, cudaGetErrorString(error));                                     \
  } while (0)
#define NCCL(call)                                                                                        \
  do {                                                                                                    \
    const ncclResult_t error = (call);                                                                    \
    if (error != ncclSuccess) fail(#call, ncclGetErrorString(error));                                     \
  } while (0)

namespace {

constexpr int kInputs = 8;
constexpr int kHidden = 32;
constexpr int kParameters = kInputs * kHidden + kHidden;  // first layer, then second

int rank, size;

int variable(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

void fail(const char* call, const char* why) {
  std::fprintf(stderr, "rank %d: %s: %s\n", rank, call, why);
  std::exit(1);
}

}  // namespace

KERNEL forward(const float* inputs, const float* targets, const float* parameters, float* hidden, float* errors,
               int batch) {
  FOR_EACH(sample, batch) {
    float output = 0;
    for (int unit = 0; unit < kHidden; ++unit) {
      float sum = 0;
      for (int i = 0; i < kInputs; ++i) sum += inputs[sample * kInputs + i] * parameters[i * kHidden + unit];
      hidden[sample * kHidden + unit] = tanhf(sum);
      output += hidden[sample * kHidden + unit] * parameters[kInputs * kHidden + unit];
    }
    errors[sample] = output - targets[sample];
  }
}

KERNEL backward(const float* inputs, const float* parameters, const float* hidden, const float* errors,
                float* gradients, int batch) {
  FOR_EACH(parameter, kParameters) {
    float sum = 0;
    for (int sample = 0; sample < batch; ++sample) {
      if (parameter < kInputs * kHidden) {
        const int unit = parameter % kHidden;
        const float h = hidden[sample * kHidden + unit];
        sum += errors[sample] * parameters[kInputs * kHidden + unit] * (1 - h * h) *
               inputs[sample * kInputs + parameter / kHidden];
      } else {
        sum += errors[sample] * hidden[sample * kHidden + parameter - kInputs * kHidden];
      }
    }
    gradients[parameter] = sum / static_cast<float>(batch);
  }
}

KERNEL descend(float* parameters, const float* gradients, float rate) {
  FOR_EACH(parameter, kParameters) parameters[parameter] -= rate * gradients[parameter];
}

namespace {

template <class T>
T* on_device(std::size_t count) {
  void* memory;
  CUDA(cudaMalloc(&memory, count * sizeof(T)));
  return static_cast<T*>(memory);
}

ncclComm_t connect() {
  ncclUniqueId id;
  const std::string path = std::string(std::getenv("RENDEZVOUS") ? std::getenv("RENDEZVOUS") : "/tmp") + "/nccl_id";
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    std::ofstream(path + ".new").write(id.internal, sizeof id.internal);
    std::rename((path + ".new").c_str(), path.c_str());
  } else {
    while (!std::ifstream(path).read(id.internal, sizeof id.internal)) usleep(1000);
  }
  ncclComm_t comm;
  NCCL(ncclCommInitRank(&comm, size, id, rank));
  return comm;
}

class Trainer {
 public:
  explicit Trainer(int batch) : batch_(batch), comm_(connect()) {
    CUDA(cudaStreamCreate(&stream_));
    const auto samples = static_cast<std::size_t>(batch);
    inputs_ = on_device<float>(samples * kInputs);
    targets_ = on_device<float>(samples);
    hidden_ = on_device<float>(samples * kHidden);
    errors_ = on_device<float>(samples);
    parameters_ = on_device<float>(kParameters);
    gradients_ = on_device<float>(kParameters);
    std::vector<float> start(kParameters);
    for (int i = 0; i < kParameters; ++i) start[static_cast<std::size_t>(i)] = 0.3F * std::sin(static_cast<float>(i) * 12.9898F);
    CUDA(cudaMemcpy(parameters_, start.data(), kParameters * sizeof(float), cudaMemcpyHostToDevice));
    load_data();
  }

  /// The mean squared error over all ranks' batches, before the step.
  float step(std::size_t reduced) {
    LAUNCH(forward, stream_, inputs_, targets_, parameters_, hidden_, errors_, batch_);
    LAUNCH(backward, stream_, inputs_, parameters_, hidden_, errors_, gradients_, batch_);
    average_gradients(reduced);
    LAUNCH(descend, stream_, parameters_, gradients_, 0.03F);
    return loss();
  }
  std::size_t parameters() const { return kParameters; }
  void finish() {
    NCCL(ncclCommFinalize(comm_));
    NCCL(ncclCommDestroy(comm_));
  }

 private:
  void average_gradients(std::size_t count) {
    NCCL(ncclAllReduce(gradients_, gradients_, count, ncclFloat32, ncclAvg, comm_, stream_));
  }
  float loss() {
    std::vector<float> errors(static_cast<std::size_t>(batch_));
    CUDA(cudaMemcpyAsync(errors.data(), errors_, errors.size() * sizeof(float), cudaMemcpyDeviceToHost, stream_));
    CUDA(cudaStreamSynchronize(stream_));
    float sum = 0;
    for (const float error : errors) sum += error * error;
    return sum / static_cast<float>(batch_);
  }
  void load_data() {
    std::vector<float> inputs(static_cast<std::size_t>(batch_) * kInputs);
    std::vector<float> targets(static_cast<std::size_t>(batch_));
    for (std::size_t sample = 0; sample < targets.size(); ++sample) {
      float sum = 0;
      for (std::size_t i = 0; i < kInputs; ++i) {
        const auto seed = static_cast<float>((sample * kInputs + i) * static_cast<std::size_t>(size) + static_cast<std::size_t>(rank));
        inputs[sample * kInputs + i] = std::sin(seed * 78.233F);
        sum += inputs[sample * kInputs + i];
      }
      targets[sample] = std::sin(sum);
    }
    CUDA(cudaMemcpy(inputs_, inputs.data(), inputs.size() * sizeof(float), cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(targets_, targets.data(), targets.size() * sizeof(float), cudaMemcpyHostToDevice));
  }

  const int batch_;
  ncclComm_t comm_;
  cudaStream_t stream_ = nullptr;
  float *inputs_, *targets_, *hidden_, *errors_, *parameters_, *gradients_;
};

}  // namespace

int main(int argc, char** argv) {
  rank = variable("RANK", 0);
  size = variable("WORLD_SIZE", 1);
  int steps = 20;
  int batch = 256;
  std::string bug;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--steps") steps = std::atoi(argv[i + 1]);
    if (option == "--batch") batch = std::atoi(argv[i + 1]);
    if (option == "--bug") bug = argv[i + 1];
  }
  CUDA(cudaSetDevice(variable("LOCAL_RANK", rank)));
  Trainer trainer(batch);
  if (bug == "uneven" && rank == 0) ++steps;
  for (int step = 1; step <= steps; ++step) {
    const bool wrong = bug == "bucket" && rank == 1 && step == 5;
    const float loss = trainer.step(wrong ? trainer.parameters() / 2 : trainer.parameters());
    if (rank == 0 && (step == 1 || step % 5 == 0)) std::printf("step %d: loss %.4f\n", step, static_cast<double>(loss));
  }
  trainer.finish();
  return 0;
}
