// Lines of /proc/PID/maps that name a file.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace accel {

struct Mapping {
  std::uint64_t begin = 0, end = 0, offset = 0;
  bool executable = false;
  std::string path;
};

std::vector<Mapping> parse_maps(const std::string& maps);

}  // namespace accel
