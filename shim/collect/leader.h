// Who reads and judges on this node: whoever holds an flock. The kernel gives it back when its holder dies,
// so a successor needs no election.
#pragma once
#include "record/file_descriptor.h"
#include "record/run_directory.h"

namespace accel {

class Leadership {
 public:
  /// Tries to become leader; true also if we already are. Never blocks.
  bool acquire(const RunDirectory& run);
  bool held() const { return static_cast<bool>(lock_); }
  void release() { lock_.reset(); }

 private:
  FileDescriptor lock_;
};

}  // namespace accel
