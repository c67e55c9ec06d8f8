// What differs between the MPI families in binary, chosen at run time: so one libaccel.so serves both and the
// shim never includes mpi.h. Source: mpi.h of Open MPI 4.1.4 and MPICH 4.0.2; a test compiles every number
// against both.
#pragma once
#include <cstdint>
#include <string>

#include "signature/call.h"

namespace accel {

struct Abi {
  enum class Family { OpenMpi, Mpich };

  Family family = Family::OpenMpi;
  std::size_t handle_bytes = 8;
  Handle comm_world = 0, comm_self = 0, comm_null = 0;
  Handle errors_are_fatal = 0, errors_return = 0;
  const void* in_place = nullptr;
  int proc_null = 0, any_source = 0, any_tag = -1;
  int undefined = -32766;
  int err_count = 2, err_type = 3, err_op = 0, err_root = 0, err_other = 0;
  int combiner_shift = 0;  ///< MPICH's combiner constants are Open MPI's plus this
  std::string library_version;

  /// Only the bits that mean something: in MPICH the upper half of the register can be garbage.
  Handle normalize(Handle handle) const { return handle_bytes == 4 ? handle & 0xffffffffu : handle; }
  Handle load(const void* memory) const {
    return handle_bytes == 4 ? *static_cast<const std::uint32_t*>(memory)
                             : *static_cast<const Handle*>(memory);
  }
  Handle element(const void* array, int index) const {
    return load(static_cast<const char*>(array) + static_cast<std::size_t>(index) * handle_bytes);
  }
};

/// MPI functions that we call ourselves, past all wrappers. Handles go as full registers: MPICH reads its
/// half. Output handles must be zero before the call.
#define ACCEL_MPI_FUNCTIONS(X)                                                  \
  X(Get_library_version, int(char*, int*))                                      \
  X(Comm_rank, int(Handle, int*))                                               \
  X(Comm_size, int(Handle, int*))                                               \
  X(Comm_test_inter, int(Handle, int*))                                         \
  X(Comm_group, int(Handle, Handle*))                                           \
  X(Comm_remote_group, int(Handle, Handle*))                                    \
  X(Group_size, int(Handle, int*))                                              \
  X(Group_translate_ranks, int(Handle, int, const int*, Handle, int*))          \
  X(Group_free, int(Handle*))                                                   \
  X(Comm_create_keyval, int(void*, void*, int*, void*))                         \
  X(Comm_set_attr, int(Handle, int, void*))                                     \
  X(Comm_create_errhandler, int(void (*)(void*, int*, ...), Handle*))           \
  X(Comm_get_errhandler, int(Handle, Handle*))                                  \
  X(Comm_set_errhandler, int(Handle, Handle))                                   \
  X(Comm_call_errhandler, int(Handle, int))                                     \
  X(Errhandler_free, int(Handle*))                                              \
  X(Error_class, int(int, int*))                                                \
  X(Error_string, int(int, char*, int*))                                        \
  X(Add_error_code, int(int, int*))                                             \
  X(Add_error_string, int(int, const char*))                                    \
  X(Type_get_envelope, int(Handle, int*, int*, int*, int*))                     \
  X(Type_get_contents, int(Handle, int, int, int, int*, std::intptr_t*, void*)) \
  X(Type_free, int(Handle*))                                                    \
  X(Op_commutative, int(Handle, int*))                                          \
  X(Iprobe, int(int, int, Handle, int*, void*))                                 \
  X(Query_thread, int(int*))

struct MpiFunctions {
#define X(name, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  ACCEL_MPI_FUNCTIONS(X)
#undef X
};

namespace detail {
extern Abi description;
extern MpiFunctions functions;
}  // namespace detail

/// The loaded MPI's description; nullptr if it is of no known family. Fixed after the first call that
/// succeeds.
const Abi* detect_abi();
inline const Abi& abi() { return detail::description; }
inline const MpiFunctions& mpi() { return detail::functions; }

/// Address of one of Open MPI's predefined objects, which are its handles: an executable may have its own
/// copy (copy relocation), so the global scope is asked before the library. 0 if there is none.
Handle openmpi_object(const char* symbol);

}  // namespace accel
