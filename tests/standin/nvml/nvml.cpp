// A CPU stand-in for libnvidia-ml.so.1: GPUs as variables describe them.
//
//   ACCEL_STANDIN_NVML_GPUS=NAME:BYTES:MHZ,...     default: none
//   ACCEL_STANDIN_NVML_DRIVER=560.35.03
//   ACCEL_STANDIN_NVML_PROCESSES=FILE              process ids that hold memory on the first GPU
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/nvml_abi.h"

namespace {

struct Gpu {
  std::string name;
  unsigned long long bytes = 0;
  unsigned clock = 0;
};

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

std::vector<Gpu>& gpus() {
  static std::vector<Gpu> all = [] {
    std::vector<Gpu> result;
    std::istringstream list(variable("ACCEL_STANDIN_NVML_GPUS", ""));
    for (std::string item; std::getline(list, item, ',');) {
      std::istringstream parts(item);
      Gpu gpu;
      std::string number;
      std::getline(parts, gpu.name, ':');
      std::getline(parts, number, ':');
      gpu.bytes = std::strtoull(number.c_str(), nullptr, 10);
      std::getline(parts, number, ':');
      gpu.clock = static_cast<unsigned>(std::atoi(number.c_str()));
      result.push_back(gpu);
    }
    return result;
  }();
  return all;
}

using accel::nvml::Memory;
using accel::nvml::ProcessInfo;

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API nvmlInit_v2() { return 0; }
API nvmlShutdown() { return 0; }
API nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "%s", variable("ACCEL_STANDIN_NVML_DRIVER", "560.35.03").c_str());
  return 0;
}
API nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(gpus().size());
  return 0;
}
API nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &gpus().at(index);
  return 0;
}
API nvmlDeviceGetName(void* device, char* text, unsigned length) {
  std::snprintf(text, length, "%s", static_cast<Gpu*>(device)->name.c_str());
  return 0;
}
API nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  *memory = {static_cast<Gpu*>(device)->bytes, static_cast<Gpu*>(device)->bytes, 0};
  return 0;
}
API nvmlDeviceGetMaxClockInfo(void* device, int, unsigned* clock) {
  *clock = static_cast<Gpu*>(device)->clock;
  return 0;
}
API nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* infos) {
  const unsigned room = *count;
  *count = 0;
  if (device != &gpus().front()) return 0;
  std::ifstream file(variable("ACCEL_STANDIN_NVML_PROCESSES", "/dev/null"));
  for (unsigned pid = 0; file >> pid && *count < room;) infos[(*count)++] = {pid, 1, 0, 0};
  return 0;
}
