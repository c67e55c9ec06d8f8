// The driver's function that a wrapper stands in front of: by libcuda's own handle, never through the global
// scope, where we come first.
#pragma once
#include "interpose/real.h"

namespace accel::cuda {

/// The driver in this process; nullptr if it is not loaded. Never loads it.
void* library();

/// Its function of that name.
void* find_real(const char* symbol, const void* caller);

using Real = RealFunction<find_real>;

}  // namespace accel::cuda
