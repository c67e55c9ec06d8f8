// This process's memory where it may not be what it is taken for.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "record/file_descriptor.h"

namespace accel {

/// Reads up to `bytes` at `address`, as far as it is mapped: what is not is an error here, and no fault. How
/// many; negative: none. Async-signal-safe.
inline ssize_t read_own_memory(std::uint64_t address, void* to, std::size_t bytes) {
  const FileDescriptor memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  return memory ? pread(memory.get(), to, bytes, static_cast<off_t>(address)) : -1;
}

/// The whole of `value`, or false.
template <class T>
bool load_own_memory(std::uint64_t address, T& value) {
  return read_own_memory(address, &value, sizeof value) == static_cast<ssize_t>(sizeof value);
}

}  // namespace accel
