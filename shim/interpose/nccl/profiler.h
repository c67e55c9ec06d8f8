// Being NCCL's profiler plugin, where there is no other way to see its calls.
#pragma once

namespace accel::nccl {

/// Our wrappers see this NCCL: it shall not load a plugin for nothing, for which newer ones start a thread a
/// communicator. Before NCCL makes its first communicator. Any thread.
void withdraw_plugin();

}  // namespace accel::nccl
