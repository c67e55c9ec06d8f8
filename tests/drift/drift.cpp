// Compiled, never run: holds the table and the ABI descriptions against a real mpi.h. Once for each MPI.
#include <mpi.h>

#include <type_traits>

#include "signature/datatype.h"
#include "signature/function.h"

using namespace accel;

namespace {

template <class Function>
struct Prototype;
template <class Result, class... Arguments>
struct Prototype<Result(Arguments...)> {
  /// Same number of arguments, and each role as wide as the argument; MPICH's handles fill half of theirs.
  template <class... Roles>
  static constexpr bool fits() {
    if constexpr (sizeof...(Arguments) != sizeof...(Roles)) {
      return false;
    } else {
      return ((sizeof(Arguments) == sizeof(Roles) || (sizeof(Arguments) == 4 && sizeof(Roles) == 8)) && ...);
    }
  }
};

using namespace accel::role;
#define MPI_COLLECTIVE(name, flow, ...)                                               \
  static_assert(Prototype<decltype(::MPI_##name)>::fits<__VA_ARGS__>(), "MPI_" #name  \
                                                                        " has other " \
                                                                        "arguments");
#define MPI_UNNUMBERED(name, flow, ...)                                               \
  static_assert(Prototype<decltype(::MPI_##name)>::fits<__VA_ARGS__>(), "MPI_" #name  \
                                                                        " has other " \
                                                                        "arguments");
#include "signature/functions.def"

#ifdef OPEN_MPI

// The objects must exist and be what the macros point to: a wrong name does not compile.
[[maybe_unused]] bool same_objects() {
  bool same = true;
#define MPI_DATATYPE(name, symbol, constant, ...) \
  same = same && MPI_##name == reinterpret_cast<MPI_Datatype>(&symbol);
#define MPI_REDUCE_OP(name, symbol, constant, text) \
  same = same && MPI_##name == reinterpret_cast<MPI_Op>(&symbol);
#include "signature/predefined.def"
  return same;
}
static_assert(sizeof(MPI_Comm) == 8 && MPI_PROC_NULL == -2 && MPI_ANY_SOURCE == -1 &&
              MPI_UNDEFINED == -32766);
static_assert(MPI_ERR_COUNT == 2 && MPI_ERR_TYPE == 3 && MPI_ERR_ROOT == 8 && MPI_ERR_OP == 10 &&
              MPI_ERR_OTHER == 16);
static_assert(MPI_COMBINER_NAMED == 0 && MPI_COMBINER_CONTIGUOUS == 2 && MPI_COMBINER_STRUCT == 11 &&
              MPI_COMBINER_SUBARRAY == 12 && MPI_COMBINER_RESIZED == 17 && MPI_COMBINER_HINDEXED_BLOCK == 18);

#else

#define MPI_DATATYPE(name, symbol, constant, ...) \
  static_assert(MPI_##name == static_cast<int>(constant), "MPI_" #name);
#define MPI_REDUCE_OP(name, symbol, constant, text) \
  static_assert(MPI_##name == static_cast<int>(constant), "MPI_" #name);
#include "signature/predefined.def"
static_assert(sizeof(MPI_Comm) == 4 && MPI_COMM_WORLD == 0x44000000 && MPI_COMM_SELF == 0x44000001 &&
              MPI_COMM_NULL == 0x04000000);
static_assert(MPI_ERRORS_ARE_FATAL == 0x54000000 && MPI_ERRORS_RETURN == 0x54000001);
static_assert(MPI_PROC_NULL == -1 && MPI_ANY_SOURCE == -2 && MPI_UNDEFINED == -32766);
static_assert(MPI_ERR_COUNT == 2 && MPI_ERR_TYPE == 3 && MPI_ERR_ROOT == 7 && MPI_ERR_OP == 9 &&
              MPI_ERR_OTHER == 15);
static_assert(MPI_COMBINER_NAMED == 1 && MPI_COMBINER_CONTIGUOUS == 3 && MPI_COMBINER_STRUCT == 12 &&
              MPI_COMBINER_SUBARRAY == 13 && MPI_COMBINER_RESIZED == 18 && MPI_COMBINER_HINDEXED_BLOCK == 19);

#endif

static_assert(MPI_THREAD_MULTIPLE == 3 && MPI_THREAD_SERIALIZED == 2);

}  // namespace
