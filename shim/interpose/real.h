// The function that a wrapper stands in front of.
#pragma once
#include <link.h>

#include <atomic>

namespace accel {

/// libc's own dlsym, found in its ELF tables: before any constructor, without allocation or locks of ours.
void* real_dlsym(void* handle, const char* name);

/// Makes sure that it is known, for the assembly stub that jumps to it.
void find_real_dlsym();

/// Whether a loaded object defines a symbol for others to use.
bool defines(const dl_phdr_info& object, const char* symbol);

/// Handle of the MPI library in this process, however it came in (linked, dlopened RTLD_LOCAL); nullptr if
/// there is none. Looks through the loaded objects: not for the hot path.
void* mpi_library();

/// The next definition of `symbol` behind us, so that a PMPI tool behind us still runs; where the MPI library
/// was loaded RTLD_LOCAL and so is invisible, its own. nullptr: the library lacks it.
void* find_real(const char* symbol, const void* caller = nullptr);

/// One real function, looked up at its first call: `kFind(symbol, caller)` finds it.
template <void* (*kFind)(const char* symbol, const void* caller)>
class RealFunction {
 public:
  explicit constexpr RealFunction(const char* symbol) : symbol_(symbol) {}

  /// nullptr: there is none.
  template <class Function>
  Function* get(const void* caller = nullptr) {
    void* found = found_.load(std::memory_order_acquire);
    if (found == nullptr) [[unlikely]] {
      found = kFind(symbol_, caller);
      if (found != nullptr) found_.store(found, std::memory_order_release);
    }
    return reinterpret_cast<Function*>(found);
  }
  void* address() { return reinterpret_cast<void*>(get<void()>()); }
  /// Another way to it, used where it cannot be found.
  void offer(void* function) {
    void* none = nullptr;
    if (address() == nullptr) found_.compare_exchange_strong(none, function);
  }
  const char* symbol() const { return symbol_; }

 private:
  const char* symbol_;
  std::atomic<void*> found_{nullptr};
};

/// MPI's.
using Real = RealFunction<find_real>;

/// Says once that a function was called that the MPI library does not have, and returns MPI_ERR_OTHER.
int lacks(const char* symbol);

}  // namespace accel
