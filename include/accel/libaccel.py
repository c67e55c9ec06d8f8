# SPDX-License-Identifier: Apache-2.0
"""What libaccel offers to Python programs: messages, break points, the batch size, marks in the record.

Needs nothing but ctypes. Without libaccel in front of the program every function does nothing. Each may be called from
any thread; none blocks, communicates or raises.
"""

import contextlib
import ctypes

DEBUG, INFO, WARNING, ERROR, CRITICAL = range(5)

_MAIN_PROCESS_ONLY = 1
_IN_ORDER = 2


class _Functions(ctypes.Structure):
    """struct accel_v1 of accel/accel.h."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("bytes", ctypes.c_uint),
        ("is_logged", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint)),
        ("log", ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)),
        ("set_breakpoint", ctypes.CFUNCTYPE(None)),
        ("check_breakpoint", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("batch_size", ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)),
        ("rank", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("size", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("region_begin", ctypes.CFUNCTYPE(None, ctypes.c_char_p)),
        ("region_end", ctypes.CFUNCTYPE(None, ctypes.c_char_p)),
    ]


def _find():
    try:
        functions = _Functions.in_dll(ctypes.CDLL(None), "accel_v1_functions")
    except (OSError, ValueError):
        return None
    return functions if functions.version == 1 and functions.bytes >= ctypes.sizeof(_Functions) else None


_accel = _find()


def log(level, message, *, main_process_only=False, in_order=False):
    """Puts a message into the job's log, with the rank and the time before it.

    in_order: the ranks' n-th such messages stand one after another in the log; nobody waits for it.
    """
    flags = _MAIN_PROCESS_ONLY * bool(main_process_only) | _IN_ORDER * bool(in_order)
    if _accel is not None and _accel.is_logged(level, flags):
        _accel.log(level, flags, str(message).encode("utf-8", "replace"))


def set_breakpoint():
    """Makes check_breakpoint() return True on all ranks at the same check, the first that no rank has passed."""
    if _accel is not None:
        _accel.set_breakpoint()


def check_breakpoint():
    """Whether any rank has called set_breakpoint(): True on all ranks at their same n-th check, once."""
    return _accel is not None and bool(_accel.check_breakpoint())


def batch_size(default):
    """The batch size, a rank's, that accelrun wants this attempt to use; `default` where it wants none."""
    return _accel.batch_size(default) if _accel is not None else default


def rank():
    """Rank in the job: MPI_COMM_WORLD's, else what the launcher says; -1 without libaccel."""
    return _accel.rank() if _accel is not None else -1


def size():
    """Number of ranks in the job; -1 without libaccel."""
    return _accel.size() if _accel is not None else -1


@contextlib.contextmanager
def region(name):
    """Marks a part of the program in the record: DEBUG logs, traces and reports show it."""
    if _accel is None:
        yield
        return
    text = str(name).encode("utf-8", "replace")
    _accel.region_begin(text)
    try:
        yield
    finally:
        _accel.region_end(text)
