// What NVIDIA's management library says of this machine's GPUs. It is loaded at run time, where there is a
// driver.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel {

struct Gpu {
  std::string name;                     ///< "NVIDIA A100-SXM4-80GB"
  std::uint64_t total = 0;              ///< bytes
  std::uint64_t free = 0;               ///< bytes
  std::uint32_t clock_mhz = 0;          ///< of its multiprocessors, at most
  std::vector<std::int32_t> processes;  ///< that hold memory on it
};

struct Gpus {
  std::string driver;  ///< version
  std::vector<Gpu> all;
};

/// nullopt: there is no driver here.
std::optional<Gpus> look_at_gpus();

}  // namespace accel
