// The checks: each looks at a cause of trouble, not at a version for its own sake. None of them changes
// anything, and each ends within seconds.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launcher/doctor/finding.h"

namespace accel::doctor {

// This machine (machine.cpp).

/// 6.12+pk13.11, 6.1-arch1, 5.4.0-150-generic: major and minor number; nullopt: there are none.
std::optional<std::pair<int, int>> kernel_version(const std::string& release);
Findings check_kernel();
/// Whether two processes can wake each other through shared memory, as all MPIs and NCCL do on one node.
Findings check_shared_memory();
Findings check_limits();
Findings check_container();

// Its GPUs (gpu_checks.cpp).
Findings check_gpus();

// MPI and the other hosts (cluster.cpp).

/// Names of a host file in any dialect: "node1 slots=4", "node1:4", "node1", comments.
std::vector<std::string> hosts_in(const std::string& text);
Findings check_mpi();
/// Name resolution, ssh without a password, versions, clocks; then mpirun's own word. All hosts at once.
Findings check_hosts(const std::string& hostfile);

// The command (program.cpp).
Findings check_command(const std::vector<std::string>& command);

}  // namespace accel::doctor
