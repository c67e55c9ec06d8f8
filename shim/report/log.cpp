#include "report/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <iterator>

#include "record/file_descriptor.h"
#include "record/run_directory.h"

namespace accel {

std::string expand_log_file(const std::string& pattern, const std::string& run_id, int rank, std::int32_t pid,
                            const std::string& host) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    switch (pattern[++i]) {
      case 'r':
        path += rank >= 0 ? std::to_string(rank) : "unknown";
        break;
      case 'h':
        path += host;
        break;
      case 'p':
        path += std::to_string(pid);
        break;
      case 'j':
        path += run_id;
        break;
      case '%':
        path += '%';
        break;
      default:
        path += '%', path += pattern[i];
    }
  }
  return path;
}

namespace {

void write_all(int fd, const std::string& text) {
  const char* next = text.data();
  std::size_t left = text.size();
  while (left != 0) {
    const ssize_t written = write(fd, next, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    next += written;
    left -= static_cast<std::size_t>(written);
  }
}

}  // namespace

std::string local_time(std::int64_t realtime_ns, const char* format) {
  const time_t seconds = static_cast<time_t>(realtime_ns / 1'000'000'000);
  tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  return {text, strftime(text, sizeof text, format, &local)};
}

const char* name_of(LogLevel level) {
  static constexpr const char* kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"};
  return kNames[std::min<std::size_t>(static_cast<std::size_t>(level), std::size(kNames) - 1)];
}

void Log::configure(const Settings& settings, const std::string& run_id, int rank) {
  set_level(settings.log_level);
  format_ = settings.log_format;
  path_ = settings.log_file.empty() ? ""
                                    : expand_log_file(settings.log_file, run_id, rank, getpid(), host_name());
}

void Log::say(LogLevel level, const std::string& line) const {
  if (level < this->level()) return;
  print(fmt::format("[accel] {}: {}\n", name_of(level), line));
}

void Log::print(const std::string& text) const {
  if (path_.empty()) return write_all(STDERR_FILENO, text);
  // Opened each time: a descriptor kept for long may be closed and reused by the application.
  const FileDescriptor file(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file) return write_all(file.get(), text);
  write_all(STDERR_FILENO,
            fmt::format("[accel] WARNING: ACCEL_LOG_FILE: cannot open {}: {}; writing to stderr\n{}", path_,
                        std::strerror(errno), text));
}

Log& log() {
  static Log* const instance = new Log;  // never destroyed: used while the process exits
  return *instance;
}

}  // namespace accel
