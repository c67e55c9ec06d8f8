// What dlsym hands out: the wrappers by name. Names written by hand elsewhere are listed here once.
#include <cstring>

#include "interpose/loader/dlsym.h"

#define ACCEL_BY_HAND(X) X(Init) X(Init_thread) X(Finalize) X(Abort) X(Type_free) X(Comm_get_errhandler)

extern "C" {
// Only their addresses matter here.
#define DECLARE(name) \
  int MPI_##name();   \
  int PMPI_##name();
#define MPI_COLLECTIVE(name, ...) DECLARE(name)
#define MPI_UNNUMBERED(name, ...) DECLARE(name)
#include "signature/functions.def"
ACCEL_BY_HAND(DECLARE)
#undef DECLARE
}

namespace accel {

void* find_wrapper(const char* name) {
  struct Entry {
    const char* name;
    int (*wrapper)();
  };
  static constexpr Entry kEntries[] = {
#define ENTRY(name) {"MPI_" #name, MPI_##name}, {"PMPI_" #name, PMPI_##name},
#define MPI_COLLECTIVE(name, ...) ENTRY(name)
#define MPI_UNNUMBERED(name, ...) ENTRY(name)
#include "signature/functions.def"
      ACCEL_BY_HAND(ENTRY)
#undef ENTRY
  };
  // A hundred exact comparisons, for names that begin with MP or PM only; no table to sort before main.
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, name) == 0) return reinterpret_cast<void*>(entry.wrapper);
  }
  return nullptr;
}

}  // namespace accel
