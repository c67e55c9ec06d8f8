// Return addresses of the calling thread. May run in a signal handler once loaded: unw_backtrace and glibc's
// backtrace allocate nothing after their first use.
#pragma once
#include <cstdint>

namespace accel {

/// Finds an unwinder: libunwind, loaded lazily and locally, since as a NEEDED library its `_Unwind_*` symbols
/// would take over C++ exceptions in programs that load libstdc++ late; else glibc's backtrace. Allocates;
/// call once.
void load_unwinder();

/// Fills `pcs`, innermost first, and returns how many. Needs load_unwinder() before.
int unwind(std::uint64_t* pcs, int capacity);

}  // namespace accel
