// A recorder file of this process, as a rank's, in a directory that goes away with the test.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "record/recorder.h"
#include "record/run_directory.h"

namespace accel::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/accel-test-XXXXXX";
    const char* const made = mkdtemp(name);
    EXPECT_NE(made, nullptr);
    path_ = made != nullptr ? made : "/nonexistent";
  }
  ~TemporaryDirectory() { std::system(("rm -rf " + path_).c_str()); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  RunDirectory run(const std::string& id = "test") const {
    auto opened = RunDirectory::open(path_, id);
    EXPECT_TRUE(opened) << opened.error;
    return std::move(*opened);
  }

 private:
  std::string path_;
};

inline CommunicatorRecord world_of(int rank, int size) {
  CommunicatorRecord communicator{};
  communicator.key = 7;
  communicator.rank = rank;
  communicator.size = size;
  return communicator;
}

inline Recorder::Draft draft_of(int slot, std::int64_t count) {
  Recorder::Draft draft;
  draft.function = Function::Allreduce;
  draft.communicator = static_cast<std::uint16_t>(slot);
  draft.count = count;
  draft.datatype = 8;
  return draft;
}

/// A rank with its world and one thread.
struct RecordedRank {
  RecordedRank(const RunDirectory& run, int rank, int size) : recorder(**Recorder::create(run)) {
    recorder.header().world_rank = rank;
    recorder.header().world_size = size;
    slot = recorder.add_communicator(world_of(rank, size));
    thread = recorder.claim_thread();
  }
  /// Comes into a call.
  Recorder::Ticket begin(std::int64_t count = 1, const Agreement& agreement = {1, 0}) {
    return recorder.begin_numbered(draft_of(slot, count), agreement, thread);
  }

  Recorder& recorder;
  int slot = 0;
  ThreadRecord* thread = nullptr;
};

}  // namespace accel::testing
