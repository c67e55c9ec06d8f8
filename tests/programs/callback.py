# A C library that calls back into Python: rank 1 stands still in there.
import ctypes
import time
from mpi4py import MPI

world = MPI.COMM_WORLD


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def compare(a, b):
    stand_still()
    return 0


def stand_still():
    if world.rank == 1:
        time.sleep(100)
    world.Barrier()


def sort():
    ctypes.CDLL("libc.so.6").qsort((ctypes.c_int * 4)(3, 1, 2, 4), 4, 4, compare)


sort()
