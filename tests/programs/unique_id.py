"""unique_id.py LIBRARY: 128 bytes that held 0xaa, after that NCCL's ncclGetUniqueId, as hexadecimal digits."""
import ctypes
import sys

library = ctypes.CDLL(sys.argv[1])
id = (ctypes.c_ubyte * 128)(*([0xAA] * 128))
status = library.ncclGetUniqueId(id)
print(status, bytes(id).hex())
