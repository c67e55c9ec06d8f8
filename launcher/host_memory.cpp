#include "launcher/host_memory.h"

#include <fstream>
#include <string>

namespace accel {

std::optional<std::int64_t> oom_kills() {
  std::ifstream membership("/proc/self/cgroup");
  std::string path;
  for (std::string line; std::getline(membership, line);) {
    if (line.starts_with("0::")) path = line.substr(3);
  }
  if (path.empty()) return std::nullopt;
  std::ifstream events("/sys/fs/cgroup" + (path == "/" ? "" : path) + "/memory.events");
  std::string name;
  for (std::int64_t count = 0; events >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return std::nullopt;
}

}  // namespace accel
