// Whether the kernel's OOM killer has been at work: memory of the host, not of a GPU.
#pragma once
#include <cstdint>
#include <optional>

namespace accel {

/// Processes of our cgroup that it has killed so far; nullopt: not a cgroup of version 2, or not readable.
/// Source: memory.events in the kernel's cgroup-v2 documentation.
std::optional<std::int64_t> oom_kills();

}  // namespace accel
