// The machine that the stand-in driver pretends to have: devices with a memory budget, contexts, streams that
// are worker threads, events, graphs.
#pragma once
#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace standin {

using Work = std::function<void()>;

/// Executes work in order, on a thread of its own that starts with the first work.
class Stream {
 public:
  explicit Stream(unsigned flags = 0) : flags(flags) {}
  ~Stream();
  std::uint64_t submit(Work work);
  std::uint64_t submitted();
  void wait_for(std::uint64_t number);
  bool idle();

  const unsigned flags;
  /// While a capture is on, work goes there instead.
  std::shared_ptr<struct Graph> capture;

 private:
  void execute();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  std::uint64_t submitted_ = 0;
  std::uint64_t done_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0;
  std::uint64_t fired = 0;
  std::shared_ptr<struct Graph> capture;  ///< last recorded there
};

struct Graph {
  std::vector<Work> work;
};

struct Context {
  explicit Context(int device) : device(device), legacy(std::make_shared<Stream>()) {}
  /// A stream by its handle; null and the two special ones included.
  std::shared_ptr<Stream> stream(CUstream handle, bool per_thread);
  std::vector<std::shared_ptr<Stream>> all_streams();
  CUstream add(std::shared_ptr<Stream> stream);
  void remove(CUstream handle);
  /// With the legacy stream's implicit order. Returns what to wait for.
  std::uint64_t submit(const std::shared_ptr<Stream>& stream, Work work);
  void synchronize();

  const int device;
  std::atomic<int> sticky{0};  ///< the error that every later call returns

 private:
  std::mutex mutex_;
  std::shared_ptr<Stream> legacy;
  std::map<CUstream, std::shared_ptr<Stream>> streams_;
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread_;
};

/// Devices and their memory: ACCEL_STANDIN_GPUS, ACCEL_STANDIN_GPU_MEMORY (bytes; K, M, G),
/// ACCEL_STANDIN_GPU_MODELS (names, the last for all further ones),
/// ACCEL_STANDIN_SHARED=NAME (all processes draw on one budget, as on one machine).
class Machine {
 public:
  static Machine& get();
  int devices() const { return devices_; }
  std::size_t memory() const { return memory_; }
  static std::string model(int device);
  std::size_t used(int device) const { return static_cast<std::size_t>(used_[device].load()); }
  bool take(int device, std::size_t bytes);
  void give(int device, std::size_t bytes) { used_[device] -= static_cast<std::int64_t>(bytes); }

 private:
  Machine();
  static constexpr int kMost = 16;
  int devices_ = 1;
  std::size_t memory_ = 0;
  std::atomic<std::int64_t>* used_ = nullptr;
};

std::size_t size_from_environment(const char* variable, std::size_t otherwise);

/// ACCEL_STANDIN_FAIL=FUNCTION:N:CODE makes the N-th call of a driver function return CODE.
int injected(const char* function);

}  // namespace standin
