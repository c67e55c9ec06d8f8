#include "interpose/cuda/real.h"

#include <dlfcn.h>

#include "interpose/real.h"

namespace accel::cuda {

void* library() {
  static std::atomic<void*> known{nullptr};
  void* library = known.load(std::memory_order_acquire);
  if (library != nullptr) return library;
  library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  known.store(library, std::memory_order_release);
  return library;
}

void* find_real(const char* symbol, const void*) {
  void* driver = library();
  return driver != nullptr ? real_dlsym(driver, symbol) : nullptr;
}

}  // namespace accel::cuda
