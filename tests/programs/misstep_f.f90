! misstep_f KIND: as misstep.cpp.
module training
  use mpi
  implicit none
contains
  subroutine reduce_gradients(gradients, count)
    double precision, intent(in) :: gradients(8)
    integer, intent(in) :: count
    double precision :: total(8)
    integer :: error
    call MPI_Allreduce(gradients, total, count, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  end subroutine

  subroutine save_checkpoint()
    call sleep(100)
  end subroutine

  subroutine train_step(kind, rank)
    character(len=*), intent(in) :: kind
    integer, intent(in) :: rank
    double precision :: gradients(8)
    gradients = 1
    if (rank == 1 .and. kind == 'leaves') then
      call sleep(1)
      call exit(3)
    end if
    if (rank == 1 .and. kind == 'late') call save_checkpoint()
    call reduce_gradients(gradients, merge(2, 4, rank == 1 .and. kind == 'count'))
  end subroutine
end module

program misstep
  use training
  implicit none
  character(len=16) :: kind
  integer :: rank, error
  call get_command_argument(1, kind)
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call train_step(trim(kind), rank)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_Finalize(error)
end program
