// trainer: takes its batch size as programs do, and a MiB of device memory for each example of a batch.
//
//   --batch N, --batch=N, -bN, batch=N   or  BATCH in the environment, or "batch": N in the file after
//   --config
//   --accum N    batches a step         --steps N
//   --oom-rank R only that rank needs the memory
//   --oom-step N only from that step on
//   --cache N    MiB that it needs whatever the batch
//   --catch      does with half of it where the memory does not suffice
//   --wedge      stays, where the memory does not suffice, without a word, while the others wait
//   --in-nccl    it is NCCL that finds no memory
//   --crash      dies by SIGSEGV after the first step
//   --stubborn   ignores SIGTERM       --child leaves a child behind that does, too
//   --layers N   gradients that it reduces
//   --chatty N   writes N MiB to stderr
//   --until-saved N  goes on until it has found N times a SIGUSR1, and says before which step
// Ends by "trained with batch B, accumulation A, args ..." from each rank.
#include <algorithm>
#include <csignal>
#include <sstream>

#include "tests/programs/nccl/rank.h"

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::vector<std::string> arguments;

bool has(const std::string& flag) {
  return std::find(arguments.begin(), arguments.end(), flag) != arguments.end();
}

long number_of(const std::string& flag, long otherwise) {
  long found = otherwise;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == flag && i + 1 < arguments.size()) found = std::stol(arguments[i + 1]);
    if (word.rfind(flag + "=", 0) == 0) found = std::stol(word.substr(flag.size() + 1));
    if (flag.size() == 2 && word.rfind(flag, 0) == 0 && word.size() > 2) found = std::stol(word.substr(2));
  }
  return found;
}

long batch_size() {
  long batch = number_of("--batch", 0) + number_of("-b", 0) + number_of("batch", 0);
  if (const char* text = std::getenv("BATCH")) batch = std::atol(text);
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] != "--config") continue;
    std::stringstream text;
    text << std::ifstream(arguments[i + 1]).rdbuf();
    const auto at = text.str().find("batch");
    batch = std::atol(text.str().c_str() + text.str().find_first_of("0123456789", at));
  }
  return batch;
}

volatile std::sig_atomic_t asked_to_save = 0;

void leave_child() {
  if (fork() != 0) return;
  setsid();
  signal(SIGTERM, SIG_IGN);
  // As a daemon: whoever reads the job's output is not held up.
  for (int descriptor = 0; descriptor < 3; ++descriptor) close(descriptor);
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  arguments.assign(argv + 1, argv + argc);
  const Rank me;
  const long batch = batch_size();
  const long accumulation = number_of("--accum", 1);
  const long oom_rank = number_of("--oom-rank", -1);
  const long oom_step = number_of("--oom-step", 0);
  const bool hungry = oom_rank < 0 || oom_rank == me.rank;
  if (has("--stubborn")) signal(SIGTERM, SIG_IGN);
  if (has("--child")) leave_child();
  if (has("--in-nccl") && hungry) {
    const std::string bytes = std::to_string(static_cast<std::size_t>(batch) * kMiB);
    setenv("ACCEL_STANDIN_NCCL_LAZY_MEMORY", bytes.c_str(), 1);
  }
  for (long i = 0; i < number_of("--chatty", 0); ++i)
    std::fputs((std::string(kMiB - 1, '.') + "\n").c_str(), stderr);

  CUDA(cudaSetDevice(me.rank));
  ncclComm_t comm =
      connect(me, std::getenv("ACCEL_ATTEMPT") != nullptr ? std::getenv("ACCEL_ATTEMPT") : "id");
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  const auto layers = static_cast<std::size_t>(number_of("--layers", 16));
  float* gradients = device_floats(layers);
  void* cache = nullptr;
  if (number_of("--cache", 0) != 0)
    CUDA(cudaMalloc(&cache, static_cast<std::size_t>(number_of("--cache", 0)) * kMiB));
  long used = batch;
  long to_save = number_of("--until-saved", 0);
  if (to_save != 0) {
    signal(SIGUSR1, [](int) { asked_to_save = 1; });
    alarm(50);
  }
  for (long step = 0; step < number_of("--steps", 3) || to_save != 0; ++step) {
    void* examples = nullptr;
    while (hungry && step >= oom_step && !has("--in-nccl")) {
      const cudaError_t got = cudaMalloc(&examples, static_cast<std::size_t>(used) * kMiB);
      if (got == cudaSuccess) break;
      if (has("--catch")) {
        used /= 2;
        continue;
      }
      while (has("--wedge")) pause();
      CUDA(got);
    }
    const ncclResult_t result =
        ncclAllReduce(gradients, gradients, layers, ncclFloat32, ncclSum, comm, stream);
    while (result != ncclSuccess && has("--wedge")) pause();
    NCCL(result);
    if (asked_to_save != 0) {
      asked_to_save = 0;
      --to_save;
      // By libaccel's numbers, in which the communicator's making is the first.
      std::printf("saved before %ld\n", step + 2);
      std::fflush(stdout);
    }
    CUDA(cudaStreamSynchronize(stream));
    if (examples != nullptr) CUDA(cudaFree(examples));
    if (has("--crash")) raise(SIGSEGV);
  }
  std::string line = "rank " + std::to_string(me.rank) + " trained with batch " + std::to_string(batch) +
                     ", accumulation " + std::to_string(accumulation) + ":";
  for (const std::string& word : arguments) line += " " + word;
  std::puts(line.c_str());
  return 0;
}
