# The same as break_point.c in Python.
#
#   PYTHONPATH=$PREFIX/include/accel accelrun --log-level INFO mpirun -n 4 python3 break_point.py
from mpi4py import MPI

import libaccel

world = MPI.COMM_WORLD
libaccel.log(libaccel.INFO, f"batch size {libaccel.batch_size(32)}", in_order=True)
for step in range(200):
    with libaccel.region("step"):
        residual = 1e-9 if world.rank == 1 and step >= 3 else 1 / (step + 1)
        worst = world.allreduce(residual, op=MPI.MAX)
    if residual < 1e-6:
        libaccel.set_breakpoint()
    if libaccel.check_breakpoint():
        break
else:
    step = 200
first, last = world.allreduce(step, op=MPI.MIN), world.allreduce(step, op=MPI.MAX)
libaccel.log(libaccel.WARNING, "all ranks have stopped", main_process_only=True)
if world.rank == 0:
    print("stopped early:", "yes," if last < 200 else "no,", "together:", "yes" if first == last else "no")
