#include "lifecycle/python.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "lifecycle/own_thread.h"

namespace accel {
namespace {

/// What we use of CPython's API; stable from 3.8 to 3.13 at least.
struct Api {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;  ///< may be missing
  int (*ensure)() = nullptr;
  void (*release)(int) = nullptr;
  void* (*new_dict)() = nullptr;
  int (*set_item)(void*, const char*, void*) = nullptr;
  void* (*builtins)() = nullptr;
  void* (*run)(const char*, int, void*, void*) = nullptr;
  void (*clear_error)() = nullptr;
  void (*drop)(void*) = nullptr;

  bool complete() const {
    return is_initialized != nullptr && ensure != nullptr && release != nullptr && new_dict != nullptr &&
           set_item != nullptr && builtins != nullptr && run != nullptr && clear_error != nullptr &&
           drop != nullptr;
  }
};

/// The interpreter is the executable, a library of it, or was opened by something that embeds it.
void* library_of_python() {
  void* found = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* result) {
        if (std::strstr(object->dlpi_name, "libpython3.") == nullptr) return 0;
        *static_cast<void**>(result) = dlopen(object->dlpi_name, RTLD_NOLOAD | RTLD_LAZY);
        return 1;
      },
      &found);
  return found;
}

Api find_api() {
  Api api;
  for (void* library : {RTLD_DEFAULT, library_of_python()}) {
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    };
    take(api.is_initialized, "Py_IsInitialized");
    take(api.is_finalizing, "Py_IsFinalizing");
    if (api.is_finalizing == nullptr) take(api.is_finalizing, "_Py_IsFinalizing");  // before 3.13
    take(api.ensure, "PyGILState_Ensure");
    take(api.release, "PyGILState_Release");
    take(api.new_dict, "PyDict_New");
    take(api.set_item, "PyDict_SetItemString");
    take(api.builtins, "PyEval_GetBuiltins");
    take(api.run, "PyRun_String");
    take(api.clear_error, "PyErr_Clear");
    take(api.drop, "Py_DecRef");
    if (api.complete()) break;
  }
  return api;
}

const Api& api() {
  static const Api found = find_api();
  return found;
}

/// Writes a line a thread, "T tid name", and a line a frame behind it, innermost first. Nothing of the
/// program's own namespaces is touched, and nothing is imported that it does not have but linecache, which
/// needs no more.
constexpr const char kProgram[] = R"(
def dump(descriptor, main, pid):
    import _thread, linecache, sys
    threads = {{main: (pid, "MainThread")}}
    threading = sys.modules.get("threading")
    if threading is not None:
        for ident, thread in list(threading._active.items()):
            threads[ident] = (getattr(thread, "native_id", 0) or 0, thread.name)
    tasks = sys.modules.get("asyncio.tasks")
    for loop, task in list(getattr(tasks, "_current_tasks", {{}}).items()):
        ident = getattr(loop, "_thread_id", None)
        tid, name = threads.get(ident, (0, ""))
        threads[ident] = (tid, "%s, task %s" % (name, task.get_name()))
    with open("/proc/self/fd/%d" % descriptor, "w", encoding="utf-8", errors="replace") as out:
        for ident, frame in sys._current_frames().items():
            if ident == _thread.get_ident():
                continue
            out.write("T\t%d\t%s\n" % threads.get(ident, (0, "")))
            depth = 0
            while frame is not None and depth < 60:
                code, line = frame.f_code, frame.f_lineno or 0
                source = linecache.getline(code.co_filename, line, frame.f_globals).strip()
                out.write("F\t%s\t%d\t%s\t%s\n" % (code.co_filename, line, code.co_name, source[:200]))
                frame, depth = frame.f_back, depth + 1
dump({}, {}, {})
)";

/// What Python calls the main thread; 0: not known.
std::atomic<unsigned long> main_ident{0};

/// The thread that waits for the GIL; at most one, which answers the latest request when it comes to it.
struct Errand {
  std::atomic<bool> out{false};  ///< the thread is there
  std::atomic<std::uint32_t> request{0};
  Recorder* recorder = nullptr;
  int text = -1;  ///< a file in memory; the dead errand's stays open: its process is ending
  char program[2048] = {};
};
Errand errand;
static_assert(sizeof kProgram < sizeof errand.program - 64);

/// An interpreter that ends meanwhile ends this thread, by pthread_exit from inside any of its functions: an
/// unwinding that must find nothing here to destroy (the unwinder is libgcc_s's, our landing pads would be a
/// static one's, and the two abort).
void* run_errand(void*) {
  const Api& python = api();
  // Right before, for an interpreter that is gone crashes those who want in; and it takes milliseconds to go.
  const bool lives =
      python.is_initialized() != 0 && (python.is_finalizing == nullptr || python.is_finalizing() == 0);
  if (!lives) return nullptr;
  const int state = python.ensure();
  const std::uint32_t request = errand.request.load();
  constexpr int kFileInput = 257;  // Py_file_input
  void* const names = python.new_dict();
  python.set_item(names, "__builtins__", python.builtins());
  void* const result = python.run(errand.program, kFileInput, names, names);
  if (result == nullptr) python.clear_error();
  if (result != nullptr) python.drop(result);
  python.drop(names);
  python.release(state);
  RecorderFile& file = errand.recorder->file();
  const ssize_t got = pread(errand.text, file.python, sizeof file.python, 0);
  close(errand.text);
  file.header.python_bytes = got > 0 ? static_cast<std::uint32_t>(got) : 0;
  __atomic_store_n(&file.header.python_request, request, __ATOMIC_RELEASE);
  errand.out.store(false);
  return nullptr;
}

}  // namespace

void note_main_thread() {
  if (syscall(SYS_gettid) == getpid()) main_ident.store(pthread_self());
}

bool has_python() { return api().complete() && api().is_initialized() != 0; }

void capture_python(Recorder& recorder, std::uint32_t request) {
  if (recorder.file().header.python == 0 || !has_python()) return;
  errand.request.store(request);
  if (errand.out.exchange(true)) return;
  errand.recorder = &recorder;
  errand.text = memfd_create("accel", MFD_CLOEXEC);
  *fmt::format_to_n(errand.program, sizeof errand.program - 1, kProgram, errand.text, main_ident.load(),
                    getpid())
       .out = '\0';
  if (errand.text >= 0 && start_own_thread(run_errand)) return;
  close(errand.text);
  errand.out.store(false);
}

}  // namespace accel
