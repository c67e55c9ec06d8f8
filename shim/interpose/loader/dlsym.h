// The functions of ours that dlsym hands out in place of a library's own.
#pragma once

namespace accel {

/// The wrapper of that exact name; nullptr if we have none. No allocation, no locks: dlsym is called
/// anywhere.
void* find_wrapper(const char* name);

}  // namespace accel
