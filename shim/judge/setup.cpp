#include "judge/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

namespace accel {
namespace {

/// May differ between processes without a difference in what NCCL does together.
bool may_differ(std::string_view name) {
  return name.ends_with("_FILE") || name.starts_with("NCCL_DEBUG") || name == "NCCL_HOSTID" ||
         name == "NCCL_COMM_ID" || name == "NCCL_SOCKET_IFNAME" || name == "NCCL_IB_HCA";
}

std::map<std::string, std::string> variables_of(const ProcessEvidence& process) {
  std::map<std::string, std::string> result;
  std::istringstream lines(process.nccl_environment);
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find('=');
    if (equals == std::string::npos || may_differ(line.substr(0, equals))) continue;
    result[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return result;
}

}  // namespace

std::vector<std::string> differences_of_setup(const Evidence& evidence, std::uint64_t world) {
  std::vector<const ProcessEvidence*> processes;
  for (const ProcessEvidence& process : evidence.processes) {
    if (process.world_key == world && !process.nccl.empty()) processes.push_back(&process);
  }
  std::vector<std::string> result;
  std::set<std::string> said;
  for (std::size_t i = 1; i < processes.size(); ++i) {
    const ProcessEvidence& one = *processes[0];
    const ProcessEvidence& other = *processes[i];
    if (one.nccl != other.nccl && said.insert("nccl").second) {
      result.push_back(fmt::format("process {} uses {}, process {} uses {}", one.world_rank, one.nccl,
                                   other.world_rank, other.nccl));
    }
    const auto here = variables_of(one);
    const auto there = variables_of(other);
    const auto text = [](const std::map<std::string, std::string>& all, const std::string& name) {
      const auto found = all.find(name);
      return found == all.end() ? std::string("unset") : "\"" + found->second + "\"";
    };
    std::set<std::string> names;
    for (const auto& [name, value] : here) names.insert(name);
    for (const auto& [name, value] : there) names.insert(name);
    for (const std::string& name : names) {
      if (text(here, name) == text(there, name) || !said.insert(name).second) continue;
      result.push_back(fmt::format("{} is {} in process {} and {} in process {}", name, text(here, name),
                                   one.world_rank, text(there, name), other.world_rank));
    }
  }
  return result;
}

}  // namespace accel
