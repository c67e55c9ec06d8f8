// Every row of functions.def, as MPI_X and as PMPI_X: that sees all of C and, since the language bindings
// call one of the two, all of Fortran. Each forwards to its own successor.
#include "interpose/export.h"
#include "interpose/mpi/wrapper.h"

namespace accel {

std::atomic<Session*> session{nullptr};

}  // namespace accel

using namespace accel;
using namespace accel::role;

#define ACCEL_WRAPPER(prefix, name, flow, numbered, ...)                                              \
  ACCEL_EXPORT int prefix##name(ACCEL_PARAMETERS(__VA_ARGS__)) {                                      \
    static constinit Real real(#prefix #name);                                                        \
    return intercept<Function::name, Flow::flow, numbered>(                                           \
        real, __builtin_return_address(0), __builtin_frame_address(0), ACCEL_ARGUMENTS(__VA_ARGS__)); \
  }
#define MPI_COLLECTIVE(name, flow, ...)              \
  ACCEL_WRAPPER(MPI_, name, flow, true, __VA_ARGS__) \
  ACCEL_WRAPPER(PMPI_, name, flow, true, __VA_ARGS__)
#define MPI_UNNUMBERED(name, flow, ...)               \
  ACCEL_WRAPPER(MPI_, name, flow, false, __VA_ARGS__) \
  ACCEL_WRAPPER(PMPI_, name, flow, false, __VA_ARGS__)
#include "signature/functions.def"
