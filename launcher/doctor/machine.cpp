#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <utility>

#include "launcher/doctor/checks.h"
#include "launcher/host_memory.h"
#include "record/clock.h"
#include "record/futex.h"
#include "report/report.h"

namespace accel::doctor {
namespace {

std::string first_line(const std::string& path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

std::string limit_text(rlim_t limit, bool bytes) {
  if (limit == RLIM_INFINITY) return "unlimited";
  return bytes ? size_text(static_cast<std::int64_t>(limit)) : std::to_string(limit);
}

}  // namespace

std::optional<std::pair<int, int>> kernel_version(const std::string& release) {
  int major = 0;
  int minor = 0;
  if (std::sscanf(release.c_str(), "%d.%d", &major, &minor) != 2) return std::nullopt;
  return std::pair(major, minor);
}

Findings check_kernel() {
  utsname name{};
  uname(&name);
  const auto version = kernel_version(name.release);
  if (!version)
    return {{Level::Warning, "kernel", fmt::format("{}: not a version that can be read", name.release), ""}};
  if (*version < std::pair(5, 5)) {
    return {
        {Level::Warning, "kernel",
         fmt::format("{} is older than 5.5, below which distributed jobs were seen to hang", name.release),
         "upgrade it, unless your distribution has ported fixes back; the shared memory check tells more"}};
  }
  return {{Level::Ok, "kernel", name.release, ""}};
}

Findings check_shared_memory() {
  Findings findings;
  struct statvfs space {};
  if (statvfs("/dev/shm", &space) != 0) {
    return {{Level::Error, "shared memory", "/dev/shm is not there",
             "mount it: MPI, NCCL and data loaders need it on each node"}};
  }
  const auto total = static_cast<std::int64_t>(space.f_blocks) * static_cast<std::int64_t>(space.f_frsize);
  const auto free = static_cast<std::int64_t>(space.f_bavail) * static_cast<std::int64_t>(space.f_frsize);
  constexpr std::int64_t kDocker = std::int64_t{64} << 20;
  const bool small = total <= kDocker;
  const bool full = free < total / 20;
  findings.push_back(
      {small || full ? Level::Warning : Level::Ok, "shared memory",
       fmt::format("/dev/shm has {}, {} of them free", size_text(total), size_text(free)),
       small  ? "containers: --shm-size=8g or --ipc=host; NCCL and data loaders need more than that"
       : full ? "look for leftovers in /dev/shm"
              : ""});

  char path[] = "/dev/shm/accelrun-doctor-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0 || ftruncate(file, 4096) != 0) {
    if (file >= 0) unlink(path);
    findings.push_back({Level::Error, "shared memory", "no file can be made in /dev/shm",
                        "check its permissions and space"});
    return findings;
  }
  unlink(path);
  void* const memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) {
    findings.push_back({Level::Error, "shared memory", "a file in /dev/shm cannot be mapped",
                        "is it mounted with noexec or over a limit?"});
    return findings;
  }
  auto& word = *static_cast<std::atomic<std::uint32_t>*>(memory);
  const pid_t child = fork();
  if (child == 0) {
    // One wakes the other, a hundred times.
    for (std::uint32_t turn = 0; turn < 200; turn += 2) {
      while (word.load() == turn) futex_wait(word, turn, 1'000'000'000);
      word.store(turn + 2);
      futex_wake_all(word);
    }
    _exit(0);
  }
  const std::int64_t begun = monotonic_ns();
  constexpr std::int64_t kPatience = 2'000'000'000;
  bool answered = child > 0;
  for (std::uint32_t turn = 0; answered && turn < 200; turn += 2) {
    word.store(turn + 1);
    futex_wake_all(word);
    while (word.load() != turn + 2 && monotonic_ns() - begun < kPatience)
      futex_wait(word, turn + 1, 10'000'000);
    answered = word.load() == turn + 2;
  }
  const double micros = static_cast<double>(monotonic_ns() - begun) / 1e3 / 100;
  if (child > 0) {
    if (!answered) kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  munmap(memory, 4096);
  if (answered) {
    findings.push_back({Level::Ok, "shared memory",
                        fmt::format("two processes wake each other through it in {:.0f} µs", micros), ""});
  } else {
    findings.push_back({Level::Error, "shared memory",
                        "two processes do not wake each other through it within 2 s",
                        "this is what makes jobs hang on old or patched kernels: try another kernel"});
  }
  return findings;
}

Findings check_limits() {
  Findings findings;
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool infiniband = access("/sys/class/infiniband", F_OK) == 0;
  const bool locked_small = limit.rlim_cur != RLIM_INFINITY && infiniband;
  findings.push_back({locked_small ? Level::Warning : Level::Ok, "limits",
                      fmt::format("locked memory {}", limit_text(limit.rlim_cur, true)),
                      locked_small
                          ? "InfiniBand registers what it transfers: ulimit -l unlimited, or memlock in "
                            "/etc/security/limits.conf"
                          : ""});
  getrlimit(RLIMIT_NOFILE, &limit);
  const bool few = limit.rlim_cur < 1024;
  findings.push_back({few ? Level::Warning : Level::Ok, "limits",
                      fmt::format("open files {}", limit_text(limit.rlim_cur, false)),
                      few ? "each rank holds a connection to each other: ulimit -n 65536" : ""});
  getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur != RLIM_INFINITY) {
    findings.push_back({Level::Warning, "limits",
                        fmt::format("address space {}", limit_text(limit.rlim_cur, true)),
                        "CUDA reserves far more than it uses: ulimit -v unlimited"});
  }
  return findings;
}

Findings check_container() {
  Findings findings;
  const std::string most = first_line("/sys/fs/cgroup/memory.max");
  if (!most.empty() && most != "max") {
    findings.push_back({Level::Ok, "host memory",
                        fmt::format("the container may use {}", size_text(std::atoll(most.c_str()))), ""});
  }
  if (const auto kills = oom_kills(); kills && *kills > 0) {
    findings.push_back(
        {Level::Warning, "host memory",
         fmt::format("the kernel's OOM killer has killed {} processes here", *kills),
         "ranks that die by SIGKILL without a word: give the container more memory, or use fewer data "
         "loader workers"});
  }
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (scope == "2" || scope == "3") {
    findings.push_back(
        {Level::Warning, "debugging",
         fmt::format("ptrace_scope is {}: no debugger can look at a rank", scope),
         "stacks come from within all the same; gdb and py-spy need sysctl kernel.yama.ptrace_scope=1"});
  }
  return findings;
}

}  // namespace accel::doctor
