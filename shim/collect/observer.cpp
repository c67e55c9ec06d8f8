#include "collect/observer.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "record/process_stat.h"

namespace accel {
namespace {

constexpr std::int64_t kScanInterval = 100'000'000;

FileDescriptor open_pidfd(std::int32_t pid) {
  const long fd = syscall(SYS_pidfd_open, pid, 0);
  return FileDescriptor(static_cast<int>(fd));
}

}  // namespace

void Observer::scan(std::int64_t now_ns) {
  if (now_ns < next_scan_ns_) return;
  next_scan_ns_ = now_ns + kScanInterval;
  const int fd = openat(run_.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = fd >= 0 ? fdopendir(fd) : nullptr;
  if (entries == nullptr) return;
  std::set<std::string> copies;
  while (const dirent* entry = readdir(entries)) {
    const std::string name = entry->d_name;
    if (is_copy(name)) copies.insert(name);
    if (!is_record(name) || processes_.contains(name)) continue;
    if (!copies_ && is_copy(name)) continue;
    // A file is unreadable for the moment in which it is made; one that stays so is named once.
    const int most = patient_ ? 20 : 0;
    int& attempts = unreadable_[name];
    if (attempts > most) continue;
    auto reader = RecordReader::open(run_.fd(), name);
    if (!reader) {
      if (++attempts > most) complaints_.push_back(reader.error);
      continue;
    }
    unreadable_.erase(name);
    Process process;
    process.reader = *reader;
    process.copy = process.reader->header().copied.at_ns != 0;
    if (process.copy) {
      process.alive = false;  // as far as this node is asked
    } else {
      follow(process);
    }
    processes_.emplace(name, std::move(process));
  }
  closedir(entries);
  // Of a large job's nodes only some are copied at a time.
  std::erase_if(processes_, [&](const auto& one) { return one.second.copy && !copies.contains(one.first); });
}

void Observer::follow(Process& process) const {
  const RecorderHeader& header = process.reader->header();
  process.pidfd = open_pidfd(header.pid);
  const auto stat = process_stat(header.pid);
  const bool lives = stat && stat->start_time == header.start_time;
  if (moment_) {
    process.reader->set_now(moment_->now);
  } else if (!lives && header.latest.ticks > header.begin.ticks) {
    process.reader->set_now(header.latest);
  }
}

/// All in one system call, before anything is read: a launcher kills the others within a millisecond of the
/// first, and looked at one after another, one of those would be seen dead and the first still alive.
void Observer::check_liveness(std::int64_t now_ns) {
  std::vector<pollfd> waiting;
  std::vector<Process*> watched;
  for (auto& [name, process] : processes_) {
    if (!process.alive) continue;
    waiting.push_back({process.pidfd.get(), POLLIN, 0});
    watched.push_back(&process);
  }
  poll(waiting.data(), waiting.size(), 0);
  bool somebody_died = false;
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    // A descriptor that answers anything may have been closed and reused by the application: /proc has the
    // last word.
    if (waiting[i].revents != 0 || waiting[i].fd < 0) confirm_death(*watched[i], now_ns);
    somebody_died = somebody_died || !watched[i]->alive;
  }
  // A launcher notices a death by a closed socket, which comes before the process counts as dead: what it
  // then kills can be dead first. So one that is on its way out is gone too.
  for (Process* process : watched) {
    if (somebody_died && process->alive) confirm_death(*process, now_ns);
  }
}

void Observer::confirm_death(Process& process, std::int64_t now_ns) {
  const RecorderHeader& header = process.reader->header();
  const auto stat = process_stat(header.pid);
  const bool same = stat && stat->start_time == header.start_time;
  if (same && stat->state != 'Z' && stat->state != 'X' && !stat->exiting) return;
  process.alive = false;
  process.gone_since_ns = now_ns;
  if (same && (stat->state == 'Z' || stat->state == 'X')) {
    process.exit_code = stat->exit_code;
    process.exit_code_known = stat->exit_code != 0;
  }
}

void Observer::add_departure(const Process& process, ProcessEvidence& evidence) {
  evidence.alive = process.alive;
  evidence.gone_since_ns = process.gone_since_ns;
  if (process.alive || evidence.signal != 0) return;
  if (process.exit_code_known && WIFSIGNALED(process.exit_code)) {
    evidence.signal = WTERMSIG(process.exit_code);
  } else if (evidence.phase == Phase::Running || evidence.phase == Phase::Initializing ||
             evidence.phase == Phase::InFinalize) {
    // It neither went through exit nor through one of the signals that can be caught.
    evidence.signal = evidence.terminated ? SIGTERM : SIGKILL;
    evidence.signal_inferred = true;
  }
}

bool Observer::no_other_thread(const Process& process, const ProcessEvidence& evidence) {
  constexpr std::int32_t kThreadMultiple = 3;  // MPI_THREAD_MULTIPLE in every MPI
  const RecorderHeader& header = process.reader->header();
  if (header.thread_level < 0 || evidence.blocked.empty()) return false;
  if (header.thread_level < kThreadMultiple) return true;
  const auto stat = process_stat(header.pid);
  return stat && stat->threads <= header.library_threads + static_cast<std::int32_t>(evidence.blocked.size());
}

void Observer::add_status(const CopyStatus& status, ProcessEvidence& evidence) {
  evidence.alive = status.alive != 0;
  evidence.gone_since_ns = status.gone_since_ns;
  evidence.no_other_thread = status.no_other_thread != 0;
  if (evidence.signal != 0) return;
  evidence.signal = status.signal;
  evidence.signal_inferred = status.signal_inferred != 0;
}

bool Observer::is_out_of_date(const Process& process) const {
  if (!process.copy || copies_since_ns_ == 0) return false;
  const CopyStatus status = process.reader->copied();
  return status.alive != 0 && status.at_ns < copies_since_ns_;
}

Evidence Observer::observe() {
  Evidence evidence;
  evidence.now_ns = monotonic_ns();
  scan(evidence.now_ns);
  check_liveness(evidence.now_ns);
  current_.clear();
  for (auto& [name, process] : processes_) {
    if (is_out_of_date(process)) continue;
    ProcessEvidence one;
    one.file = name;
    one.copy = process.copy;
    if (!process.reader->read(one)) {
      if (unreadable_[name]++ == 0)
        complaints_.push_back(name + " cannot be read any more: truncated or damaged");
      continue;
    }
    one.history = process.reader;
    if (moment_) {
      if (!moment_->restore(one)) continue;
    } else if (process.copy) {
      add_status(process.reader->header().copied, one);
    } else {
      add_departure(process, one);
      one.no_other_thread = no_other_thread(process, one);
    }
    evidence.processes.push_back(std::move(one));
    current_.push_back(process.reader);
  }
  evidence.now_ns = moment_ ? moment_->evidence_ns : monotonic_ns();
  return evidence;
}

bool Observer::recall(const Evidence& evidence) {
  current_.clear();
  for (const ProcessEvidence& process : evidence.processes) {
    const auto found = processes_.find(process.file);
    if (found == processes_.end()) return false;
    current_.push_back(found->second.reader);
  }
  return true;
}

std::vector<std::string> Observer::take_complaints() { return std::exchange(complaints_, {}); }

void Observer::add_pollfds(std::vector<pollfd>& waiting) const {
  for (const auto& [name, process] : processes_) {
    if (process.alive && process.pidfd) waiting.push_back({process.pidfd.get(), POLLIN, 0});
  }
}

}  // namespace accel
