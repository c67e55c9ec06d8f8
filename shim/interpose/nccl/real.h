// The function of NCCL that a wrapper stands in front of: pncclX, which nobody interposes.
#pragma once
#include <atomic>

#include "interpose/real.h"

namespace accel::nccl {

/// The NCCL that `caller` is bound to: several copies in one process are real. nullptr: it lacks the
/// function. `name` without its "nccl". Not for the hot path.
void* find_real(const char* name, const void* caller);

namespace detail {
/// More than one NCCL was found in this process: the caller decides.
extern std::atomic<bool> several;
}  // namespace detail

class Real : public RealFunction<find_real> {
 public:
  using RealFunction::RealFunction;

  template <class Function>
  Function* get(const void* caller) {
    if (detail::several.load(std::memory_order_relaxed)) [[unlikely]]
      return reinterpret_cast<Function*>(find_real(symbol(), caller));
    return RealFunction::get<Function>(caller);
  }
  const char* name() const { return symbol(); }
};

/// Whether `address` lies in an NCCL that wrappers of ours stand in front of.
bool is_wrapped(const void* address);

/// What a wrapper returns where there is no function behind it: ncclInvalidUsage. Says so once.
int lacks(const char* name);

/// Path of the object that holds NCCL; empty if there is none.
const char* library_path();

}  // namespace accel::nccl
