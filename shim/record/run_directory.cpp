#include "record/run_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "record/base_name.h"
#include "record/process_stat.h"

namespace accel {
namespace {

constexpr const char* kLauncherPrefix = "accelrun.";

/// Opens a directory of ours below `parent`; makes it if `create`.
Result<FileDescriptor> open_private(int parent, const std::string& name, const std::string& shown,
                                    bool create) {
  using Failure = Result<FileDescriptor>;
  if (create && mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST) {
    return Failure::failure(fmt::format("cannot create {}: {}", shown, std::strerror(errno)));
  }
  FileDescriptor fd(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return Failure::failure(fmt::format("cannot open {}: {}", shown, std::strerror(errno)));
  struct stat info;
  if (fstat(fd.get(), &info) != 0 || info.st_uid != geteuid()) {
    return Failure::failure(fmt::format("{} belongs to another user", shown));
  }
  if ((info.st_mode & 077) != 0) {
    return Failure::failure(
        fmt::format("{} is open to other users (mode {:o}, needs 700)", shown, info.st_mode & 0777));
  }
  return fd;
}

std::string user_directory() { return fmt::format("accel-{}", geteuid()); }

std::string plain(const std::string& text) {
  std::string result;
  for (const char c : text.substr(0, 100)) {
    const bool good = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    result += good ? c : '_';
  }
  return result;
}

std::string process_identity(const char* kind, std::int32_t pid) {
  const auto stat = process_stat(pid);
  return fmt::format("{}-{}-{}", kind, pid, stat ? stat->start_time : 0);
}

void remove_tree(int parent, const char* name) {
  const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  if (DIR* entries = fdopendir(fd)) {
    while (const dirent* entry = readdir(entries)) {
      if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
        unlinkat(fd, entry->d_name, 0);
      }
    }
    closedir(entries);
  }
  unlinkat(parent, name, AT_REMOVEDIR);
}

bool any_process_lives(int run) {
  const int fd = openat(run, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = fd >= 0 ? fdopendir(fd) : nullptr;
  if (entries == nullptr) return true;
  bool lives = false;
  while (const dirent* entry = readdir(entries)) {
    const int pid = std::atoi(entry->d_name);
    if (pid > 0 && process_stat(pid)) lives = true;
  }
  closedir(entries);
  return lives;
}

}  // namespace

int reserve(int fd, std::size_t bytes) {
  sigset_t size_limit;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&size_limit);
  sigaddset(&size_limit, SIGXFSZ);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &size_limit, &before);
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  const timespec at_once{};
  if (error != 0 && sigismember(&pending, SIGXFSZ) == 0) sigtimedwait(&size_limit, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

std::string host_name() {
  char name[64] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "localhost";
  return name;
}

namespace {

/// What Hydra has told one of its proxies: to which mpiexec it belongs and which of its process groups it
/// starts. Empty: it is another kind.
std::string hydra_job(std::int32_t proxy) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", proxy));
  std::string job;
  std::string option;
  for (std::string word; std::getline(file, word, '\0'); option = word) {
    for (const char* const known : {"--control-port", "--upstream-host", "--upstream-port", "--pgid"}) {
      if (option == known) job += "." + word;
    }
  }
  return job.empty() ? "" : plain("hydra" + job);
}

}  // namespace

LauncherIdentity launcher_identity(bool uses_mpi) {
  const auto text = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string space = text("PMIX_NAMESPACE"); !space.empty()) return {"pmix-" + plain(space)};
  if (const std::string job = text("SLURM_JOB_ID"); !job.empty() && !text("SLURM_STEP_ID").empty()) {
    return {plain("slurm-" + job + "." + text("SLURM_STEP_ID"))};
  }
  if (text("PMI_RANK").empty()) {
    if (uses_mpi) return {process_identity("pid", getpid())};
    if (const std::string id = text("TORCHELASTIC_RUN_ID"); !id.empty())
      return {plain("torch-" + id + "." + text("MASTER_PORT"))};
    LauncherIdentity identity{process_identity("parent", getppid()),
                              !text("RANK").empty() && !text("WORLD_SIZE").empty()};
    if (identity.names_job && !text("MASTER_ADDR").empty() && !text("MASTER_PORT").empty())
      identity.everywhere = plain("master-" + text("MASTER_ADDR") + "." + text("MASTER_PORT"));
    return identity;
  }
  // Hydra tells its processes no job id, but they all descend from one proxy; a shell may stand between.
  std::int32_t ancestor = getppid();
  for (int depth = 0; depth < 16 && ancestor > 1; ++depth) {
    const auto stat = process_stat(ancestor);
    if (!stat) break;
    if (stat->name.find("pmi_proxy") != std::string::npos) {
      LauncherIdentity identity{process_identity("proxy", ancestor)};
      if (const std::string job = hydra_job(ancestor); !job.empty()) identity.everywhere = job;
      return identity;
    }
    ancestor = stat->parent;
  }
  return {process_identity("parent", getppid())};
}

bool launched_by_accelrun(const std::string& run_id) { return run_id.starts_with(kLauncherPrefix); }

bool launched_here(const std::string& run_id) {
  return run_id.starts_with(kLauncherPrefix + plain(host_name()) + ".");
}

namespace {
constexpr std::string_view kRecordEnding = ".record";
constexpr std::string_view kCopyBeginning = "node";
}  // namespace

std::string record_name(std::int32_t pid) { return fmt::format("{}{}", pid, kRecordEnding); }

std::string copy_name(std::uint32_t node, std::int32_t pid) {
  return fmt::format("{}{}.{}{}", kCopyBeginning, node, pid, kRecordEnding);
}

bool is_record(std::string_view name) { return name.ends_with(kRecordEnding); }

bool is_copy(std::string_view name) { return is_record(name) && name.starts_with(kCopyBeginning); }

std::string new_run_id() {
  std::uint32_t salt = 0;
  if (getrandom(&salt, sizeof salt, GRND_NONBLOCK) != sizeof salt)
    salt = static_cast<std::uint32_t>(ticks_now());
  return fmt::format("{}{}.{}.{:08x}", kLauncherPrefix, plain(host_name()), getpid(), salt);
}

Result<RunDirectory> RunDirectory::open(const std::string& base, const std::string& run_id, Missing missing) {
  // The last process of another run may remove the user's directory between our two steps.
  for (int attempt = 0;; ++attempt) {
    auto run = try_open(base, run_id, missing);
    if (run || run.error == kStaleRun || errno != ENOENT || attempt == 3) return run;
  }
}

Result<RunDirectory> RunDirectory::try_open(const std::string& base, const std::string& run_id,
                                            Missing missing) {
  using Failure = Result<RunDirectory>;
  FileDescriptor base_fd(::open(base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!base_fd) return Failure::failure(fmt::format("cannot open {}: {}", base, std::strerror(errno)));
  const std::string user_path = base + "/" + user_directory();
  auto user = open_private(base_fd.get(), user_directory(), user_path, true);
  if (!user) return Failure::failure(user.error);

  RunDirectory run;
  run.path_ = user_path + "/" + run_id;
  run.run_id_ = run_id;
  if (launched_here(run_id) && missing == Missing::Stale &&
      faccessat(user->get(), run_id.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
    return Failure::failure(kStaleRun);
  }
  auto fd = open_private(user->get(), run_id, run.path_, true);
  if (!fd) return Failure::failure(fd.error);
  run.fd_ = std::move(*fd);
  mkfifoat(run.fd(), "bell", 0600);
  return run;
}

Result<RunDirectory> RunDirectory::at(const std::string& path) {
  auto fd = open_private(AT_FDCWD, path, path, false);
  if (!fd) return Result<RunDirectory>::failure(fd.error);
  RunDirectory run;
  run.path_ = path;
  run.run_id_ = base_name(path);
  run.fd_ = std::move(*fd);
  return run;
}

Result<RunDirectory> RunDirectory::kept(const std::string& path) {
  RunDirectory run;
  run.path_ = path;
  run.run_id_ = base_name(path);
  run.fd_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!run.fd_)
    return Result<RunDirectory>::failure(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  return run;
}

void RunDirectory::ring() const {
  const int bell = openat(fd_.get(), "bell", O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  if (bell < 0) return;  // nobody listens
  [[maybe_unused]] const ssize_t written = write(bell, "!", 1);
  close(bell);
}

FileDescriptor RunDirectory::open_bell() const {
  // Read and write, so that it never reports the end of file when the last ringer closes it.
  return FileDescriptor(openat(fd_.get(), "bell", O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
}

Board* RunDirectory::map_board() const {
  const FileDescriptor file(openat(fd_.get(), "board", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file || reserve(file.get(), 4096) != 0) return nullptr;
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return page != MAP_FAILED ? static_cast<Board*>(page) : nullptr;
}

void RunDirectory::remove() const {
  const std::string parent_path = path_.substr(0, path_.rfind('/'));
  const FileDescriptor parent(::open(parent_path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!parent) return;
  remove_tree(parent.get(), run_id_.c_str());
  // The user's directory goes with the last run in it; not empty is the usual, harmless answer.
  unlinkat(AT_FDCWD, parent_path.c_str(), AT_REMOVEDIR);
}

void sweep_dead_runs(const std::string& base, std::int64_t older_than_seconds) {
  const std::string path = base + "/" + user_directory();
  const FileDescriptor user(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!user || fstat(user.get(), &info) != 0 || info.st_uid != geteuid()) return;
  const int fd = openat(user.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = fd >= 0 ? fdopendir(fd) : nullptr;
  if (entries == nullptr) return;
  const std::int64_t now = nanoseconds(CLOCK_REALTIME) / 1'000'000'000;
  while (const dirent* entry = readdir(entries)) {
    if (entry->d_name[0] == '.') continue;
    const FileDescriptor run(
        openat(user.get(), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!run || fstat(run.get(), &info) != 0 || now - info.st_mtime < older_than_seconds) continue;
    const FileDescriptor lock(openat(run.get(), "leader.lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (lock && flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (!any_process_lives(run.get())) remove_tree(user.get(), entry->d_name);
  }
  closedir(entries);
}

}  // namespace accel
