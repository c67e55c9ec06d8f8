/* Says "ok" when all ranks are there, then ranks 0 and 1 wait for messages that never come. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, data;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    puts("ok");
    fflush(stdout);
  }
  MPI_Recv(&data, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Finalize();
  return 0;
}
