// What dlsym hands out: the wrappers by name. Names written by hand elsewhere are listed here once.
#include <cstring>

#include "interpose/loader/dlsym.h"

#define ACCEL_BY_HAND(X) X(Init) X(Init_thread) X(Finalize) X(Abort) X(Type_free) X(Comm_get_errhandler)

extern "C" {
// Only their addresses matter here.
#define DECLARE(name) \
  int MPI_##name();   \
  int PMPI_##name();
#define CUDA_MEMORY(symbol, ...) int symbol();
#define CUDA_WATCHED(symbol, ...) int symbol();
#define CUDA_WAIT(symbol, ...) int symbol();
#define CUDA_STREAM(symbol, ...) int symbol();
#define CUDA_LOOKUP(symbol, ...) int symbol();
#include "signature/driver.def"
#define NCCL_COLLECTIVE(name, ...) int nccl##name();
#define NCCL_PAIR(name, ...) int nccl##name();
#define NCCL_BY_HAND(name, ...) int nccl##name();
#define NCCL_WRAPPED(name) int nccl##name();
#define MPI_COLLECTIVE(name, ...) DECLARE(name)
#define MPI_UNNUMBERED(name, ...) DECLARE(name)
#include "signature/functions.def"
ACCEL_BY_HAND(DECLARE)
#undef DECLARE
}

namespace accel {

Wrapper find_wrapper(const char* name) {
  struct Entry {
    const char* name;
    int (*wrapper)();
    Library library;
  };
  static constexpr Entry kEntries[] = {
#define CUDA_ENTRY(symbol) {#symbol, symbol, Library::Cuda},
#define CUDA_MEMORY(symbol, ...) CUDA_ENTRY(symbol)
#define CUDA_WATCHED(symbol, ...) CUDA_ENTRY(symbol)
#define CUDA_WAIT(symbol, ...) CUDA_ENTRY(symbol)
#define CUDA_STREAM(symbol, ...) CUDA_ENTRY(symbol)
#define CUDA_LOOKUP(symbol, ...) CUDA_ENTRY(symbol)
#include "signature/driver.def"
#undef CUDA_ENTRY
#define NCCL_ENTRY(name) {"nccl" #name, nccl##name, Library::Nccl},
#define NCCL_COLLECTIVE(name, ...) NCCL_ENTRY(name)
#define NCCL_PAIR(name, ...) NCCL_ENTRY(name)
#define NCCL_BY_HAND(name, ...) NCCL_ENTRY(name)
#define NCCL_WRAPPED(name) NCCL_ENTRY(name)
#define ENTRY(name) {"MPI_" #name, MPI_##name, Library::Mpi}, {"PMPI_" #name, PMPI_##name, Library::Mpi},
#define MPI_COLLECTIVE(name, ...) ENTRY(name)
#define MPI_UNNUMBERED(name, ...) ENTRY(name)
#include "signature/functions.def"
      ACCEL_BY_HAND(ENTRY)
#undef ENTRY
#undef NCCL_ENTRY
  };
  // Some hundred exact comparisons, for names that begin as ours do only; no table to sort before main.
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, name) == 0) return {reinterpret_cast<void*>(entry.wrapper), entry.library};
  }
  return {};
}

}  // namespace accel
