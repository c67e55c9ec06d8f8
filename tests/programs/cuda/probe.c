/* What a program sees that looks for NCCL and CUDA on a machine that has neither. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

extern int cuInit(unsigned) __attribute__((weak));
extern int cuMemAlloc_v2(void*, unsigned long) __attribute__((weak));

int main(void) {
  int wrong = 0;
  static const char* const names[] = {"cuInit", "cuMemAlloc_v2", "cuGetProcAddress", "ncclAllReduce",
                                      "ncclCommSplit"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; ++i) {
    if (dlsym(RTLD_DEFAULT, names[i]) == NULL) continue;
    printf("%s is there\n", names[i]);
    ++wrong;
  }
  if (cuInit != NULL) ++wrong, puts("cuInit is there");
  void* memory;
  if (cuMemAlloc_v2 != NULL && cuMemAlloc_v2(&memory, 1) != 100) ++wrong, puts("memory without a device");
  if (dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_2.2.5") == NULL) ++wrong, puts("no malloc");
  puts(wrong == 0 ? "ok" : "wrong");
  return wrong;
}
