// From a handle to a small number: lock-free to read on the hot path, written rarely.
#pragma once
#include <array>
#include <atomic>
#include <mutex>

#include "signature/call.h"
#include "signature/hash.h"

namespace accel {

template <std::size_t kCapacity>
class HandleMap {
 public:
  /// -1: not there. Never blocks.
  int find(Handle handle) const {
    for (std::size_t probe = place(handle), seen = 0; seen < kCapacity;
         probe = (probe + 1) % kCapacity, ++seen) {
      const Handle there = entries_[probe].handle.load(std::memory_order_acquire);
      if (there == handle) return entries_[probe].value.load(std::memory_order_relaxed);
      if (there == kEmpty) return -1;
    }
    return -1;
  }

  /// False: full.
  bool set(Handle handle, int value) {
    const std::lock_guard lock(mutex_);
    std::size_t free = kCapacity;
    for (std::size_t probe = place(handle), seen = 0; seen < kCapacity;
         probe = (probe + 1) % kCapacity, ++seen) {
      const Handle there = entries_[probe].handle.load(std::memory_order_relaxed);
      if (there == handle) {
        entries_[probe].value.store(value, std::memory_order_relaxed);
        return true;
      }
      if (free == kCapacity && (there == kEmpty || there == kRemoved)) free = probe;
      if (there == kEmpty) break;
    }
    if (free == kCapacity) return false;
    entries_[free].value.store(value, std::memory_order_relaxed);
    entries_[free].handle.store(handle, std::memory_order_release);
    return true;
  }

  /// The value it had; -1 if it was not there.
  int erase(Handle handle) {
    const std::lock_guard lock(mutex_);
    for (std::size_t probe = place(handle), seen = 0; seen < kCapacity;
         probe = (probe + 1) % kCapacity, ++seen) {
      const Handle there = entries_[probe].handle.load(std::memory_order_relaxed);
      if (there == kEmpty) return -1;
      if (there != handle) continue;
      const int value = entries_[probe].value.load(std::memory_order_relaxed);
      // Where nothing follows, the chain ends here: no grave needed.
      const bool last = entries_[(probe + 1) % kCapacity].handle.load(std::memory_order_relaxed) == kEmpty;
      entries_[probe].handle.store(last ? kEmpty : kRemoved, std::memory_order_release);
      return value;
    }
    return -1;
  }

 private:
  static constexpr Handle kEmpty = 0;
  static constexpr Handle kRemoved = ~Handle{0};
  static std::size_t place(Handle handle) { return (handle * 0x9e3779b97f4a7c15u >> 32) % kCapacity; }

  struct Entry {
    std::atomic<Handle> handle{kEmpty};
    std::atomic<int> value{0};
  };
  std::array<Entry, kCapacity> entries_;
  std::mutex mutex_;
};

}  // namespace accel
