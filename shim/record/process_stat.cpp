#include "record/process_stat.h"

#include <fcntl.h>

#include <cstdio>
#include <cstring>
#include <sstream>
#include <vector>

#include "record/file_descriptor.h"

namespace accel {

std::optional<ProcessStat> process_stat(std::int32_t pid) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const FileDescriptor file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  char text[1024];
  const ssize_t length = read(file.get(), text, sizeof text - 1);
  if (length <= 0) return std::nullopt;
  text[length] = '\0';

  // The name stands in parentheses and may itself contain some.
  const char* open_parenthesis = std::strchr(text, '(');
  const char* close_parenthesis = std::strrchr(text, ')');
  if (open_parenthesis == nullptr || close_parenthesis == nullptr) return std::nullopt;
  ProcessStat stat;
  stat.name.assign(open_parenthesis + 1, close_parenthesis);
  std::istringstream rest(close_parenthesis + 1);
  std::vector<std::string> fields(2);  // so that fields[N-1] is field N of proc(5)
  for (std::string field; rest >> field;) fields.push_back(field);
  if (fields.size() < 22) return std::nullopt;
  stat.state = fields[2][0];
  constexpr unsigned long kExiting = 4;  // PF_EXITING, include/linux/sched.h
  stat.exiting = (std::strtoul(fields[8].c_str(), nullptr, 10) & kExiting) != 0;
  stat.parent = std::atoi(fields[3].c_str());
  stat.threads = std::atoi(fields[19].c_str());
  stat.start_time = std::strtoull(fields[21].c_str(), nullptr, 10);
  if (fields.size() >= 52) stat.exit_code = std::atoi(fields[51].c_str());
  return stat;
}

}  // namespace accel
