/* steps N [WORDS]: N times MPI_Allreduce on MPI_COMM_WORLD.
 *   self        on MPI_COMM_SELF instead, so that no rank waits for another
 *   stagger=US  rank r comes r * US microseconds late to the first
 *   slow=R:US   rank R comes US microseconds late to each
 *   kill=R:I    rank R kills itself before the I-th */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int rank, stagger = 0, slow = -1, slow_us = 0, killed = -1, killed_at = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int steps = argc > 1 ? atoi(argv[1]) : 1;
  MPI_Comm communicator = MPI_COMM_WORLD;
  for (int i = 2; i < argc; ++i) {
    if (strcmp(argv[i], "self") == 0) communicator = MPI_COMM_SELF;
    sscanf(argv[i], "stagger=%d", &stagger);
    sscanf(argv[i], "slow=%d:%d", &slow, &slow_us);
    sscanf(argv[i], "kill=%d:%d", &killed, &killed_at);
  }
  usleep((useconds_t)(rank * stagger));
  for (int i = 0; i < steps; ++i) {
    double in = 1, out;
    if (rank == slow) usleep((useconds_t)slow_us);
    if (rank == killed && i == killed_at) raise(SIGKILL);
    MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, communicator);
  }
  MPI_Finalize();
  return 0;
}
