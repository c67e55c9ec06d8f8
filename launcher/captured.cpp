#include "launcher/captured.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "record/clock.h"
#include "record/file_descriptor.h"

namespace accel {

Captured run_captured(const std::vector<std::string>& words, std::int64_t timeout_ns) {
  Captured result;
  int ends[2];
  if (words.empty() || pipe2(ends, O_CLOEXEC) != 0) return result;
  const FileDescriptor output(ends[0]);
  FileDescriptor input(ends[1]);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, input.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, input.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);  // so that its children can be killed with it
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  pid_t child = -1;
  const int error = posix_spawnp(&child, words[0].c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return result;
  input = FileDescriptor();

  constexpr std::size_t kMost = 1 << 20;
  const std::int64_t deadline = monotonic_ns() + timeout_ns;
  for (;;) {
    pollfd waiting{output.get(), POLLIN, 0};
    const std::int64_t left = deadline - monotonic_ns();
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left / 1'000'000) + 1) == 0) {
      result.timed_out = true;
      kill(-child, SIGKILL);
      break;
    }
    char chunk[4096];
    const ssize_t got = read(output.get(), chunk, sizeof chunk);
    if (got <= 0) break;
    if (result.output.size() < kMost) result.output.append(chunk, static_cast<std::size_t>(got));
  }
  int status = 0;
  waitpid(child, &status, 0);
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

std::string in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream directories(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string directory; std::getline(directories, directory, ':');) {
    std::string candidate = (directory.empty() ? "." : directory) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

}  // namespace accel
