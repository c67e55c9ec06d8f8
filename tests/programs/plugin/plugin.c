/* MPI reached through a plugin: the program itself is not linked with it. */
#include <mpi.h>

int plugin_main(int count_of_rank_1) {
  int rank;
  double in[8] = {0}, out[8];
  MPI_Init(0, 0);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(in, out, rank == 1 ? count_of_rank_1 : 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
