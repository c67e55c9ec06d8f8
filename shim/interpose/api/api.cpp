// What accel.h offers to programs: the table that its functions look up.
#include <accel/accel.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "interpose/export.h"
#include "lifecycle/launcher_rank.h"
#include "lifecycle/process.h"
#include "record/clock.h"
#include "report/log.h"

namespace accel {
namespace {

static_assert(ACCEL_MAIN_PROCESS_ONLY == kNoteMainOnly && ACCEL_IN_ORDER == kNoteInOrder);
static_assert(ACCEL_DEBUG == static_cast<int>(LogLevel::Debug) &&
              ACCEL_CRITICAL == static_cast<int>(LogLevel::Critical));

/// After which a break point that cannot be agreed on is worth a warning.
constexpr std::int64_t kPatience = 5'000'000'000;

/// Null where we are dormant, and in a forked child. A program that speaks before it uses any library, or
/// that uses none, is who its launcher says it is.
Recorder* recorder() {
  Process& process = Process::self();
  if (process.recorder() == nullptr && !process.start(0)) return nullptr;
  if (process.recorder()->header().world_rank < 0) process.introduce(0, 1, 0);
  return process.recorder();
}

LauncherRank identity() {
  if (const Recorder* known = recorder()) return {known->header().world_rank, known->header().world_size};
  return launcher_rank();
}

LogLevel level_of(int level) {
  return static_cast<LogLevel>(std::clamp<int>(level, ACCEL_DEBUG, ACCEL_CRITICAL));
}

/// Nothing of ours may fail in a program's call.
template <class Result, class Body>
Result guarded(Result otherwise, Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return otherwise;
  }
}

int is_logged(int level, unsigned int flags) {
  return guarded(0, [&] {
    const LauncherRank self = identity();
    if (Process::self().settings().disabled || level_of(level) < log().level()) return 0;
    return (flags & ACCEL_MAIN_PROCESS_ONLY) == 0 || self.rank <= 0 ? 1 : 0;
  });
}

void log_text(int level, unsigned int flags, const char* text) {
  static std::atomic<std::uint64_t> in_order{0};
  guarded(0, [&] {
    if (text == nullptr || is_logged(level, flags) == 0) return 0;
    Recorder* const own = recorder();
    if (own == nullptr) {
      log().say(level_of(level), text);
      return 0;
    }
    const auto known = static_cast<std::uint8_t>(flags & (kNoteMainOnly | kNoteInOrder));
    const std::uint64_t number = (known & kNoteInOrder) != 0 ? in_order.fetch_add(1) + 1 : 0;
    own->note(NoteKind::Log, static_cast<std::uint8_t>(level_of(level)), known, number, text);
    Process::self().board().notes.store(1, std::memory_order_relaxed);
    return 0;
  });
}

/// The world's break points, and how far this process has come.
class BreakPoints {
 public:
  void set() {
    asked_.store(true);
    ask();
  }
  bool check() {
    AgreedStop* const stop = find();
    if (stop == nullptr) return false;
    if (asked_.load(std::memory_order_relaxed)) ask();
    return stop->check(checks_.fetch_add(1, std::memory_order_relaxed) + 1);
  }

 private:
  /// Nobody may be asked to stop before all can be told: who is not there yet would begin to count too late.
  void ask() {
    AgreedStop* const stop = find();
    if (stop == nullptr) return;
    if (world_ == nullptr || world_->members.load() >= static_cast<std::uint32_t>(identity().size)) {
      stop->ask();
      asked_.store(false);
      return;
    }
    if (since_ == 0) since_ = monotonic_ns();
    if (monotonic_ns() - since_ < kPatience || warned_.exchange(true)) return;
    log().say(LogLevel::Warning,
              fmt::format("a break point is set, but only {} of {} ranks are on this host: no check will be "
                          "true before all are",
                          world_->members.load(), identity().size));
  }

  AgreedStop* find() {
    const Recorder* const own = recorder();
    if (own == nullptr) return nullptr;
    if (own->header().world_size <= 1) return &alone_;
    Process& process = Process::self();
    if (world_ == nullptr || world_->key.load(std::memory_order_relaxed) != process.world_key())
      world_ = process.board().world(process.world_key());
    return world_ != nullptr ? &world_->breakpoint : nullptr;
  }

  std::atomic<std::uint32_t> checks_{0};
  std::atomic<bool> asked_{false};
  std::atomic<bool> warned_{false};
  std::int64_t since_ = 0;
  World* world_ = nullptr;
  AgreedStop alone_{};
};
// Zero-filled, and needed until the very end.
BreakPoints break_points;

void set_breakpoint() {
  guarded(0, [] { return break_points.set(), 0; });
}

int check_breakpoint() {
  return guarded(0, [] { return break_points.check() ? 1 : 0; });
}

long batch_size(long fallback) {
  const char* text = std::getenv("ACCEL_BATCH_SIZE");
  const long asked = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
  return asked > 0 ? asked : fallback;
}

int rank() {
  return guarded(-1, [] { return identity().rank; });
}

int size() {
  return guarded(-1, [] { return identity().size; });
}

void mark(NoteKind kind, const char* name) {
  guarded(0, [&] {
    Recorder* const own = recorder();
    if (own != nullptr && name != nullptr)
      own->note(kind, static_cast<std::uint8_t>(LogLevel::Debug), 0, 0, name);
    return 0;
  });
}

void region_begin(const char* name) { mark(NoteKind::RegionBegin, name); }
void region_end(const char* name) { mark(NoteKind::RegionEnd, name); }

}  // namespace
}  // namespace accel

ACCEL_EXPORT const accel_v1 accel_v1_functions;
const accel_v1 accel_v1_functions = {
    .version = 1,
    .bytes = sizeof(accel_v1),
    .is_logged = accel::is_logged,
    .log = accel::log_text,
    .set_breakpoint = accel::set_breakpoint,
    .check_breakpoint = accel::check_breakpoint,
    .batch_size = accel::batch_size,
    .rank = accel::rank,
    .size = accel::size,
    .region_begin = accel::region_begin,
    .region_end = accel::region_end,
};
