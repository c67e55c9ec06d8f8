#include "report/mappings.h"

#include <cstdio>
#include <sstream>

namespace accel {

std::vector<Mapping> parse_maps(const std::string& maps) {
  std::vector<Mapping> result;
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    unsigned long begin = 0, end = 0, offset = 0;
    char permissions[5] = {};
    const auto slash = line.find('/');
    if (slash == std::string::npos ||
        std::sscanf(line.c_str(), "%lx-%lx %4s %lx", &begin, &end, permissions, &offset) != 4)
      continue;
    result.push_back({begin, end, offset, permissions[2] == 'x', line.substr(slash)});
  }
  return result;
}

}  // namespace accel
