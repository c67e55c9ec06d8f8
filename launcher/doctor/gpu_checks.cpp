#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "launcher/doctor/checks.h"
#include "launcher/gpus.h"
#include "report/report.h"

namespace accel::doctor {

Findings check_gpus() {
  const auto gpus = look_at_gpus();
  if (!gpus) return {{Level::Ok, "GPUs", "no NVIDIA driver here", ""}};
  if (gpus->all.empty())
    return {{Level::Error, "GPUs", fmt::format("driver {}, but it has no GPU", gpus->driver),
             "check nvidia-smi, and --gpus of the container"}};
  Findings findings;
  std::map<std::string, int> names;
  for (const Gpu& gpu : gpus->all)
    ++names[fmt::format("{} ({})", gpu.name, size_text(static_cast<std::int64_t>(gpu.total)))];
  std::string list;
  for (const auto& [name, count] : names)
    list += fmt::format("{}{} × {}", list.empty() ? "" : ", ", count, name);
  if (names.size() == 1) {
    findings.push_back({Level::Ok, "GPUs", fmt::format("{}; driver {}", list, gpus->driver), ""});
  } else {
    const auto [least, most] = std::minmax_element(
        gpus->all.begin(), gpus->all.end(), [](const Gpu& a, const Gpu& b) { return a.total < b.total; });
    const auto slowest = std::min_element(gpus->all.begin(), gpus->all.end(), [](const Gpu& a, const Gpu& b) {
      return a.clock_mhz < b.clock_mhz;
    });
    findings.push_back(
        {Level::Warning, "GPUs",
         fmt::format("{}: they differ. The smallest ({}, {}) limits the batch, the slowest (by its clock, {} "
                     "MHz: {}) the pace",
                     list, least->name, size_text(static_cast<std::int64_t>(least->total)),
                     slowest->clock_mhz, slowest->name),
         "CUDA_VISIBLE_DEVICES chooses equal ones"});
  }
  const auto p2p = std::find_if(gpus->all.begin(), gpus->all.end(),
                                [](const Gpu& gpu) { return gpu.name.find("RTX 40") != std::string::npos; });
  const auto is_set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && std::string(value) == "1";
  };
  // From driver 550 on NCCL finds out by itself. Source: Accelerate's check of the same.
  const bool old_driver = std::atoi(gpus->driver.c_str()) < 550;
  if (p2p != gpus->all.end() && gpus->all.size() > 1 && old_driver && !is_set("NCCL_P2P_DISABLE")) {
    findings.push_back({Level::Warning, "GPUs",
                        fmt::format("{} cannot reach each other's memory, and driver {} says they can",
                                    p2p->name, gpus->driver),
                        "NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1, or driver 550"});
  }
  return findings;
}

}  // namespace accel::doctor
