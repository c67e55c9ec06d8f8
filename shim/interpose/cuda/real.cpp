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

void* Real::find() {
  void* driver = library();
  void* found = driver != nullptr ? real_dlsym(driver, symbol_) : nullptr;
  if (found != nullptr) found_.store(found, std::memory_order_release);
  return found;
}

void Real::offer(void* function) {
  void* none = nullptr;
  if (address() == nullptr) found_.compare_exchange_strong(none, function);
}

}  // namespace accel::cuda
