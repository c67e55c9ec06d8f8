#include "interpose/nccl/observe.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "lifecycle/process.h"
#include "record/fixed_text.h"
#include "report/log.h"

namespace accel::nccl {
namespace {

/// NCCL_* of the environment, sorted.
std::string nccl_environment() {
  std::vector<std::string> lines;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    if (std::strncmp(*one, "NCCL_", 5) == 0) lines.emplace_back(*one);
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

bool observe(int rank, int size, std::uint64_t key, std::string (*how)()) {
  Process& process = Process::self();
  if (!process.start(kUsesNccl)) return false;
  RecorderHeader& header = process.recorder()->header();
  if (size > 1) process.meet(key);
  process.introduce(rank, size, kUsesNccl);
  static std::once_flag once;
  std::call_once(once, [&] {
    const std::string text = how();
    set_text(header.nccl, text);
    set_text(header.nccl_environment, nccl_environment());
    log().say(LogLevel::Info, "observing NCCL calls: " + text);
  });
  return true;
}

}  // namespace accel::nccl
