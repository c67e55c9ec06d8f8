// Unwinds a copy of a sleeping thread's stack by the call frame information of its modules.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "record/layout.h"

namespace accel {

/// Return addresses, innermost first; the first is where the system call returns to. Of the registers only
/// the stack pointer and the program counter are known. Where a frame pointer is needed, those that the stack
/// holds are tried: one counts only if the frames then lead to the outermost function, and of several the one
/// whose frames called each other. One address where
/// libdw is missing, and on other machines than x86-64. Every byte of `copy` is foreign. Not signal-safe.
std::vector<std::uint64_t> unwind_copy(const std::string& maps, std::int32_t pid, const StackCopy& copy);

}  // namespace accel
