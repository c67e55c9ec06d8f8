#include "act/call_log_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "report/log.h"

namespace accel {
namespace {

CallFilter filter_of(const Settings& settings) {
  CallFilter filter;
  filter.level = settings.log_level;
  filter.ranks = settings.log_ranks;
  filter.order = settings.log_order;
  filter.format = settings.log_format;
  return filter;
}

}  // namespace

bool wants_call_log(const Board& board) {
  return log().level() <= LogLevel::Info || board.notes.load(std::memory_order_relaxed) != 0;
}

CallLogWriter::CallLogWriter(const RunDirectory& run, const Settings& settings)
    : run_(run), settings_(settings), observer_(run), calls_(filter_of(settings)) {
  observer_.only_this_node();  // on each node somebody writes
}

CallLogWriter::~CallLogWriter() {
  if (calls_.lost() != 0) {
    log().say(LogLevel::Warning,
              fmt::format("{} records were overwritten before they could be logged: the ranks' calls came "
                          "faster than they can be written; ACCEL_RECORDS makes room for more",
                          calls_.lost()));
  }
  if (dropped_ != 0)
    log().say(LogLevel::Warning, fmt::format("{} log lines were dropped: {}", dropped_, why_dropped_));
}

bool CallLogWriter::lock() {
  if (locked_) return true;
  if (!logged_)
    logged_ = FileDescriptor(openat(run_.fd(), "logged", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!logged_ || flock(logged_.get(), LOCK_EX | LOCK_NB) != 0) return false;
  locked_ = true;
  std::string text(std::size_t{1} << 20, '\0');
  const ssize_t got = pread(logged_.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  std::istringstream stream(text);
  CallLog::Places places;
  std::int32_t pid = 0;
  for (std::array<std::uint64_t, 3> place{}; stream >> pid >> place[0] >> place[1] >> place[2];)
    places[pid] = place;
  calls_.go_on_from(places);
  saved_ = std::move(places);
  return true;
}

bool CallLogWriter::turn() {
  if (!lock()) return false;
  round(false);
  return true;
}

void CallLogWriter::finish(std::int64_t patience_ns) {
  const std::int64_t deadline = monotonic_ns() + patience_ns;
  while (!lock()) {
    if (monotonic_ns() > deadline) return;
    usleep(1000);
  }
  observer_.rescan();
  do {
    round(true);
  } while (calls_.is_behind() && monotonic_ns() < deadline);
}

void CallLogWriter::round(bool everything) {
  const Evidence evidence = observer_.observe();
  calls_.tell(observer_, evidence, everything, [&](const CallLine& line) {
    const std::string path = settings_.log_file.empty() ? std::string()
                                                        : expand_log_file(settings_.log_file, run_.run_id(),
                                                                          line.rank, line.pid, line.host);
    lines_[path] += line.text;
  });
  for (auto& [path, text] : lines_) {
    if (text.empty()) continue;
    write(path, text);
    text.clear();
  }
  save_places();
  // After the round: what was done at another level is told, or skipped, as that said.
  calls_.set_level(log().level());
}

/// Opened each time: a descriptor kept for long may be closed and reused by the application.
FileDescriptor CallLogWriter::open_log(const std::string& path, std::size_t& room) const {
  const auto open_it = [&] {
    return FileDescriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  };
  FileDescriptor file = open_it();
  struct stat info {};
  if (!file || settings_.log_rotate_bytes == 0 || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return file;
  if (info.st_size >= settings_.log_rotate_bytes) {
    put_aside(path);
    file = open_it();
    info.st_size = 0;
  }
  room = static_cast<std::size_t>(settings_.log_rotate_bytes - info.st_size);
  return file;
}

void CallLogWriter::write(const std::string& path, std::string_view text) {
  while (!text.empty()) {
    std::size_t room = text.size();
    const FileDescriptor file = path.empty() ? FileDescriptor() : open_log(path, room);
    // Whole lines, as many as there is room for.
    const std::size_t end = text.find('\n', std::min(room, text.size()) - 1);
    const std::string_view part = text.substr(0, end == std::string_view::npos ? end : end + 1);
    text.remove_prefix(part.size());
    write(path, path.empty() ? STDERR_FILENO : file.get(), part);
  }
}

void CallLogWriter::write(const std::string& path, int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = fd >= 0 ? ::write(fd, text.data(), text.size()) : -1;
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    pollfd ready{fd, POLLOUT, 0};
    constexpr int kPatienceMs = 1000;
    if (written < 0 && errno == EAGAIN && poll(&ready, 1, kPatienceMs) == 1) continue;
    if (dropped_ == 0) why_dropped_ = (path.empty() ? "stderr" : path) + ": " + std::strerror(errno);
    dropped_ += static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
    return;
  }
}

/// FILE.1 is the latest of those put aside.
void CallLogWriter::put_aside(const std::string& path) const {
  for (int number = settings_.log_rotate_keep - 1; number >= 1; --number)
    rename(fmt::format("{}.{}", path, number).c_str(), fmt::format("{}.{}", path, number + 1).c_str());
  rename(path.c_str(), (path + ".1").c_str());
}

void CallLogWriter::save_places() {
  const CallLog::Places places = calls_.places();
  if (places == saved_) return;
  std::string text;
  for (const auto& [pid, place] : places)
    text += fmt::format("{} {:20} {:20} {:20}\n", pid, place[0], place[1], place[2]);
  if (pwrite(logged_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()))
    saved_ = places;
}

}  // namespace accel
