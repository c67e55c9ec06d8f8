#include "launcher/gpus.h"

#include <dlfcn.h>

#include "launcher/nvml_abi.h"

namespace accel {
namespace {

using nvml::Memory;
using nvml::ProcessInfo;
using Device = void*;

/// The functions that we use; all or nothing but the last ones.
struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*max_clock)(Device, int, unsigned*) = nullptr;
  int (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;

  bool load() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    const auto take = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    };
    take(init, "nvmlInit_v2");
    take(shutdown, "nvmlShutdown");
    take(driver_version, "nvmlSystemGetDriverVersion");
    take(count, "nvmlDeviceGetCount_v2");
    take(device, "nvmlDeviceGetHandleByIndex_v2");
    take(name, "nvmlDeviceGetName");
    take(memory, "nvmlDeviceGetMemoryInfo");
    take(max_clock, "nvmlDeviceGetMaxClockInfo");
    take(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    if (processes == nullptr) take(processes, "nvmlDeviceGetComputeRunningProcesses_v2");
    return init != nullptr && shutdown != nullptr && count != nullptr && device != nullptr &&
           name != nullptr && memory != nullptr;
  }
};

Gpu look_at(const Nvml& nvml, Device device) {
  Gpu gpu;
  char text[96] = {};
  Memory memory{};
  if (nvml.name(device, text, sizeof text) == 0) gpu.name = text;
  if (nvml.memory(device, &memory) == 0) {
    gpu.total = memory.total;
    gpu.free = memory.free;
  }
  constexpr int kMultiprocessors = 1;  // NVML_CLOCK_SM
  unsigned clock = 0;
  if (nvml.max_clock != nullptr && nvml.max_clock(device, kMultiprocessors, &clock) == 0)
    gpu.clock_mhz = clock;
  ProcessInfo infos[256];
  unsigned count = std::size(infos);
  if (nvml.processes != nullptr && nvml.processes(device, &count, infos) == 0) {
    for (unsigned i = 0; i < count && i < std::size(infos); ++i)
      gpu.processes.push_back(static_cast<std::int32_t>(infos[i].pid));
  }
  return gpu;
}

}  // namespace

std::optional<Gpus> look_at_gpus() {
  static Nvml nvml;
  static const bool loaded = nvml.load();
  if (!loaded || nvml.init() != 0) return std::nullopt;
  Gpus gpus;
  char version[96] = {};
  if (nvml.driver_version != nullptr && nvml.driver_version(version, sizeof version) == 0)
    gpus.driver = version;
  unsigned count = 0;
  nvml.count(&count);
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (nvml.device(i, &device) == 0) gpus.all.push_back(look_at(nvml, device));
  }
  nvml.shutdown();
  return gpus;
}

}  // namespace accel
