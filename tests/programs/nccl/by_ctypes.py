"""by_ctypes.py COUNT: NCCL as vLLM and others reach it: the library opened RTLD_LOCAL, each function by dlsym. Rank 1
calls with COUNT."""
import ctypes, os, sys, time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
cuda = ctypes.CDLL("libcudart.so.13")
nccl = ctypes.CDLL("libnccl.so.2")
if os.environ.get("OLD_NCCL"):
    assert not hasattr(nccl, "ncclCommSplit"), "a function has come into being"
    assert hasattr(nccl, "ncclAllReduce")


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
nccl.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                               ctypes.c_void_p, ctypes.c_void_p]


def check(result):
    assert result == 0, result


def all_reduce_gradients(count):
    check(nccl.ncclAllReduce(buffer, buffer, count, 7, 0, comm, None))


check(cuda.cudaSetDevice(rank))
unique_id, path = UniqueId(), os.path.join(os.environ["RENDEZVOUS"], "id")
if rank == 0:
    check(nccl.ncclGetUniqueId(ctypes.byref(unique_id)))
    with open(path + ".new", "wb") as file:
        file.write(bytes(unique_id))
    os.rename(path + ".new", path)
else:
    while not os.path.exists(path):
        time.sleep(0.001)
    with open(path, "rb") as file:
        ctypes.memmove(ctypes.byref(unique_id), file.read(), 128)
comm, buffer = ctypes.c_void_p(), ctypes.c_void_p()
check(nccl.ncclCommInitRank(ctypes.byref(comm), size, unique_id, rank))
check(cuda.cudaMalloc(ctypes.byref(buffer), 4096))
all_reduce_gradients(int(sys.argv[1]) if rank == 1 else 64)
check(cuda.cudaDeviceSynchronize())
print("ok")
