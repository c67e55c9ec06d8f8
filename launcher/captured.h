// A short command run for what it says.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace accel {

struct Captured {
  int status = -1;         ///< exit status; 128 + signal; -1: it could not be started
  bool timed_out = false;  ///< it was killed for taking too long
  std::string output;      ///< stdout and stderr, at most a MiB
};

/// Without a shell; stdin is empty. It and its children are killed after `timeout_ns`. Thread-safe.
Captured run_captured(const std::vector<std::string>& words, std::int64_t timeout_ns);

/// Below PATH; empty: not there.
std::string in_path(const std::string& name);

}  // namespace accel
