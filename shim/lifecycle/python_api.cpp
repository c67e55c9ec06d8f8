#include "lifecycle/python_api.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

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
    need(api.version, "Py_GetVersion");
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

void run_python(const char* program, PythonFunction& function) {
  const PythonApi& python = python_api();
  constexpr int kFileInput = 257;  // Py_file_input
  void* const names = python.new_dict();
  python.set_item(names, "__builtins__", python.builtins());
  void* const native = python.new_function(&function, nullptr, nullptr);
  python.set_item(names, "native", native);
  python.drop(native);
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
