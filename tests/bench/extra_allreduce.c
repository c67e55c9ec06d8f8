/* What people would do instead: compare signatures with one more small collective in front of each call. With
 * EXTRA_NONBLOCKING=1 it is started before the call and waited for at the next. */
#include <mpi.h>
#include <stdlib.h>

static MPI_Comm shadow = MPI_COMM_NULL;
static MPI_Request pending = MPI_REQUEST_NULL;
static long mine[2], all[2];
static int nonblocking;

int MPI_Init(int* argc, char*** argv) {
  const int result = PMPI_Init(argc, argv);
  nonblocking = getenv("EXTRA_NONBLOCKING") != NULL;
  PMPI_Comm_dup(MPI_COMM_WORLD, &shadow);
  return result;
}

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm communicator) {
  if (communicator == MPI_COMM_WORLD) {
    if (nonblocking) {
      PMPI_Wait(&pending, MPI_STATUS_IGNORE);
      mine[0] = count;
      mine[1] = -count;
      PMPI_Iallreduce(mine, all, 2, MPI_LONG, MPI_MAX, shadow, &pending);
    } else {
      mine[0] = count;
      mine[1] = -count;
      PMPI_Allreduce(mine, all, 2, MPI_LONG, MPI_MAX, shadow);
    }
    if (!nonblocking && all[0] != -all[1]) PMPI_Abort(MPI_COMM_WORLD, 1);
  }
  return PMPI_Allreduce(in, out, count, type, op, communicator);
}

int MPI_Finalize(void) {
  PMPI_Wait(&pending, MPI_STATUS_IGNORE);
  return PMPI_Finalize();
}
