/* toolkit: opens NVIDIA's own cuBLAS and NCCL and asks each for a first thing. On a driver that is none of
 * NVIDIA's both refuse, but not before they have looked up what they would call. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  int (*create)(void**) = NULL;
  int (*version)(int*) = NULL;
  int (*id)(void*) = NULL;
  void* cublas = dlopen("libcublas.so.13", RTLD_NOW | RTLD_LOCAL);
  void* nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (cublas != NULL) *(void**)&create = dlsym(cublas, "cublasCreate_v2");
  if (nccl != NULL) *(void**)&version = dlsym(nccl, "ncclGetVersion");
  if (nccl != NULL) *(void**)&id = dlsym(nccl, "ncclGetUniqueId");
  if (create == NULL || version == NULL || id == NULL) {
    printf("missing: %s\n", dlerror());
    return 2;
  }
  void* handle = NULL;
  int number = 0;
  char unique[128];
  const int made = create(&handle);
  version(&number);
  struct Id {
    char bytes[128];
  } copy;
  const int got = id(unique);
  memcpy(copy.bytes, unique, sizeof copy.bytes);
  int (*init)(void**, int, struct Id, int) = NULL;
  *(void**)&init = dlsym(nccl, "ncclCommInitRank");
  void* comm = NULL;
  const int ended = init(&comm, 1, copy, 0);
  printf("cublasCreate %d, NCCL %d, id %d, ncclCommInitRank %d\n", made, number, got, ended);
  return 0;
}
