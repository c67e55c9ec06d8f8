// Where calls come from. The key is (return address, stack depth), so that a repeated call from the same
// place costs one look-up and only a new place costs an unwind.
#pragma once
#include <cstdint>

#include "record/layout.h"

namespace accel {

class CallSites {
 public:
  /// Fills `pcs` with up to `capacity` return addresses, innermost first; returns how many.
  using Unwind = int (*)(std::uint64_t* pcs, int capacity);

  /// What an interpreter that runs in the process knows of the calling thread.
  struct Interpreter {
    std::uint64_t (*key)();  ///< tells its frames from those of another place; 0: it has none
    std::size_t (*describe)(char* text,
                            std::size_t capacity);  ///< its frames, as RecorderFile::python has them
  };

  /// `unwind` null: places are told apart, but their stacks are not kept. `interpreter` null: it is not
  /// asked.
  void attach(RecorderFile* file, Unwind unwind, const Interpreter* interpreter = nullptr) {
    file_ = file;
    unwind_ = unwind;
    interpreter_ = interpreter;
  }

  /// The site's number in the recorder file, from 1; 0 where the table is full. Lock-free.
  std::uint16_t find(const void* return_address, const void* frame) {
    std::uint64_t key = reinterpret_cast<std::uint64_t>(return_address) * 0x9e3779b97f4a7c15u +
                        reinterpret_cast<std::uint64_t>(frame) * 0xd1b54a32d192ed03u;
    if (interpreter_ != nullptr) key ^= interpreter_->key();
    key |= 1;
    for (std::uint64_t probe = 0; probe < kProbes; ++probe) {
      const std::uint64_t index = ((key >> 32) + probe) % kMaxSites;
      if (index == 0) continue;
      const std::uint64_t there = __atomic_load_n(&file_->sites[index].key, __ATOMIC_RELAXED);
      if (there == key) return static_cast<std::uint16_t>(index);
      if (there == 0) return add(index, key, return_address);
    }
    return 0;
  }

  /// Whether a library calls itself from there.
  bool is_internal(std::uint16_t site) const {
    return (__atomic_load_n(&file_->sites[site].flags, __ATOMIC_RELAXED) & kSiteInternal) != 0;
  }

 private:
  static constexpr std::uint64_t kProbes = 8;

  std::uint16_t add(std::uint64_t index, std::uint64_t key, const void* return_address);
  void describe(CallSite& site);

  RecorderFile* file_ = nullptr;
  Unwind unwind_ = nullptr;
  const Interpreter* interpreter_ = nullptr;
};

/// In which library proper an address lies: libmpi, libmpich and Open MPI's plugins (as opposed to the
/// language bindings, which call for the application), libnccl, libcuda. Not for the hot path.
Library library_at(const void* address);

}  // namespace accel
