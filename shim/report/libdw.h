// elfutils' libdw by dlopen: a NEEDED entry of ours that a machine lacks would keep the user's job from
// starting.
#pragma once
#include <elfutils/libdwfl.h>

namespace accel {

struct Libdw {
// clang-format off
#define ACCEL_LIBDW(X)                                                                                 \
  X(dwfl_begin) X(dwfl_end) X(dwfl_report_begin) X(dwfl_report_elf) X(dwfl_report_end)                 \
  X(dwfl_module_addrinfo) X(dwfl_module_getsrc) X(dwfl_lineinfo) X(dwfl_module_addrdie)                \
  X(dwfl_module_getelf) X(dwfl_addrmodule) X(dwfl_module_addrname) X(dwfl_module_build_id)                                                        \
  X(dwarf_getscopes) X(dwarf_getscopes_die) X(dwarf_tag) X(dwarf_diename) X(dwarf_attr_integrate)      \
  X(dwarf_formstring) X(dwarf_formudata) X(dwarf_attr) X(dwarf_getsrcfiles) X(dwarf_filesrc)           \
  X(dwarf_diecu) X(dwfl_build_id_find_elf) X(dwfl_build_id_find_debuginfo)                             \
  X(dwfl_standard_find_debuginfo) X(dwfl_linux_proc_maps_report) X(dwfl_linux_proc_find_elf)           \
  X(dwfl_attach_state) X(dwfl_getthread_frames) X(dwfl_frame_pc) X(dwfl_thread_state_registers)        \
  X(dwfl_thread_state_register_pc)
// clang-format on
#define X(name) decltype(&::name) name = nullptr;
  ACCEL_LIBDW(X)
#undef X
  bool loaded = false;

  static const Libdw& get();

 private:
  Libdw();
};

}  // namespace accel
