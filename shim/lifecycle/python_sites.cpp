#include "lifecycle/python_sites.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "lifecycle/own_memory.h"
#include "lifecycle/own_thread.h"
#include "lifecycle/python.h"
#include "lifecycle/python_api.h"
#include "record/futex.h"
#include "report/log.h"

namespace accel {
namespace {

/// Offsets in bytes. From CPython's headers: PyThreadState, _PyCFrame, PyFrameObject (until 3.10) and
/// _PyInterpreterFrame. Never trusted unseen: see calibrate.
struct Layout {
  int minor;        ///< Python 3.minor
  int thread;       ///< in the thread state: the innermost frame, or the _PyCFrame that has it
  int through;      ///< in the _PyCFrame: the innermost frame; -1: there is no _PyCFrame
  int code;         ///< in a frame
  int previous;     ///< in a frame: the caller's
  int instruction;  ///< in a frame: where it is, 4 bytes
};
constexpr Layout kLayouts[] = {
    {8, 24, -1, 32, 24, 104}, {9, 24, -1, 32, 24, 104}, {10, 24, -1, 32, 24, 96},
    {11, 56, 8, 32, 48, 56},  {12, 56, 0, 0, 8, 56},    {13, 72, -1, 0, 8, 56},
};

constexpr int kDeepest = 60;

struct Place {
  std::uint64_t code = 0;
  std::uint32_t instruction = 0;
};

/// Visits a thread's frames from the innermost outwards. `load(address, value)` false ends it.
template <class Load, class Visit>
void walk(const Layout& layout, const void* thread, Load&& load, Visit&& visit) {
  auto address = reinterpret_cast<std::uint64_t>(thread) + static_cast<std::uint64_t>(layout.thread);
  std::uint64_t frame = 0;
  if (!load(address, frame) || frame == 0) return;
  if (layout.through >= 0 && !load(frame + static_cast<std::uint64_t>(layout.through), frame)) return;
  for (int depth = 0; frame != 0 && depth < kDeepest; ++depth) {
    Place place;
    if (!load(frame + static_cast<std::uint64_t>(layout.code), place.code) ||
        !load(frame + static_cast<std::uint64_t>(layout.instruction), place.instruction)) {
      return;
    }
    visit(place);
    if (!load(frame + static_cast<std::uint64_t>(layout.previous), frame)) return;
  }
}

std::atomic<const Layout*> known{nullptr};
std::atomic<bool> unknown{false};  ///< and stays so

/// A question to the interpreter, one at a time. The thread that asks is inside somebody's call: it waits for
/// so long and no longer, and leaves the question to be dropped.
enum : std::uint32_t { kIdle, kWaiting, kTaken, kAnswered, kDropped };
constexpr std::int64_t kPatience = 50'000'000;
constexpr std::int64_t kAnswerPatience = 1'000'000'000;
struct Question {
  std::atomic<std::uint32_t> state{kIdle};
  void (*ask)() = nullptr;
} question;

/// Nothing here may need to be destroyed: see run_python.
void* carry_question(void*) {
  if (!has_python()) return nullptr;
  const PythonApi& python = python_api();
  const int gil = python.ensure();
  std::uint32_t expected = kWaiting;
  if (question.state.compare_exchange_strong(expected, kTaken)) {
    question.ask();
    question.state.store(kAnswered);
    futex_wake_all(question.state);
  } else {
    question.state.store(kIdle);
  }
  python.release(gil);
  return nullptr;
}

/// Has `ask` run with the GIL, between `prepare` and `take` on this thread. False: it did not come to it.
template <class Prepare, class Take>
bool ask_interpreter(void (*ask)(), Prepare&& prepare, Take&& take) {
  const PythonApi& python = python_api();
  std::uint32_t expected = kIdle;
  if (!question.state.compare_exchange_strong(expected, kWaiting)) return false;
  prepare();
  question.ask = ask;
  if (python.holds_gil() != 0) {
    void *type = nullptr, *value = nullptr, *trace = nullptr;
    python.fetch_error(&type, &value, &trace);
    ask();
    python.restore_error(type, value, trace);
  } else {
    if (!start_own_thread(carry_question)) {
      question.state.store(kIdle);
      return false;
    }
    futex_wait(question.state, kWaiting, kPatience);
    expected = kWaiting;
    if (question.state.compare_exchange_strong(expected, kDropped)) return false;
    // It is being answered, and reads our frames: they must not move.
    futex_wait(question.state, kTaken, kAnswerPatience);
    if (question.state.load() != kAnswered) return false;
  }
  take();
  question.state.store(kIdle);
  return true;
}

/// Python calls it with the code that it stands in: twice in one function, then in its caller.
struct Calibration {
  const Layout* layout = nullptr;
  int calls = 0;
  bool right = true;
  Place first, caller;
} calibration;

void* check_layout(void*, void* argument) {
  const PythonApi& python = python_api();
  Calibration& now = calibration;
  const auto expected = reinterpret_cast<std::uint64_t>(argument);
  // Not trusted yet: what is not mapped is an error here, and no fault.
  const auto load = [](std::uint64_t address, auto& value) { return load_own_memory(address, value); };
  Place places[kDeepest];
  int depth = 0;
  walk(*now.layout, python.this_thread(), load, [&](const Place& place) { places[depth++] = place; });
  if (now.calls == 0) {
    now.right = depth >= 2 && places[0].code == expected;
    now.first = places[0];
    now.caller = places[1];
  } else if (now.calls == 1) {
    now.right = now.right && depth >= 2 && places[0].code == expected &&
                places[0].instruction != now.first.instruction && places[1].code == now.caller.code &&
                places[1].instruction == now.caller.instruction;
  } else {
    now.right = now.right && depth >= 1 && places[0].code == expected && now.caller.code == expected;
  }
  ++now.calls;
  return python.long_from(0);
}

PythonFunction checker{"native", check_layout};

constexpr const char* kCalibration = R"(
def inner(code):
    native(code)
    native(code)
def outer(code):
    inner(inner.__code__)
    native(code)
outer(outer.__code__)
)";

void calibrate() {
  const char* version = python_api().get_version();
  const int minor = python_minor();
  const auto* layout = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                                    [&](const Layout& one) { return one.minor == minor; });
  if (layout != std::end(kLayouts)) {
    calibration = {layout, 0, true, {}, {}};
    run_python(kCalibration, checker);
  }
  if (layout != std::end(kLayouts) && calibration.right && calibration.calls == 3) {
    known.store(layout, std::memory_order_release);
    return;
  }
  unknown.store(true);
  log().say(
      LogLevel::Warning,
      fmt::format("ACCEL_STACKS=sites: the frames of Python {} are not known; the lines of its calls are "
                  "shown only for processes that wait",
                  std::string(version, std::strcspn(version, " "))));
}

/// Of the calling thread's frames; 0: it has none.
std::uint64_t key_of_frames() {
  const Layout* layout = known.load(std::memory_order_acquire);
  const PythonApi& python = python_api();
  if (layout == nullptr && (unknown.load(std::memory_order_relaxed) || !has_python())) return 0;
  const void* thread = python.this_thread();
  if (thread == nullptr) return 0;
  if (layout == nullptr) {
    if (!ask_interpreter(
            calibrate, [] {}, [] {}) ||
        (layout = known.load()) == nullptr)
      return 0;
  }
  std::uint64_t key = 0;
  const auto load = [](std::uint64_t address, auto& value) {
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
    return true;
  };
  walk(*layout, thread, load, [&](const Place& place) {
    key = (key ^ place.code ^ std::uint64_t{place.instruction} << 40) * 0x9e3779b97f4a7c15u;
    key ^= key >> 29;
  });
  return key;
}

/// Whoever has the question has it.
struct Description {
  char program[4096] = {};
  char text[16 * 1024] = {};
  std::size_t bytes = 0;
} description;

void* take_description(void*, void* bytes) {
  description.bytes = copy_python_bytes(bytes, description.text, sizeof description.text);
  return python_api().long_from(0);
}
PythonFunction describer{"native", take_description};

/// As RecorderFile::python holds them; the number of bytes.
std::size_t describe_frames(char* text, std::size_t capacity) {
  if (known.load() == nullptr || python_api().this_thread() == nullptr) return 0;
  std::size_t bytes = 0;
  ask_interpreter([] { run_python(description.program, describer); },
                  [] {
                    description.bytes = 0;
                    write_dump_program(description.program, sizeof description.program, pthread_self());
                  },
                  [&] {
                    bytes = std::min(capacity, description.bytes);
                    std::memcpy(text, description.text, bytes);
                  });
  return bytes;
}

}  // namespace

const CallSites::Interpreter& python_sites() {
  static constexpr CallSites::Interpreter kPython{key_of_frames, describe_frames};
  return kPython;
}

}  // namespace accel
