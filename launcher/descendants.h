// Processes below us: nothing of a job is left behind.
#pragma once
#include <sys/types.h>
#include <unistd.h>

#include <vector>

namespace accel {

/// All processes that descend from `of`, children before their own children. With us as child subreaper,
/// those whose parent has died are ours too.
std::vector<pid_t> descendants(pid_t of = getpid());

/// SIGKILL to all of them.
void kill_descendants();

}  // namespace accel
