/* Nanoseconds a call of MPI_Allreduce: on MPI_COMM_SELF (where a tool's own work stands out), 8 bytes and 64
 * KiB on all ranks. One line of "self small large resident_kib", each the median of batches on rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kBatches = 15, kLarge = 8192 };
static double in[kLarge], out[kLarge];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double measure(MPI_Comm communicator, int count, int calls) {
  double batches[kBatches];
  for (int batch = 0; batch < kBatches; ++batch) {
    MPI_Barrier(communicator);
    const double begin = now();
    for (int i = 0; i < calls; ++i) MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, communicator);
    batches[batch] = (now() - begin) / calls;
  }
  qsort(batches, kBatches, sizeof *batches, ascending);
  return batches[kBatches / 2];
}

static long resident_kib(void) {
  char line[256];
  long kib = 0;
  FILE* status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof line, status) != NULL) {
    if (sscanf(line, "VmRSS: %ld", &kib) == 1) break;
  }
  if (status != NULL) fclose(status);
  return kib;
}

int main(int argc, char** argv) {
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int scale = argc > 1 ? atoi(argv[1]) : 10;
  const double self = measure(MPI_COMM_SELF, 1, 4000 * scale);
  const double small = measure(MPI_COMM_WORLD, 1, 2000 * scale);
  const double large = measure(MPI_COMM_WORLD, kLarge, 40 * scale);
  if (rank == 0) printf("%.1f %.1f %.1f %ld\n", self, small, large, resident_kib());
  MPI_Finalize();
  return 0;
}
