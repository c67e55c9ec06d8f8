/* Not linked with MPI. COUNT: what rank 1 gives to MPI_Allreduce where the others give 4.
 *
 * loader plugin PLUGIN.so COUNT
 *     opens a plugin RTLD_LOCAL that is linked with it (as Python does with mpi4py)
 *
 * loader deepbind PLUGIN.so COUNT
 *     the same with RTLD_DEEPBIND: what is preloaded comes after its own dependencies
 *
 * loader dlsym LIBMPI COUNT
 *     asks the library for its functions (as MPI.jl does) */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void* ask(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "%s: %s\n", name, dlerror());
    exit(1);
  }
  return symbol;
}

/* Handles by what each MPI makes of them: see mpi.h. */
static uintptr_t handle(void* library, const char* object, uintptr_t constant) {
  void* symbol = dlsym(library, object);
  return symbol != NULL ? (uintptr_t)symbol : constant;
}

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  const int count = atoi(argv[3]);
  const int deep = strcmp(argv[1], "deepbind") == 0 ? RTLD_DEEPBIND : 0;
  void* library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | deep);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  if (deep || strcmp(argv[1], "plugin") == 0) {
    int (*plugin_main)(int);
    *(void**)&plugin_main = ask(library, "plugin_main");
    return plugin_main(count);
  }
  if (dlsym(library, "MPI_No_such_function") != NULL) return 2;
  int (*init)(int*, char***), (*finalize)(void), (*comm_rank)(uintptr_t, int*);
  int (*allreduce)(const void*, void*, int, uintptr_t, uintptr_t, uintptr_t);
  *(void**)&init = ask(library, "MPI_Init");
  *(void**)&finalize = ask(library, "MPI_Finalize");
  *(void**)&comm_rank = ask(library, "MPI_Comm_rank");
  *(void**)&allreduce = ask(library, "MPI_Allreduce");
  const uintptr_t world = handle(library, "ompi_mpi_comm_world", 0x44000000);
  int rank = 0;
  double in[8] = {0}, out[8];
  init(NULL, NULL);
  comm_rank(world, &rank);
  allreduce(in, out, rank == 1 ? count : 4, handle(library, "ompi_mpi_double", 0x4c00080b),
            handle(library, "ompi_mpi_op_sum", 0x58000003), world);
  finalize();
  return 0;
}
