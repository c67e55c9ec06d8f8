#include "lifecycle/python.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "lifecycle/own_thread.h"
#include "lifecycle/python_api.h"

namespace accel {
namespace {

/// Hands over a line a thread, "T tid name", and a line a frame behind it, innermost first: E for one that C
/// has called, else F. `main` is what Python calls the main thread, 0: not known; `only` the one thread that
/// is asked for, 0: all. Imports nothing that a program does not have but linecache, which needs no more.
constexpr const char* kDump = R"(
def dump(main, pid, only):
    import _thread, linecache, sys
    threads = {main: (pid, "MainThread")}
    threading = sys.modules.get("threading")
    if threading is not None:
        for ident, thread in list(threading._active.items()):
            threads[ident] = (getattr(thread, "native_id", 0) or 0, thread.name)
    tasks = sys.modules.get("asyncio.tasks")
    for loop, task in list(getattr(tasks, "_current_tasks", {}).items()):
        ident = getattr(loop, "_thread_id", None)
        tid, name = threads.get(ident, (0, ""))
        threads[ident] = (tid, "%s, task %s" % (name, task.get_name()))
    lines = []
    for ident, frame in sys._current_frames().items():
        if ident == _thread.get_ident():
            frame = sys._getframe(1).f_back
            if frame is None:
                continue
        if only and ident != only:
            continue
        lines.append("T\t%d\t%s\n" % threads.get(ident, (0, "")))
        depth = 0
        while frame is not None and depth < 60:
            code, line = frame.f_code, frame.f_lineno or 0
            source = linecache.getline(code.co_filename, line, frame.f_globals).strip()
            kind = "E" if is_entry(frame) else "F"
            lines.append("%s\t%s\t%d\t%s\t%s\n" % (kind, code.co_filename, line, code.co_name, source[:200]))
            frame, depth = frame.f_back, depth + 1
    native("".join(lines).encode("utf-8", "replace"))
)";

/// What Python calls the main thread; 0: not known.
std::atomic<unsigned long> main_ident{0};

/// The thread that waits for the GIL; at most one, which answers the latest request when it comes to it.
struct Errand {
  std::atomic<bool> out{false};  ///< the thread is there
  std::atomic<std::uint32_t> request{0};
  Recorder* recorder = nullptr;
  char program[4096] = {};
};
Errand errand;

void* take_frames(void*, void* bytes) {
  RecorderFile& file = errand.recorder->file();
  file.header.python_bytes =
      static_cast<std::uint32_t>(copy_python_bytes(bytes, file.python, sizeof file.python));
  return python_api().long_from(0);
}
PythonFunction taker{"native", take_frames};

/// Nothing here may need to be destroyed: see run_python.
void* run_errand(void*) {
  const PythonApi& python = python_api();
  if (!has_python()) return nullptr;
  const int state = python.ensure();
  const std::uint32_t request = errand.request.load();
  RecorderFile& file = errand.recorder->file();
  file.header.python_bytes = 0;
  run_python(errand.program, taker);
  python.release(state);
  __atomic_store_n(&file.header.python_request, request, __ATOMIC_RELEASE);
  errand.out.store(false);
  return nullptr;
}

}  // namespace

void note_main_thread() {
  if (syscall(SYS_gettid) == getpid()) main_ident.store(pthread_self());
}

bool write_dump_program(char* program, std::size_t size, unsigned long only) {
  const int length =
      std::snprintf(program, size, "%s\ndump(%lu, %d, %lu)\n", kDump, main_ident.load(), getpid(), only);
  return length > 0 && static_cast<std::size_t>(length) < size;
}

void capture_python(Recorder& recorder, std::uint32_t request) {
  if (recorder.file().header.python == 0 || !has_python()) return;
  errand.request.store(request);
  if (errand.out.exchange(true)) return;
  errand.recorder = &recorder;
  const bool ready = write_dump_program(errand.program, sizeof errand.program, 0);
  if (ready && start_own_thread(run_errand)) return;
  errand.out.store(false);
}

}  // namespace accel
