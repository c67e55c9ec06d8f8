// What the kernel says of a process: /proc/PID/stat.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace accel {

struct ProcessStat {
  std::string name;      ///< at most 15 characters
  char state = '?';      ///< 'Z': dead, not yet collected by its parent
  bool exiting = false;  ///< on its way out, though not yet dead: its descriptors may be closed already
  std::int32_t parent = 0;
  std::int32_t threads = 0;
  std::uint64_t start_time = 0;  ///< ticks since boot; with the pid it names a process for good
  std::int32_t exit_code = 0;    ///< as wait() reports it; 0 where the kernel does not tell
};

/// nullopt: no such process, or /proc is not there.
std::optional<ProcessStat> process_stat(std::int32_t pid);

}  // namespace accel
