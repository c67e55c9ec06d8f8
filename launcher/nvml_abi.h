// Two structs of NVIDIA's management library. Source: nvml.h 12; the second is that of versions 2 and 3 of
// nvmlDeviceGetComputeRunningProcesses.
#pragma once

namespace accel::nvml {

struct Memory {
  unsigned long long total, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

}  // namespace accel::nvml
