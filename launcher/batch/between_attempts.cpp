#include "launcher/batch/between_attempts.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "launcher/descendants.h"
#include "launcher/gpus.h"
#include "launcher/language.h"
#include "record/clock.h"
#include "report/log.h"

namespace accel {
namespace {

constexpr std::int64_t kGrace = 5'000'000'000;
constexpr std::int64_t kMemoryPatience = 50'000'000'000;
/// What takes no longer is not worth a line.
constexpr std::int64_t kQuiet = 300'000'000;

/// What is being waited for, on a terminal: one line, which is gone when the waiting is over. The job has
/// ended, so that nobody else writes there.
class StatusLine {
 public:
  StatusLine() = default;
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine() { clear(); }

  void clear() {
    if (std::exchange(shown_, false)) write_out("\r\033[K");
  }

  void show(const std::string& text) {
    if (!terminal_ || monotonic_ns() - begun_ < kQuiet) return;
    shown_ = true;
    write_out("\r\033[K[accel] " + text);
  }
  std::int64_t elapsed_ns() const { return monotonic_ns() - begun_; }
  double seconds() const { return static_cast<double>(elapsed_ns()) / 1e9; }

 private:
  static void write_out(const std::string& text) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  }

  std::int64_t begun_ = monotonic_ns();
  bool terminal_ = log().on_stderr() && isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
};

void collect() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {}
}

}  // namespace

void clear_away() {
  StatusLine status;
  for (const pid_t pid : descendants()) kill(pid, SIGTERM);
  for (collect(); !descendants().empty() && status.elapsed_ns() < kGrace; collect()) {
    status.show(words("{} processes of the last attempt are still ending ({:.0f} s)",
                      "上一次尝试还有 {} 个进程正在退出（{:.0f} 秒）", descendants().size(),
                      status.seconds()));
    usleep(1000);
  }
  kill_descendants();
  for (collect(); !descendants().empty(); collect()) usleep(1000);
}

double wait_for_memory(const std::vector<std::int32_t>& ours) {
  StatusLine status;
  for (;;) {
    const std::optional<Gpus> gpus = look_at_gpus();
    if (!gpus) return status.seconds();
    std::string foreign;
    bool held = false;
    for (std::size_t device = 0; device < gpus->all.size(); ++device) {
      for (const std::int32_t pid : gpus->all[device].processes) {
        const bool own = std::find(ours.begin(), ours.end(), pid) != ours.end();
        held = held || own;
        if (!own) foreign += words(" process {} on GPU {};", " 进程 {}（GPU {}）；", pid, device);
      }
    }
    if (!held || status.elapsed_ns() > kMemoryPatience) status.clear();
    if (!held) {
      if (!foreign.empty())
        log().print("[accel] " + words("others hold memory, too:{}", "其他进程也占用显存：{}", foreign) +
                    "\n");
      return status.seconds();
    }
    if (status.elapsed_ns() > kMemoryPatience) {
      log().print("[accel] " +
                  words("after {:.0f} s the GPU's memory is not back yet; going on",
                        "{:.0f} 秒后显存仍未释放；继续", status.seconds()) +
                  "\n");
      return status.seconds();
    }
    status.show(words("waiting for the GPUs' memory to come back ({:.0f} s)", "等待显存释放（{:.0f} 秒）",
                      status.seconds()));
    usleep(50'000);
  }
}

}  // namespace accel
