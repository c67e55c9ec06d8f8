// From one attempt to the next: what is left of the first goes, and the GPUs' memory comes back.
#pragma once
#include <cstdint>
#include <vector>

namespace accel {

/// Ends whatever is left of the job below us, and nothing else: told first, killed after 5 s.
void clear_away();

/// Waits until the driver no longer knows the processes `ours`, at most 50 s; says who else holds memory.
/// Seconds that it took.
double wait_for_memory(const std::vector<std::int32_t>& ours);

}  // namespace accel
