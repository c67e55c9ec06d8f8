/* Data-parallel training reduced to its skeleton: each rank computes gradients, all sum them up. Rank 1 has
 * half as many samples in its last batch, and a bug: it reduces as many gradients as it has samples. Without
 * libaccel the job aborts on one rank, or goes on with wrong numbers on others.
 *
 *   accelrun mpirun -n 4 ./gradient_step
 */
#include <mpi.h>
#include <stdio.h>

enum { kSamples = 1024 };
static float gradients[kSamples], sum[kSamples];

static void all_reduce_gradients(int count) {
  MPI_Allreduce(gradients, sum, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void train_step(int rank, int step, int last_step) {
  const int samples = rank == 1 && step == last_step ? kSamples / 2 : kSamples;
  for (int i = 0; i < samples; ++i) gradients[i] = (float)(rank + i) * 0.5f;
  all_reduce_gradients(samples);
}

int main(int argc, char** argv) {
  int rank;
  const int steps = 41;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int step = 1; step <= steps; ++step) train_step(rank, step, steps);
  if (rank == 0) printf("trained\n");
  MPI_Finalize();
  return 0;
}
