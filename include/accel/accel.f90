! What libaccel offers to Fortran programs: messages, break points, the batch size, marks in the record.
!
! SPDX-License-Identifier: Apache-2.0
!
! Compile it with the program; there is nothing to link against (with glibc before 2.34: -ldl). Without libaccel in
! front of the program every procedure does nothing. Each may be called from any thread; none blocks or communicates.
! accel.h says more.
module accel
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: accel_log, accel_set_breakpoint, accel_check_breakpoint, accel_batch_size, accel_rank, accel_size
  public :: accel_region_begin, accel_region_end

  integer, parameter, public :: ACCEL_DEBUG = 0, ACCEL_INFO = 1, ACCEL_WARNING = 2, ACCEL_ERROR = 3, ACCEL_CRITICAL = 4
  integer, parameter, public :: ACCEL_ALL_PROCESSES = 0, ACCEL_MAIN_PROCESS_ONLY = 1, ACCEL_IN_ORDER = 2

  ! struct accel_v1 of accel.h
  type, bind(C) :: accel_v1
    integer(c_int) :: version
    integer(c_int) :: bytes
    type(c_funptr) :: is_logged
    type(c_funptr) :: log
    type(c_funptr) :: set_breakpoint
    type(c_funptr) :: check_breakpoint
    type(c_funptr) :: batch_size
    type(c_funptr) :: rank
    type(c_funptr) :: size
    type(c_funptr) :: region_begin
    type(c_funptr) :: region_end
  end type

  abstract interface
    function is_logged_function(level, flags) bind(C) result(logged)
      import :: c_int
      integer(c_int), value :: level, flags
      integer(c_int) :: logged
    end function
    subroutine log_function(level, flags, text) bind(C)
      import :: c_int, c_char
      integer(c_int), value :: level, flags
      character(kind=c_char), intent(in) :: text(*)
    end subroutine
    subroutine plain_function() bind(C)
    end subroutine
    function number_function() bind(C) result(number)
      import :: c_int
      integer(c_int) :: number
    end function
    function batch_function(fallback) bind(C) result(batch)
      import :: c_long
      integer(c_long), value :: fallback
      integer(c_long) :: batch
    end function
    subroutine name_function(name) bind(C)
      import :: c_char
      character(kind=c_char), intent(in) :: name(*)
    end subroutine
  end interface

  interface
    function dlsym(handle, name) bind(C, name="dlsym") result(address)
      import :: c_ptr, c_char
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr) :: address
    end function
  end interface

contains

  ! The table, looked up at each call: a pointer kept in a module is no business of several threads.
  function functions() result(table)
    type(accel_v1), pointer :: table
    type(c_ptr) :: address
    table => null()
    address = dlsym(c_null_ptr, "accel_v1_functions" // c_null_char)
    if (.not. c_associated(address)) return
    call c_f_pointer(address, table)
    if (table%version /= 1 .or. table%bytes < int(c_sizeof(table))) table => null()
  end function

  ! Puts a message into the job's log, with the rank and the time before it.
  subroutine accel_log(level, flags, text)
    integer, intent(in) :: level, flags
    character(len=*), intent(in) :: text
    type(accel_v1), pointer :: table
    procedure(is_logged_function), pointer :: is_logged
    procedure(log_function), pointer :: log
    table => functions()
    if (.not. associated(table)) return
    call c_f_procpointer(table%is_logged, is_logged)
    if (is_logged(int(level, c_int), int(flags, c_int)) == 0) return
    call c_f_procpointer(table%log, log)
    call log(int(level, c_int), int(flags, c_int), trim(text) // c_null_char)
  end subroutine

  ! Makes accel_check_breakpoint() true on all ranks at the same check, the first that no rank has passed.
  subroutine accel_set_breakpoint()
    type(accel_v1), pointer :: table
    procedure(plain_function), pointer :: set
    table => functions()
    if (.not. associated(table)) return
    call c_f_procpointer(table%set_breakpoint, set)
    call set()
  end subroutine

  logical function accel_check_breakpoint() result(stop_here)
    type(accel_v1), pointer :: table
    stop_here = .false.
    table => functions()
    if (associated(table)) stop_here = number_of(table%check_breakpoint) /= 0
  end function

  ! The batch size, a rank's, that accelrun wants this attempt to use; `fallback` where it wants none.
  integer function accel_batch_size(fallback) result(batch)
    integer, intent(in) :: fallback
    type(accel_v1), pointer :: table
    procedure(batch_function), pointer :: wanted
    batch = fallback
    table => functions()
    if (.not. associated(table)) return
    call c_f_procpointer(table%batch_size, wanted)
    batch = int(wanted(int(fallback, c_long)))
  end function

  ! Rank and number of ranks in the job; -1 without libaccel.
  integer function accel_rank() result(number)
    type(accel_v1), pointer :: table
    number = -1
    table => functions()
    if (associated(table)) number = number_of(table%rank)
  end function

  integer function accel_size() result(number)
    type(accel_v1), pointer :: table
    number = -1
    table => functions()
    if (associated(table)) number = number_of(table%size)
  end function

  ! Marks a part of the program in the record.
  subroutine accel_region_begin(name)
    character(len=*), intent(in) :: name
    type(accel_v1), pointer :: table
    table => functions()
    if (associated(table)) call mark(table%region_begin, name)
  end subroutine

  subroutine accel_region_end(name)
    character(len=*), intent(in) :: name
    type(accel_v1), pointer :: table
    table => functions()
    if (associated(table)) call mark(table%region_end, name)
  end subroutine

  integer function number_of(address) result(number)
    type(c_funptr), intent(in) :: address
    procedure(number_function), pointer :: ask
    call c_f_procpointer(address, ask)
    number = ask()
  end function

  subroutine mark(address, name)
    type(c_funptr), intent(in) :: address
    character(len=*), intent(in) :: name
    procedure(name_function), pointer :: function_of_name
    call c_f_procpointer(address, function_of_name)
    call function_of_name(trim(name) // c_null_char)
  end subroutine

end module
