#include "tests/standin/cuda/device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace standin {

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  // What never ends (a hung kernel) is left to the end of the process.
  if (thread_.joinable()) thread_.detach();
}

std::uint64_t Stream::submit(Work work) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { execute(); });
  queue_.push_back(std::move(work));
  changed_.notify_all();
  return ++submitted_;
}

void Stream::execute() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

std::uint64_t Stream::submitted() {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

void Stream::wait_for(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number; });
}

bool Stream::idle() {
  const std::lock_guard lock(mutex_);
  return done_ == submitted_;
}

std::shared_ptr<Stream> Context::stream(CUstream handle, bool per_thread) {
  if (handle == CU_STREAM_LEGACY || (handle == nullptr && !per_thread)) return legacy;
  const std::lock_guard lock(mutex_);
  if (handle == CU_STREAM_PER_THREAD || handle == nullptr) {
    auto& own = per_thread_[std::this_thread::get_id()];
    if (!own) own = std::make_shared<Stream>();
    return own;
  }
  const auto found = streams_.find(handle);
  return found != streams_.end() ? found->second : nullptr;
}

std::vector<std::shared_ptr<Stream>> Context::all_streams() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Stream>> all{legacy};
  for (const auto& [handle, stream] : streams_) all.push_back(stream);
  for (const auto& [thread, stream] : per_thread_) all.push_back(stream);
  return all;
}

CUstream Context::add(std::shared_ptr<Stream> stream) {
  const std::lock_guard lock(mutex_);
  const auto handle = reinterpret_cast<CUstream>(stream.get());
  streams_[handle] = std::move(stream);
  return handle;
}

void Context::remove(CUstream handle) {
  std::shared_ptr<Stream> last;
  {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(handle);
    if (found == streams_.end()) return;
    last = std::move(found->second);
    streams_.erase(found);
  }
  // Its work still runs to the end, as on a GPU: the last reference goes with it.
  last->submit([last] {});
}

std::uint64_t Context::submit(const std::shared_ptr<Stream>& stream, Work work) {
  if (stream->capture) {
    stream->capture->work.push_back(std::move(work));
    return 0;
  }
  std::vector<std::pair<std::shared_ptr<Stream>, std::uint64_t>> before;
  if (stream == legacy) {
    for (const auto& other : all_streams()) {
      if (other != legacy && (other->flags & CU_STREAM_NON_BLOCKING) == 0) {
        before.emplace_back(other, other->submitted());
      }
    }
  } else if ((stream->flags & CU_STREAM_NON_BLOCKING) == 0) {
    before.emplace_back(legacy, legacy->submitted());
  }
  return stream->submit([before = std::move(before), work = std::move(work)] {
    for (const auto& [other, number] : before) other->wait_for(number);
    work();
  });
}

void Context::synchronize() {
  for (const auto& stream : all_streams()) stream->wait_for(stream->submitted());
}

std::size_t size_from_environment(const char* variable, std::size_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  const std::size_t unit = *end == 'K'   ? std::size_t{1} << 10
                           : *end == 'M' ? std::size_t{1} << 20
                           : *end == 'G' ? std::size_t{1} << 30
                                         : 1;
  return static_cast<std::size_t>(number * static_cast<double>(unit));
}

Machine& Machine::get() {
  static auto* const machine = new Machine;
  return *machine;
}

Machine::Machine() {
  devices_ = static_cast<int>(std::min<std::size_t>(size_from_environment("ACCEL_STANDIN_GPUS", 8), kMost));
  memory_ = size_from_environment("ACCEL_STANDIN_GPU_MEMORY", std::size_t{1} << 30);
  constexpr std::size_t kBytes = sizeof(std::atomic<std::int64_t>) * kMost;
  void* memory = MAP_FAILED;
  if (const char* name = std::getenv("ACCEL_STANDIN_SHARED")) {
    const int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (fd >= 0 && ftruncate(fd, kBytes) == 0)
      memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
  }
  if (memory == MAP_FAILED)
    memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  used_ = static_cast<std::atomic<std::int64_t>*>(memory);
}

std::string Machine::model(int device) {
  const char* names = std::getenv("ACCEL_STANDIN_GPU_MODELS");
  std::istringstream all(names != nullptr ? names : "stand-in GPU");
  std::string name;
  for (int i = 0; i <= device; ++i) std::getline(all, name, ',');
  return name;
}

bool Machine::take(int device, std::size_t bytes) {
  std::int64_t now = used_[device].load();
  do {
    if (static_cast<std::size_t>(now) + bytes > memory_) return false;
  } while (!used_[device].compare_exchange_weak(now, now + static_cast<std::int64_t>(bytes)));
  return true;
}

int injected(const char* function) {
  static const std::string wanted =
      std::getenv("ACCEL_STANDIN_FAIL") ? std::getenv("ACCEL_STANDIN_FAIL") : "";
  static std::atomic<int> calls{0};
  const auto colon = wanted.find(':');
  if (colon == std::string::npos || wanted.compare(0, colon, function) != 0) return 0;
  char* rest = nullptr;
  const long number = std::strtol(wanted.c_str() + colon + 1, &rest, 10);
  return ++calls == number ? static_cast<int>(*rest == ':' ? std::strtol(rest + 1, nullptr, 10) : 2) : 0;
}

}  // namespace standin
