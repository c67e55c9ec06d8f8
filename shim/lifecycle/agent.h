// The one thread of ours in a process: answers the leader, and leads when it is its turn. Never calls MPI.
#pragma once

namespace accel {

/// Starts it once. If no thread can be had, says so: the process is still recorded and judged by others.
void start_agent();
/// Called on the agent thread, some dozen times a second. One task.
void on_each_turn(void (*task)());
/// Asks it to do nothing more; it may be in the middle of a turn.
void stop_agent();

}  // namespace accel
