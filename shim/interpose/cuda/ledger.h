// What this process holds of the GPUs' memory, and what became of allocations that failed: kept in the
// recorder file, so that it is known when the process is gone. Thread-safe; no function fails.
#pragma once
#include <cstddef>
#include <cstdint>

#include "interpose/session.h"
#include "signature/driver.h"

namespace accel::cuda {

/// Where a call came from.
struct Origin {
  DriverFunction function;
  const void* caller;
  const void* frame;
};

struct Block {
  std::uint64_t bytes = 0;
  std::int32_t device = 0;
  MemoryKind kind = MemoryKind::Device;
};

class Ledger {
 public:
  /// nullptr while dormant and in a forked child. Starts recording at its first call.
  static Ledger* get();

  /// The device of the calling thread's context; -1: it has none.
  static int current_device();

  void add(std::uint64_t address, const Block& block);
  /// Before the real free: right after it another thread may get the same address. `bytes` 0: not known.
  Block take(std::uint64_t address);
  void put_back(std::uint64_t address, const Block& block);
  void freed(const Block& block);
  /// All device memory of a device is gone.
  void reset(int device);

  // Virtual memory: it is there until the last reference to its handle and the last mapping are gone.
  void created(std::uint64_t handle, std::uint64_t bytes, int device);
  void retained(std::uint64_t handle);
  void released(std::uint64_t handle);
  void mapped(std::uint64_t address, std::uint64_t bytes, std::uint64_t handle);
  void unmapped(std::uint64_t address, std::uint64_t bytes);

  /// A call has returned "out of memory". `kind` Count_: it was no allocation.
  void failed(const Origin& origin, MemoryKind kind, std::uint64_t bytes, int device);
  /// The thread has asked how much memory is free.
  void asked_for_free_memory();
  /// The thread has gone on: a launch, a copy or the like has succeeded.
  void went_on();
  /// A call has returned an error that breaks the context.
  void broke(const Origin& origin, int error);

 private:
  DeviceMemory* memory_of(int device) const;
  void name_gpu(int device);
  void count(const Block& block, int sign);
  void drop_if_unused(std::uint64_t handle);
  void settle(int device, std::uint64_t bytes);

  Recorder* recorder_ = nullptr;
  CallSites* sites_ = nullptr;
};

/// Per thread: inside one of our wrappers, so that what the driver calls itself counts once; and the episode
/// that the thread has not come out of yet.
struct DriverState {
  int nested = 0;
  MemoryEpisode* open = nullptr;
  std::uint32_t went_on = 0;
};
inline thread_local DriverState driver_state __attribute__((tls_model("initial-exec")));

}  // namespace accel::cuda
