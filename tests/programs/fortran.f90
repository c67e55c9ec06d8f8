! Rank 1 reduces half of what the others do; through mpi_f08. An argument: everybody the same.
program gradients
  use mpi_f08
  implicit none
  integer :: rank, count
  double precision :: local(1024), total(1024)
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  local = rank
  count = 1024
  if (rank == 1 .and. command_argument_count() == 0) count = 512
  call reduce_gradients(count)
  call MPI_Finalize()
contains
  subroutine reduce_gradients(n)
    integer, intent(in) :: n
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPI_Allreduce(local, total, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  end subroutine
end program
