// The one thread of ours in a process: answers the leader, and leads when it is its turn. Never calls MPI.
#pragma once

namespace accel {

/// Starts it once. If no thread can be had, says so: the process is still recorded and judged by others.
void start_agent();
/// Called on the agent thread, some dozen times a second. One task.
void on_each_turn(void (*task)());
/// Called once, on the agent thread, when a verdict is to end the process. True: the program will be told by
/// the next call that it makes, and gets a moment to end by itself.
void on_verdict(bool (*tell_program)());
/// Asks it to do nothing more; it may be in the middle of a turn.
void stop_agent();

}  // namespace accel
