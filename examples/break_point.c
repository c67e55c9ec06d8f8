// A solver that speaks to libaccel: rank 1 finds out that it has converged, and all ranks stop at the same step,
// without a collective for it.
//
//   mpicc -I$PREFIX/include break_point.c -o break_point
//   accelrun --log-level INFO mpirun -n 4 ./break_point
#include <accel/accel.h>
#include <mpi.h>
#include <stdio.h>

static double residual_of(int rank, int step) { return rank == 1 && step >= 3 ? 1e-9 : 1.0 / (step + 1); }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  accel_log(ACCEL_INFO, ACCEL_IN_ORDER, "batch size %ld", accel_batch_size(32));
  int step = 0;
  for (; step < 200; ++step) {
    accel_region_begin("step");
    double residual = residual_of(rank, step), worst = 0;
    MPI_Allreduce(&residual, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    accel_region_end("step");
    if (residual < 1e-6) accel_set_breakpoint();
    if (accel_check_breakpoint()) break;
  }
  int first = 0, last = 0;
  MPI_Allreduce(&step, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&step, &last, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  accel_log(ACCEL_WARNING, ACCEL_MAIN_PROCESS_ONLY, "all ranks have stopped");
  if (rank == 0) printf("stopped early: %s, together: %s\n", last < 200 ? "yes" : "no", first == last ? "yes" : "no");
  MPI_Finalize();
  return 0;
}
