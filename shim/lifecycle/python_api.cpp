#include "lifecycle/python_api.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "lifecycle/own_memory.h"

namespace accel {
namespace {

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

PythonApi find_api() {
  for (void* library : {RTLD_DEFAULT, library_of_python()}) {
    PythonApi api;
    bool all = true;
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    if (!take(api.is_finalizing, "Py_IsFinalizing"))
      take(api.is_finalizing, "_Py_IsFinalizing");  // until 3.12
    const auto need = [&](auto& function, const char* name) { all = take(function, name) && all; };
    need(api.is_initialized, "Py_IsInitialized");
    need(api.get_version, "Py_GetVersion");
    need(api.ensure, "PyGILState_Ensure");
    need(api.release, "PyGILState_Release");
    need(api.holds_gil, "PyGILState_Check");
    need(api.this_thread, "PyGILState_GetThisThreadState");
    need(api.new_dict, "PyDict_New");
    need(api.set_item, "PyDict_SetItemString");
    need(api.builtins, "PyEval_GetBuiltins");
    need(api.run, "PyRun_String");
    need(api.new_function, "PyCFunction_NewEx");
    need(api.long_from, "PyLong_FromLong");
    need(api.bytes_of, "PyBytes_AsStringAndSize");
    need(api.fetch_error, "PyErr_Fetch");
    need(api.restore_error, "PyErr_Restore");
    need(api.clear_error, "PyErr_Clear");
    need(api.drop, "Py_DecRef");
    if (all) return api;
  }
  return {};
}

}  // namespace

const PythonApi& python_api() {
  static const PythonApi found = find_api();
  return found;
}

bool has_python() {
  const PythonApi& python = python_api();
  return python.complete() && python.is_initialized() != 0 &&
         (python.is_finalizing == nullptr || python.is_finalizing() == 0);
}

namespace {

/// From 3.11 on Python functions call each other without C in between. Read past the API, from memory that
/// need not be what we take it for: what is not mapped is an error then, and no fault; and a wrong answer is
/// found out by whoever counts the native frames. Offsets: PyFrameObject's f_frame; _PyInterpreterFrame's
/// is_entry (3.11), previous and owner (3.12, 3.13), in CPython's headers.
void* is_entry(void*, void* frame) {
  const PythonApi& python = python_api();
  const int minor = python_minor();
  if (minor < 11 || minor > 13) return python.long_from(minor < 11 ? 1 : 0);
  std::uint64_t inner = 0;
  std::uint64_t previous = 0;
  std::uint8_t mark = 0;
  constexpr std::uint8_t kOwnedByC = 3;
  bool entry = load_own_memory(reinterpret_cast<std::uint64_t>(frame) + 24, inner);
  if (minor == 11) {
    entry = entry && load_own_memory(inner + 68, mark) && mark != 0;
  } else {
    entry = entry && load_own_memory(inner + 8, previous) && load_own_memory(previous + 70, mark) &&
            mark == kOwnedByC;
  }
  return python.long_from(entry ? 1 : 0);
}
PythonFunction entry_teller{"is_entry", is_entry};

}  // namespace

int python_minor() {
  const char* version = python_api().get_version();
  return std::strncmp(version, "3.", 2) == 0 ? std::atoi(version + 2) : -1;
}

void run_python(const char* program, PythonFunction& function) {
  const PythonApi& python = python_api();
  constexpr int kFileInput = 257;  // Py_file_input
  void* const names = python.new_dict();
  python.set_item(names, "__builtins__", python.builtins());
  for (PythonFunction* one : {&function, &entry_teller}) {
    void* const callable = python.new_function(one, nullptr, nullptr);
    python.set_item(names, one->name, callable);
    python.drop(callable);
  }
  void* const result = python.run(program, kFileInput, names, names);
  if (result == nullptr) python.clear_error();
  if (result != nullptr) python.drop(result);
  python.drop(names);
}

std::size_t copy_python_bytes(void* bytes, char* to, std::size_t capacity) {
  char* text = nullptr;
  std::ptrdiff_t length = 0;
  const PythonApi& python = python_api();
  if (python.bytes_of == nullptr || python.bytes_of(bytes, &text, &length) != 0) return 0;
  const std::size_t copied = std::min(static_cast<std::size_t>(length), capacity);
  std::memcpy(to, text, copied);
  return copied;
}

}  // namespace accel
