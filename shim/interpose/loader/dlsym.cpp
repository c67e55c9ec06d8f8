// Runs anywhere: before our constructor, under the loader's lock, in signal handlers. No allocation, no
// locks.
//
// dlsym(handle, "MPI_Allreduce") of a program that loads MPI itself (MPI.jl calls that way) must lead to the
// wrapper. For every other name dlsym must be as if we were not there: the stub jumps to the real one, so
// that RTLD_NEXT still sees the original caller. RTLD_DEFAULT and RTLD_NEXT need no help: they follow the
// loader's own order, in which a preloaded library comes first.
#include "interpose/loader/dlsym.h"

#include <dlfcn.h>

#include "interpose/export.h"
#include "interpose/real.h"
#include "record/call_sites.h"

extern "C" __attribute__((visibility("hidden"), used)) void* accel_dlsym_filter(void* handle,
                                                                                const char* name,
                                                                                const void* caller) {
  using namespace accel;
  const bool maybe_ours =
      name != nullptr && ((name[0] == 'M' && name[1] == 'P') || (name[0] == 'P' && name[1] == 'M'));
  find_real_dlsym();  // the stub jumps there whenever this returns nullptr
  if (!maybe_ours || handle == RTLD_DEFAULT || handle == RTLD_NEXT) return nullptr;
  void* wrapper = find_wrapper(name);
  if (wrapper == nullptr || lies_in_mpi_library(caller)) return nullptr;
  // The handle must really offer it: programs probe with dlsym what a library can do.
  void* own = real_dlsym(handle, name);
  return own != nullptr && lies_in_mpi_library(own) ? wrapper : nullptr;
}

#if defined(__x86_64__)
asm(R"(
  .text
  .globl dlsym
  .type dlsym, @function
  .balign 16
dlsym:
  .cfi_startproc
  endbr64
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  mov 24(%rsp), %rdx
  call accel_dlsym_filter
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  test %rax, %rax
  jz 1f
  ret
1:
  jmp *accel_real_dlsym(%rip)
  .cfi_endproc
  .size dlsym, .-dlsym
)");
#elif defined(__aarch64__)
asm(R"(
  .text
  .globl dlsym
  .type dlsym, %function
  .balign 16
dlsym:
  .cfi_startproc
  stp x29, x30, [sp, #-32]!
  .cfi_adjust_cfa_offset 32
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  stp x0, x1, [sp, #16]
  mov x2, x30
  bl accel_dlsym_filter
  mov x9, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_adjust_cfa_offset -32
  .cfi_restore x29
  .cfi_restore x30
  cbz x9, 1f
  mov x0, x9
  ret
1:
  adrp x9, accel_real_dlsym
  ldr x9, [x9, :lo12:accel_real_dlsym]
  br x9
  .cfi_endproc
  .size dlsym, .-dlsym
)");
#endif
