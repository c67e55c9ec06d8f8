// A thread of ours in somebody else's process.
#pragma once

namespace accel {

/// Starts it detached, with all signals but SIGBUS blocked: they are the application's. False: no thread can
/// be created.
bool start_own_thread(void* (*run)(void*), void* argument = nullptr);

}  // namespace accel
