// The functions of ours that dlsym hands out in place of a library's own.
#pragma once
#include "signature/function.h"

namespace accel {

struct Wrapper {
  void* function = nullptr;
  Library library = Library::None;
};

/// The wrapper of that exact name; empty if we have none. No allocation, no locks: dlsym is called anywhere.
Wrapper find_wrapper(const char* name);

}  // namespace accel
