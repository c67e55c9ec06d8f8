// _exit and _Exit: a rank that leaves this way runs no exit handler. (exit() is seen by the handler in
// lifecycle/process.cpp; libc's own calls do not come through here.)
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "interpose/export.h"
#include "lifecycle/process.h"

ACCEL_EXPORT __attribute__((noreturn)) void _exit(int status) {
  accel::Process::self().leave(status);
  syscall(SYS_exit_group, status);
  __builtin_unreachable();
}

ACCEL_EXPORT __attribute__((noreturn)) void _Exit(int status) { _exit(status); }
