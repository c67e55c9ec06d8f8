#include "interpose/mpi/abi.h"

#include <dlfcn.h>

#include <mutex>
#include <vector>

#include "interpose/real.h"

namespace accel {

namespace detail {
Abi description;
MpiFunctions functions;
}  // namespace detail

namespace {

using detail::description;
using detail::functions;

bool resolve(MpiFunctions& table) {
  void* library = mpi_library();
  if (library == nullptr) return false;
  bool all = true;
#define X(name, ...)                                                                       \
  table.name = reinterpret_cast<decltype(table.name)>(real_dlsym(library, "PMPI_" #name)); \
  all = all && table.name != nullptr;
  ACCEL_MPI_FUNCTIONS(X)
#undef X
  return all;
}

void describe_openmpi(Abi& abi) {
  abi.family = Abi::Family::OpenMpi;
  abi.handle_bytes = 8;
  abi.comm_world = openmpi_object("ompi_mpi_comm_world");
  abi.comm_self = openmpi_object("ompi_mpi_comm_self");
  abi.comm_null = openmpi_object("ompi_mpi_comm_null");
  abi.errors_are_fatal = openmpi_object("ompi_mpi_errors_are_fatal");
  abi.errors_return = openmpi_object("ompi_mpi_errors_return");
  abi.in_place = reinterpret_cast<const void*>(1);
  abi.proc_null = -2;
  abi.any_source = -1;
  abi.err_root = 8;
  abi.err_op = 10;
  abi.err_other = 16;
  abi.combiner_shift = 0;
}

void describe_mpich(Abi& abi) {
  abi.family = Abi::Family::Mpich;
  abi.handle_bytes = 4;
  abi.comm_world = 0x44000000;
  abi.comm_self = 0x44000001;
  abi.comm_null = 0x04000000;
  abi.errors_are_fatal = 0x54000000;
  abi.errors_return = 0x54000001;
  abi.in_place = reinterpret_cast<const void*>(-1);
  abi.proc_null = -1;
  abi.any_source = -2;
  abi.err_root = 7;
  abi.err_op = 9;
  abi.err_other = 15;
  abi.combiner_shift = 1;
}

bool detect() {
  if (!resolve(functions)) return false;
  // Intel's buffer is the largest known.
  std::vector<char> text(16384, '\0');
  int length = 0;
  functions.Get_library_version(text.data(), &length);
  description.library_version = text.data();
  description.library_version =
      description.library_version.substr(0, description.library_version.find_first_of(",\n"));
  const auto is = [&](const char* name) { return std::string(text.data()).find(name) != std::string::npos; };
  if (openmpi_object("ompi_mpi_comm_world") != 0) {
    describe_openmpi(description);
    return true;
  }
  // The members of MPICH's ABI compatibility initiative.
  if (is("MPICH") || is("Intel") || is("MVAPICH") || is("CRAY")) {
    describe_mpich(description);
    return true;
  }
  return false;
}

}  // namespace

Handle openmpi_object(const char* symbol) {
  if (void* copy = real_dlsym(RTLD_DEFAULT, symbol)) return reinterpret_cast<Handle>(copy);
  void* library = mpi_library();
  return library != nullptr ? reinterpret_cast<Handle>(real_dlsym(library, symbol)) : 0;
}

const Abi* detect_abi() {
  static std::once_flag once;
  static bool known = false;
  std::call_once(once, [] { known = detect(); });
  return known ? &description : nullptr;
}

}  // namespace accel
