# misstep.py KIND: as misstep.cpp.
import array
import sys
import time
from mpi4py import MPI

world = MPI.COMM_WORLD


def reduce_gradients(gradients, count):
    total = array.array("d", [0.0] * 8)
    world.Allreduce([gradients, count, MPI.DOUBLE], [total, count, MPI.DOUBLE], op=MPI.SUM)


def save_checkpoint():
    time.sleep(100)


def train_step(kind):
    odd = world.rank == 1
    if odd and kind == "leaves":
        time.sleep(0.3)
        sys.exit(3)
    if odd and kind == "late":
        save_checkpoint()
    reduce_gradients(array.array("d", [1.0] * 8), 2 if odd and kind == "count" else 4)


world.Barrier()
train_step(sys.argv[1])
world.Barrier()
