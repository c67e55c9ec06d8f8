! The same as break_point.c in Fortran.
!
!   mpif90 $PREFIX/include/accel/accel.f90 break_point.f90 -o break_point
program break_point
  use mpi
  use accel
  implicit none
  integer :: rank, step, first, last, error
  double precision :: residual, worst
  character(len=32) :: text

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  write (text, '(a, i0)') "batch size ", accel_batch_size(32)
  call accel_log(ACCEL_INFO, ACCEL_IN_ORDER, text)
  do step = 0, 199
    call accel_region_begin("step")
    residual = 1d0 / (step + 1)
    if (rank == 1 .and. step >= 3) residual = 1d-9
    call MPI_Allreduce(residual, worst, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, error)
    call accel_region_end("step")
    if (residual < 1d-6) call accel_set_breakpoint()
    if (accel_check_breakpoint()) exit
  end do
  call MPI_Allreduce(step, first, 1, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, error)
  call MPI_Allreduce(step, last, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
  call accel_log(ACCEL_WARNING, ACCEL_MAIN_PROCESS_ONLY, "all ranks have stopped")
  if (rank == 0) print '(4a)', "stopped early: ", merge("yes", "no ", last < 200), &
    ", together: ", merge("yes", "no ", first == last)
  call MPI_Finalize(error)
end program
