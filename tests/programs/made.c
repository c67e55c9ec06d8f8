// made [bare]: rank 1 stands still in a function that machine code made at run time has called, as a compiler
// just in time would; nobody can know how to unwind it. Without the word it keeps a frame pointer.
#include <mpi.h>
#include <string.h>
#include <sys/mman.h>

static int rank;

static void stand_still(void) {
  if (rank == 1) {
    for (;;) {}
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#if defined(__x86_64__)
  // push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret  -  sub $24,%rsp; call *%rdi; add $24,%rsp; ret
  const unsigned char framed[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
  const unsigned char bare[] = {0x48, 0x83, 0xec, 0x18, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x18, 0xc3};
#else
#error "not written for this machine"
#endif
  unsigned char* code =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED) return 2;
  if (argc > 1)
    memcpy(code, bare, sizeof bare);
  else
    memcpy(code, framed, sizeof framed);
  ((void (*)(void (*)(void)))code)(stand_still);
  MPI_Finalize();
  return 0;
}
