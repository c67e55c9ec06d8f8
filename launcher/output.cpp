#include "launcher/output.h"

#include <accel/accel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "launcher/failure.h"
#include "record/clock.h"

namespace accel {
namespace {

/// How long a line may stay unfinished before it is shown as it is.
constexpr std::int64_t kUnfinished = 200'000'000;

void write_all(int descriptor, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(descriptor, text.data() + done, text.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno == EAGAIN) {
      pollfd ready{descriptor, POLLOUT, 0};
      poll(&ready, 1, 1000);
    } else if (errno != EINTR) {
      return;  // nobody reads it any more
    }
  }
}

}  // namespace

bool mentions_out_of_memory(const std::string& line) {
  constexpr const char* kTexts[] = {" out of memory",
                                    "CUBLAS_STATUS_ALLOC_FAILED",
                                    "CUDNN_STATUS_ALLOC_FAILED",
                                    "RESOURCE_EXHAUSTED",
                                    "DefaultCPUAllocator: can't allocate memory",
                                    "DefaultCPUAllocator: not enough memory",
                                    "Failed to CUDA calloc"};
  return std::any_of(std::begin(kTexts), std::end(kTexts),
                     [&](const char* text) { return line.find(text) != std::string::npos; });
}

RankOutput::RankOutput(const Request& request)
    : directory_(request.directory), tag_(request.tag), temporary_(request.directory.empty()) {
  if (temporary_) {
    const char* base = std::getenv("TMPDIR");
    std::string path =
        std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/accelrun-output-XXXXXX";
    if (mkdtemp(path.data()) == nullptr)
      throw Failure(ACCEL_EXIT_INTERNAL,
                    fmt::format("no directory can be made as {}; TMPDIR names another place", path));
    directory_ = path;
  } else {
    std::error_code error;
    std::filesystem::create_directories(directory_, error);
    if (error || access(directory_.c_str(), W_OK) != 0)
      throw Failure(ACCEL_EXIT_USAGE, fmt::format("--output-dir {} cannot be written to", directory_));
    directory_ = std::filesystem::absolute(directory_).string();
  }
  if (tag_) thread_ = std::thread([this] { follow(); });
}

RankOutput::~RankOutput() {
  stopping_.store(true);
  if (thread_.joinable()) thread_.join();
  for (auto& [path, file] : files_) close(file.descriptor);
  std::error_code ignored;
  if (temporary_) std::filesystem::remove_all(directory_, ignored);
}

void RankOutput::drain() {
  // One round may have begun before the last line came.
  const int wanted = rounds_.load() + 2;
  while (tag_ && rounds_.load() < wanted) usleep(1000);
}

void RankOutput::follow() {
  for (;;) {
    const bool last = stopping_.load();
    scan();
    if (pump()) continue;
    for (auto& [path, file] : files_) flush(file, last);
    rounds_.fetch_add(1);
    if (last) return;
    usleep(20'000);
  }
}

void RankOutput::scan() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("rank-") || files_.contains(name)) continue;
    File file;
    file.descriptor = open(entry.path().c_str(), (temporary_ ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (file.descriptor < 0) continue;
    file.target = name.ends_with(".stderr") ? STDERR_FILENO : STDOUT_FILENO;
    file.tag = fmt::format("[rank {}] ", name.substr(5, name.rfind('.') - 5));
    files_[name] = std::move(file);
  }
}

bool RankOutput::pump() {
  bool more = false;
  for (auto& [path, file] : files_) more = pump(file) || more;
  return more;
}

bool RankOutput::pump(File& file) {
  static thread_local std::vector<char> chunk(1 << 20);
  const ssize_t got = pread(file.descriptor, chunk.data(), chunk.size(), file.offset);
  if (got <= 0) return false;
  // What has been shown takes no room any more.
  constexpr int kHole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (temporary_) fallocate(file.descriptor, kHole, file.offset, got);
  file.offset += got;
  std::string shown;
  shown.reserve(static_cast<std::size_t>(got) + (static_cast<std::size_t>(got) >> 3));
  show(file, shown, chunk.data(), static_cast<std::size_t>(got));
  write_all(file.target, shown);
  return true;
}

/// Whole lines with the tag before each; of what a progress bar has written over itself only the last.
void RankOutput::show(File& file, std::string& shown, const char* begin, std::size_t bytes) {
  const char* const end = begin + bytes;
  const bool bars = std::memchr(begin, '\r', bytes) != nullptr;
  while (begin < end) {
    const void* found = std::memchr(begin, '\n', static_cast<std::size_t>(end - begin));
    const char* const stop = found != nullptr ? static_cast<const char*>(found) : end;
    if (found != nullptr && file.unfinished.empty() && !bars) {
      shown += file.tag;
      shown.append(begin, stop + 1);
      begin = stop + 1;
      continue;
    }
    file.unfinished.append(begin, stop);
    begin = stop;
    // A line may end with \r\n.
    const bool returns = file.unfinished.ends_with('\r');
    const auto bar = file.unfinished.rfind('\r', returns ? file.unfinished.size() - 2 : std::string::npos);
    if (bar != std::string::npos && file.unfinished.size() > 1) file.unfinished.erase(0, bar + 1);
    if (found == nullptr) break;
    shown += file.tag;
    shown += file.unfinished;
    shown += '\n';
    file.unfinished.clear();
    ++begin;
  }
  if (!mentioned_.load(std::memory_order_relaxed) && mentions_out_of_memory(shown)) mentioned_.store(true);
  file.unfinished_since_ns = monotonic_ns();
}

void RankOutput::flush(File& file, bool last) {
  const bool due = last || monotonic_ns() - file.unfinished_since_ns > kUnfinished;
  if (file.unfinished.empty() || !due) return;
  write_all(file.target, file.tag + file.unfinished + "\n");
  file.unfinished.clear();
}

}  // namespace accel
