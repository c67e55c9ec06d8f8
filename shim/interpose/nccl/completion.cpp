#include "interpose/nccl/completion.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "interpose/cuda/ledger.h"
#include "interpose/cuda/real.h"
#include "interpose/cuda/streams.h"
#include "interpose/handle_map.h"
#include "lifecycle/agent.h"

namespace accel::nccl {
namespace {

using cuda::Real;
using Word = std::uintptr_t;

/// The driver's functions, asked for once.
struct Driver {
  int (*create)(Word*, unsigned) = nullptr;
  int (*record)(Word, Word) = nullptr;
  int (*query)(Word) = nullptr;
  int (*context_of)(Word, Word*) = nullptr;
  int (*push)(Word) = nullptr;
  int (*pop)(Word*) = nullptr;
  int (*exchange_mode)(int*) = nullptr;
  bool complete = false;

  static const Driver& get() {
    static const Driver driver;
    return driver;
  }

 private:
  Driver() {
    static constinit Real reals[] = {Real("cuEventCreate"),
                                     Real("cuEventRecord"),
                                     Real("cuEventQuery"),
                                     Real("cuStreamGetCtx"),
                                     Real("cuCtxPushCurrent_v2"),
                                     Real("cuCtxPopCurrent_v2"),
                                     Real("cuThreadExchangeStreamCaptureMode")};
    create = reals[0].get<int(Word*, unsigned)>();
    record = reals[1].get<int(Word, Word)>();
    query = reals[2].get<int(Word)>();
    context_of = reals[3].get<int(Word, Word*)>();
    push = reals[4].get<int(Word)>();
    pop = reals[5].get<int(Word*)>();
    exchange_mode = reals[6].get<int(int*)>();
    complete = create && record && query && context_of && push && pop && exchange_mode;
  }
};

struct Track {
  std::mutex mutex;
  Handle stream = 0;
  Word context = 0;
  Word event = 0;
  std::uint64_t outstanding = 0;  ///< the event stands behind this launch; 0: there is none
  std::uint64_t seen = 0;         ///< launches at the agent's last look
  bool usable = true;
};

std::array<Track, kMaxStreams> tracks;
HandleMap<4096> numbers;
std::atomic<int> count{0};
std::atomic<Recorder*> watched{nullptr};
std::atomic<bool> closing{false};

/// Makes a context current for a while.
class InContext {
 public:
  explicit InContext(Word context) : done_(Driver::get().push(context) == driver::kSuccess) {}
  ~InContext() {
    Word before = 0;
    if (done_) Driver::get().pop(&before);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  bool done_;
};

StreamRecord& record_of(Recorder& recorder, std::size_t number) { return recorder.file().streams[number]; }

/// Puts an event behind what has been launched so far. The track is locked.
void put_event(Recorder& recorder, std::size_t number) {
  Track& track = tracks[number];
  const Driver& driver = Driver::get();
  const DepthGuard guard(cuda::driver_state.nested);
  track.usable = track.usable && driver.complete;
  if (!track.usable) return;
  if (track.context == 0 && driver.context_of(track.stream, &track.context) != driver::kSuccess) {
    track.usable = false;
    return;
  }
  const InContext there(track.context);
  constexpr unsigned kDisableTiming = 2;
  track.usable = (track.event != 0 || driver.create(&track.event, kDisableTiming) == driver::kSuccess) &&
                 driver.record(track.event, track.stream) == driver::kSuccess;
  StreamRecord& record = record_of(recorder, number);
  if (track.usable) track.outstanding = __atomic_load_n(&record.launched, __ATOMIC_ACQUIRE);
  __atomic_store_n(&record.tracked, track.usable ? 1 : 0, __ATOMIC_RELEASE);
}

void look_after(Recorder& recorder, std::size_t number) {
  Track& track = tracks[number];
  const std::lock_guard lock(track.mutex);
  if (!track.usable || track.stream == kNoHandle) return;
  StreamRecord& record = record_of(recorder, number);
  const Driver& driver = Driver::get();
  const DepthGuard guard(cuda::driver_state.nested);
  if (track.outstanding != 0) {
    const InContext there(track.context);
    constexpr int kNotReady = 600;
    const int result = driver.query(track.event);
    if (result == kNotReady) return;
    if (result != driver::kSuccess) {
      track.usable = false;
      __atomic_store_n(&record.tracked, 0, __ATOMIC_RELEASE);
      return;
    }
    __atomic_store_n(&record.since, ticks_now(), __ATOMIC_RELAXED);
    __atomic_store_n(&record.completed, track.outstanding, __ATOMIC_RELEASE);
    track.outstanding = 0;
  }
  const std::uint64_t launched = __atomic_load_n(&record.launched, __ATOMIC_ACQUIRE);
  const bool behind = record.completed < launched;
  const bool ceased = std::exchange(track.seen, launched) == launched;
  if (behind && ceased && !cuda::somebody_captures()) put_event(recorder, number);
}

/// On the agent thread.
void look_after_all() {
  Recorder* const recorder = watched.load();
  if (recorder == nullptr || closing.load()) return;
  if (static thread_local bool relaxed = false; !relaxed && Driver::get().complete) {
    // Asking for an event must not disturb a capture that another thread has on.
    int mode = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
    Driver::get().exchange_mode(&mode);
    relaxed = true;
  }
  const auto used = std::min<std::size_t>(static_cast<std::size_t>(count.load()), kMaxStreams);
  for (std::size_t number = 0; number < used && !closing.load(); ++number) look_after(*recorder, number);
}

void forget(Handle stream) {
  const int number = numbers.erase(stream);
  if (number < 0) return;
  Track& track = tracks[static_cast<std::size_t>(number)];
  const std::lock_guard lock(track.mutex);
  track.stream = kNoHandle;
}

void start(Recorder& recorder) {
  static std::once_flag once;
  std::call_once(once, [&] {
    watched.store(&recorder);
    cuda::on_stream_end(forget);
    on_each_turn(look_after_all);
    // Registered after the driver's own handlers, and so run before them: the driver is not asked while it is
    // taken down.
    std::atexit([] { closing.store(true); });
  });
}

}  // namespace

Place next_place(Recorder& recorder, Handle stream, int communicator_slot) {
  if (cuda::is_capturing(stream)) return {};
  constexpr Handle kPerThread = 2;  // 0 and 1: the legacy default stream
  const Handle name =
      stream > kPerThread ? stream : (static_cast<Handle>(communicator_slot) + 1) << 4 | stream;
  int number = numbers.find(name);
  if (number < 0) {
    start(recorder);
    number = count.fetch_add(1);
    if (number < static_cast<int>(kMaxStreams)) tracks[static_cast<std::size_t>(number)].stream = stream;
    numbers.set(name, number);
  }
  if (number >= static_cast<int>(kMaxStreams)) return {kUntrackedStream, 0};
  StreamRecord& record = record_of(recorder, static_cast<std::size_t>(number));
  const std::uint64_t launch = __atomic_add_fetch(&record.launched, 1, __ATOMIC_ACQ_REL);
  if (launch == __atomic_load_n(&record.completed, __ATOMIC_RELAXED) + 1)
    __atomic_store_n(&record.since, ticks_now(), __ATOMIC_RELAXED);
  return {static_cast<std::uint16_t>(number), static_cast<std::uint16_t>(launch)};
}

void launched(Recorder& recorder, const Place& place) {
  if (place.stream >= kMaxStreams) return;
  Track& track = tracks[place.stream];
  if (track.outstanding != 0 || !track.usable) return;
  const std::unique_lock lock(track.mutex, std::try_to_lock);
  if (lock.owns_lock() && track.outstanding == 0) put_event(recorder, place.stream);
}

}  // namespace accel::nccl
