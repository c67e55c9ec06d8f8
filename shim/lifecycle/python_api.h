// What we use of CPython's public C API; stable from 3.8 to 3.13 at least.
#pragma once
#include <cstddef>

namespace accel {

struct PythonApi {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;  ///< may be missing
  const char* (*get_version)() = nullptr;
  int (*ensure)() = nullptr;
  void (*release)(int) = nullptr;
  int (*holds_gil)() = nullptr;
  void* (*this_thread)() = nullptr;  ///< PyThreadState; null: the thread has none. Needs no GIL.
  void* (*new_dict)() = nullptr;
  int (*set_item)(void*, const char*, void*) = nullptr;
  void* (*builtins)() = nullptr;
  void* (*run)(const char*, int, void*, void*) = nullptr;
  void* (*new_function)(void*, void*, void*) = nullptr;
  void* (*long_from)(long) = nullptr;
  int (*bytes_of)(void*, char**, std::ptrdiff_t*) = nullptr;
  void (*fetch_error)(void**, void**, void**) = nullptr;
  void (*restore_error)(void*, void*, void*) = nullptr;
  void (*clear_error)() = nullptr;
  void (*drop)(void*) = nullptr;

  bool complete() const { return is_initialized != nullptr && drop != nullptr; }
};

/// Looked up once: in the executable, in a library of it, or in one that something opened that embeds it.
const PythonApi& python_api();

/// Whether this process has a live interpreter. Right before its use: one that is gone crashes those who want
/// in, and it takes milliseconds to go.
bool has_python();

/// A PyMethodDef of METH_O: a function of one argument. Must live as long as the process.
struct PythonFunction {
  const char* name;
  void* (*call)(void* self, void* argument);
  int flags = 8;
  const char* doc = nullptr;
};

/// The N of Python 3.N; -1: another one.
int python_minor();

/// Runs a program in names of its own, of which `native` is the function, and `is_entry(frame)` tells whether
/// C has called a frame (1) or Python, or that it is not known (0). Nothing of the application's is touched.
/// With the GIL only. Leaves nothing to destroy: an interpreter that ends meanwhile ends a thread that is not
/// its own by pthread_exit, from inside any of its functions, and the unwinder that does it is libgcc_s's: it
/// aborts at a landing pad of a static one's.
void run_python(const char* program, PythonFunction& function);

/// Of a bytes object, at most `capacity`; how many.
std::size_t copy_python_bytes(void* bytes, char* to, std::size_t capacity);

}  // namespace accel
