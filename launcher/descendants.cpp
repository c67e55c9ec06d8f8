#include "launcher/descendants.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "record/process_stat.h"

namespace accel {

std::vector<pid_t> descendants(pid_t of) {
  std::multimap<pid_t, pid_t> children;
  if (DIR* proc = opendir("/proc")) {
    while (const dirent* entry = readdir(proc)) {
      const int pid = std::atoi(entry->d_name);
      const auto stat = pid > 0 ? process_stat(pid) : std::nullopt;
      if (stat && stat->state != 'Z') children.emplace(stat->parent, pid);
    }
    closedir(proc);
  }
  std::vector<pid_t> found{of};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    for (auto child = first; child != last; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

void kill_descendants() {
  for (const pid_t pid : descendants()) kill(pid, SIGKILL);
}

}  // namespace accel
