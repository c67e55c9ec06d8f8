// Runs before main: where accelrun wants each rank's output in a file of its own (ACCEL_OUTPUT_DIR, which it
// sets), the rank's first process puts it there. Its children inherit the files and no longer the variable,
// so that what they redirect themselves stays redirected.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "lifecycle/launcher_rank.h"

namespace accel {
namespace {

__attribute__((constructor)) void redirect_output() {
  const char* directory = std::getenv("ACCEL_OUTPUT_DIR");
  const LauncherRank who = launcher_rank();
  if (directory == nullptr || *directory == '\0' || who.rank < 0) return;
  constexpr struct {
    int descriptor;
    const char* name;
  } kStreams[] = {{STDOUT_FILENO, "stdout"}, {STDERR_FILENO, "stderr"}};
  for (const auto& stream : kStreams) {
    char path[4096];
    std::snprintf(path, sizeof path, "%s/rank-%d.%s", directory, who.rank, stream.name);
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) continue;  // as without us
    dup2(file, stream.descriptor);
    close(file);
  }
  unsetenv("ACCEL_OUTPUT_DIR");
}

}  // namespace
}  // namespace accel
