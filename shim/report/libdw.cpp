#include "report/libdw.h"

#include <dlfcn.h>

namespace accel {

Libdw::Libdw() {
  void* library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  loaded = true;
#define X(symbol)                                                          \
  symbol = reinterpret_cast<decltype(&::symbol)>(dlsym(library, #symbol)); \
  loaded = loaded && symbol != nullptr;
  ACCEL_LIBDW(X)
#undef X
}

const Libdw& Libdw::get() {
  static const Libdw libdw;
  return libdw;
}

}  // namespace accel
