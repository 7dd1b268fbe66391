"""Maps the bytes of a descriptor as a flat NumPy array, which keeps only the mapping alive.

Python's own `mmap` keeps a duplicate of the descriptor open for as long as the mapping lives (until
3.13, where this can be turned off). A store of many arrays would reach the limit on open files, and
closing a descriptor after mapping it would not really close it. So on POSIX systems `mmap` is
called directly; Windows uses Python's. The kernel chooses the address, so that it can align large
mappings to huge pages.

This module knows neither dtypes nor the kind of memory behind a descriptor.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import weakref
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

HUGE_PAGE: Final = 2 << 20

_PROT_NONE: Final = 0  # Python's mmap has no name for it

if sys.platform != "win32":
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    _libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    _libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def map_bytes(fd: int, nbytes: int, *, writable: bool) -> Bytes:
    """Map the first `nbytes` bytes of `fd`, shared. The descriptor may be closed afterwards.

    The array and every view of it keep the mapping alive; it is unmapped with the last of them. The
    caller must make sure that the file has so many bytes: access beyond its end is a bus error.
    """
    if nbytes == 0:  # no system maps an empty range
        nothing = np.empty(0, np.uint8)
        nothing.flags.writeable = writable
        return nothing
    if sys.platform == "win32":
        return map_bytes_by_mmap(fd, nbytes, writable=writable)
    return np.asarray(_Mapping(fd, nbytes, writable=writable))


def map_bytes_by_mmap(fd: int, nbytes: int, *, writable: bool) -> Bytes:
    """Map as `map_bytes` does, wherever Python runs, at the cost of a descriptor per mapping."""
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    return np.frombuffer(memoryview(mmap.mmap(fd, nbytes, access=access)), np.uint8)


def ask_for_huge_pages(data: Bytes) -> None:
    """Ask for huge pages for `data`. It is no error if the system has none."""
    if sys.platform == "linux" and data.nbytes >= HUGE_PAGE:
        _libc.madvise(data.ctypes.data, data.nbytes, mmap.MADV_HUGEPAGE)


def forbid_access(data: Bytes) -> None:
    """Protect whole pages of a mapping: access from this process raises SIGSEGV."""
    if sys.platform != "win32":
        _complain_unless_done(
            _libc.mprotect(data.ctypes.data, data.nbytes, _PROT_NONE),
            f"cannot guard {data.nbytes} bytes of a mapping (see vm.max_map_count)",
        )


def give_pages_back(data: Bytes) -> None:
    """Free whole pages of shared memory for all who map them; they read as zeros afterwards.

    It is no error if the system cannot do it: the pages then stay as they are.
    """
    if sys.platform == "linux":
        _libc.madvise(data.ctypes.data, data.nbytes, mmap.MADV_REMOVE)


def _complain_unless_done(status: int, what: str) -> None:
    if status:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


class _Mapping:
    """One mapping, unmapped when the last array over it is gone."""

    def __init__(self, fd: int, nbytes: int, *, writable: bool) -> None:
        assert sys.platform != "win32"
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = _libc.mmap(None, nbytes, protection, mmap.MAP_SHARED, fd, 0)
        if address == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot map {nbytes} bytes: {os.strerror(code)}")
        # The way to give NumPy foreign memory; the array it makes keeps a reference to this object.
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "typestr": "|u1",
            "shape": (nbytes,),
            "data": (address, not writable),
        }
        # Not at exit: other threads or finalizers may still read views, and the system cleans up.
        weakref.finalize(self, _libc.munmap, address, nbytes).atexit = False
