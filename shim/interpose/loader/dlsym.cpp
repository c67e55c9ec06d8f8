// Runs anywhere: before our constructor, under the loader's lock, in signal handlers. No allocation, no
// locks.
//
// dlsym(handle, "MPI_Allreduce") of a program that loads MPI itself (MPI.jl calls that way) must lead to the
// wrapper. For every other name dlsym must be as if we were not there: the stub jumps to the real one, so
// that RTLD_NEXT still sees the original caller. RTLD_DEFAULT and RTLD_NEXT need no help: they follow the
// loader's own order, in which a preloaded library comes first.
#include "interpose/loader/dlsym.h"

#include <dlfcn.h>
#include <link.h>

#include "interpose/export.h"
#include "interpose/real.h"
#include "record/call_sites.h"

namespace {

/// What the stubs do: jump to the real function, or return this.
constexpr std::uintptr_t kJump = 0;
constexpr std::uintptr_t kNothing = 1;  ///< nullptr

bool maybe_ours(const char* name) {
  switch (name[0]) {
    case 'M':
      return name[1] == 'P';
    case 'P':
      return name[1] == 'M';
    case 'c':
      return name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
    case 'n':
      return name[1] == 'c' && name[2] == 'c';
    default:
      return false;
  }
}

/// Whether an object other than ours defines the name.
bool defined_elsewhere(const char* name) {
  struct Search {
    const char* name;
    const void* us;
    bool found;
  } search{name, nullptr, false};
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&maybe_ours), &info) != 0) search.us = info.dli_fbase;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* result) {
        auto& wanted = *static_cast<Search*>(result);
        const bool ours = reinterpret_cast<const void*>(object->dlpi_addr) == wanted.us;
        wanted.found = !ours && accel::defines(*object, wanted.name);
        return wanted.found ? 1 : 0;
      },
      &search);
  return search.found;
}

/// Whether that function, which a handle has led to, is the library's own and not that of a tool which stands
/// in front of it too.
bool offers(const void* function, accel::Library library) {
  return library == accel::Library::Nccl || accel::library_at(function) == library;
}

}  // namespace

extern "C" __attribute__((visibility("hidden"), used)) std::uintptr_t accel_dlsym_filter(void* handle,
                                                                                         const char* name,
                                                                                         const void* caller) {
  using namespace accel;
  find_real_dlsym();  // the stubs jump there
  if (name == nullptr || !maybe_ours(name)) return kJump;
  const Wrapper wrapper = find_wrapper(name);
  if (wrapper.function == nullptr || library_at(caller) == wrapper.library) return kJump;
  if (handle == RTLD_NEXT) return kJump;
  if (handle == RTLD_DEFAULT) {
    // The loader's own order, in which we come first; but what nobody else has must not come into being:
    // programs probe so.
    return defined_elsewhere(name) ? kJump : kNothing;
  }
  // The handle must really offer it.
  void* own = real_dlsym(handle, name);
  return own != nullptr && own != wrapper.function && offers(own, wrapper.library)
             ? reinterpret_cast<std::uintptr_t>(wrapper.function)
             : kJump;
}

// Each stub asks the filter with the caller's return address, and then returns what it says or jumps to the
// real function with the caller's own arguments and return address: so RTLD_NEXT still means the caller's
// next.
#if defined(__x86_64__)
asm(R"(
  .text
  .macro ACCEL_STUB name
  .globl \name
  .type \name, @function
  .balign 16
\name:
  .cfi_startproc
  endbr64
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  push %rdx
  .cfi_adjust_cfa_offset 8
  mov 24(%rsp), %rdx
  call accel_dlsym_filter
  pop %rdx
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  cmp $1, %rax
  jb 1f
  jne 2f
  xor %eax, %eax
2:
  ret
1:
  jmp *accel_real_\name(%rip)
  .cfi_endproc
  .size \name, .-\name
  .endm
  ACCEL_STUB dlsym
  ACCEL_STUB dlvsym
)");
#elif defined(__aarch64__)
asm(R"(
  .text
  .macro ACCEL_STUB name
  .globl \name
  .type \name, %function
  .balign 16
\name:
  .cfi_startproc
  stp x29, x30, [sp, #-48]!
  .cfi_adjust_cfa_offset 48
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  stp x0, x1, [sp, #16]
  str x2, [sp, #32]
  mov x2, x30
  bl accel_dlsym_filter
  mov x9, x0
  ldp x0, x1, [sp, #16]
  ldr x2, [sp, #32]
  ldp x29, x30, [sp], #48
  .cfi_adjust_cfa_offset -48
  .cfi_restore x29
  .cfi_restore x30
  cbz x9, 1f
  cmp x9, #1
  csel x0, xzr, x9, eq
  ret
1:
  adrp x9, accel_real_\name
  ldr x9, [x9, :lo12:accel_real_\name]
  br x9
  .cfi_endproc
  .size \name, .-\name
  .endm
  ACCEL_STUB dlsym
  ACCEL_STUB dlvsym
)");
#endif
