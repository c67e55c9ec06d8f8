// The driver's function that a wrapper stands in front of: by libcuda's own handle, never through the global
// scope, where we come first.
#pragma once
#include <atomic>

namespace accel::cuda {

/// The driver in this process; nullptr if it is not loaded. Never loads it.
void* library();

class Real {
 public:
  explicit constexpr Real(const char* symbol) : symbol_(symbol) {}

  template <class Function>
  Function* get() {
    void* found = found_.load(std::memory_order_acquire);
    if (found == nullptr) [[unlikely]]
      found = find();
    return reinterpret_cast<Function*>(found);
  }
  void* address() { return reinterpret_cast<void*>(get<void()>()); }
  /// What cuGetProcAddress has given for it: used where the driver does not export it.
  void offer(void* function);

 private:
  void* find();

  const char* symbol_;
  std::atomic<void*> found_{nullptr};
};

}  // namespace accel::cuda
