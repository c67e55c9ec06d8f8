// hybrid [FAULT]: MPI brings the ranks together, NCCL moves the data, as in many trainers in C++.
#include <mpi.h>

#include "tests/programs/nccl/rank.h"

namespace {

constexpr std::size_t kCount = 512;

void train_step(ncclComm_t comm, float* gradients, std::size_t count, cudaStream_t stream) {
  NCCL(ncclAllReduce(gradients, gradients, count, ncclFloat32, ncclSum, comm, stream));
  CUDA(cudaStreamSynchronize(stream));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc > 1 ? argv[1] : "none";
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  CUDA(cudaSetDevice(rank));
  ncclUniqueId id;
  if (rank == 0) NCCL(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclComm_t comm;
  NCCL(ncclCommInitRank(&comm, size, id, rank));
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  float* gradients = device_floats(kCount);
  for (int step = 0; step < 5; ++step) {
    train_step(comm, gradients, fault == "count" && rank == 1 && step == 3 ? kCount / 2 : kCount, stream);
    double loss = step;
    if (fault == "barrier" && rank == 1 && step == 3) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }
  // Rank 1 waits in MPI for rank 0, whose stream waits for rank 1.
  if (fault == "both" && rank == 1) MPI_Barrier(MPI_COMM_WORLD);
  if (fault == "both") train_step(comm, gradients, kCount, stream);
  NCCL(ncclCommDestroy(comm));
  MPI_Finalize();
  if (rank == 0) std::puts("ok");
  return 0;
}
