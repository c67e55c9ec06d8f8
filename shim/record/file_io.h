// Whole reads and writes at a place in a file. Signal-safe.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace accel {

/// Bytes read: fewer than asked for at the file's end. -1: they cannot be read, see errno.
ssize_t read_at(int file, void* target, std::size_t bytes, std::uint64_t offset);

/// False: not all is written, see errno.
bool write_at(int file, const void* source, std::size_t bytes, std::uint64_t offset);

}  // namespace accel
