#include "collect/leader.h"

#include <fcntl.h>
#include <sys/file.h>

namespace accel {

bool Leadership::acquire(const RunDirectory& run) {
  if (held()) return true;
  FileDescriptor file(openat(run.fd(), "leader.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file || flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  lock_ = std::move(file);
  return true;
}

}  // namespace accel
