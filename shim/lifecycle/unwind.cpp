// May run in a signal handler (unwind).
#include "lifecycle/unwind.h"

#include <dlfcn.h>
#include <execinfo.h>

namespace accel {
namespace {

using Backtrace = int (*)(void** buffer, int size);
Backtrace chosen = nullptr;

}  // namespace

void load_unwinder() {
  if (chosen != nullptr) return;
  if (void* library = dlopen("libunwind.so.8", RTLD_LAZY | RTLD_LOCAL)) {
    chosen = reinterpret_cast<Backtrace>(dlsym(library, "unw_backtrace"));
  }
  if (chosen == nullptr) chosen = backtrace;
  void* warm_up[4];
  chosen(warm_up, 4);
}

int unwind(std::uint64_t* pcs, int capacity) {
  if (chosen == nullptr) return 0;
  const int depth = chosen(reinterpret_cast<void**>(pcs), capacity);
  return depth > 0 ? depth : 0;
}

}  // namespace accel
