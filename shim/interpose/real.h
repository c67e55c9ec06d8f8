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
void* find_real(const char* symbol);

/// One real function, looked up at its first call.
class Real {
 public:
  explicit constexpr Real(const char* symbol) : symbol_(symbol) {}

  template <class Function>
  Function* get() {
    void* found = found_.load(std::memory_order_acquire);
    if (found == nullptr) [[unlikely]] {
      found = find_real(symbol_);
      found_.store(found, std::memory_order_release);
    }
    return reinterpret_cast<Function*>(found);
  }
  const char* symbol() const { return symbol_; }

 private:
  const char* symbol_;
  std::atomic<void*> found_{nullptr};
};

/// Says once that a function was called that the MPI library does not have, and returns MPI_ERR_OTHER.
int lacks(const char* symbol);

}  // namespace accel
