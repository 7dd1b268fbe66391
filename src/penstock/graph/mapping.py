"""A descriptor's bytes as a flat NumPy array that keeps the mapping, and nothing else, alive.

Python's own `mmap` keeps a duplicate of the descriptor open for as long as the mapping lives (until
3.13, where it can be told not to). A store of many arrays would run into the limit on open files,
and "map it, then close it" would not be true. So POSIX systems are asked for the mapping directly;
Windows uses `mmap`. The kernel chooses the address, so that it can align large ones to huge pages.

This module knows neither dtypes nor what kind of memory a descriptor stands for.
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

_PROT_NONE: Final = 0  # which Python's mmap does not name

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
    """Maps the first `nbytes` bytes behind `fd`, shared. The descriptor may be closed afterwards.

    The array, and every view of it, keeps the mapping alive; it is undone with the last of them.
    The caller has made sure that so many bytes are there: beyond them lies a bus error.
    """
    if nbytes == 0:  # which no system maps
        nothing = np.empty(0, np.uint8)
        nothing.flags.writeable = writable
        return nothing
    if sys.platform == "win32":
        return map_bytes_by_mmap(fd, nbytes, writable=writable)
    return np.asarray(_Mapping(fd, nbytes, writable=writable))


def map_bytes_by_mmap(fd: int, nbytes: int, *, writable: bool) -> Bytes:
    """As `map_bytes`, anywhere Python runs, at the price of a descriptor per mapping."""
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    return np.frombuffer(memoryview(mmap.mmap(fd, nbytes, access=access)), np.uint8)


def ask_for_huge_pages(data: Bytes) -> None:
    """Asks for huge pages under `data`. A system that has none to give is no error."""
    if sys.platform == "linux" and data.nbytes >= HUGE_PAGE:
        _libc.madvise(data.ctypes.data, data.nbytes, mmap.MADV_HUGEPAGE)


def forbid_access(data: Bytes) -> None:
    """Makes whole pages of a mapping a trap: who touches them, here, dies of it (SIGSEGV)."""
    if sys.platform != "win32":
        _complain_unless_done(
            _libc.mprotect(data.ctypes.data, data.nbytes, _PROT_NONE),
            f"cannot guard {data.nbytes} bytes of a mapping (see vm.max_map_count)",
        )


def give_pages_back(data: Bytes) -> None:
    """Empties whole pages of shared memory for everybody who maps them; they read as zeros after.

    A system that cannot is no error: the pages are then kept, as they are.
    """
    if sys.platform == "linux":
        _libc.madvise(data.ctypes.data, data.nbytes, mmap.MADV_REMOVE)


def _complain_unless_done(status: int, what: str) -> None:
    if status:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


class _Mapping:
    """One mapping, undone when the last array over it has gone."""

    def __init__(self, fd: int, nbytes: int, *, writable: bool) -> None:
        assert sys.platform != "win32"
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = _libc.mmap(None, nbytes, protection, mmap.MAP_SHARED, fd, 0)
        if address == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot map {nbytes} bytes: {os.strerror(code)}")
        # How NumPy is told of foreign memory; the array it makes holds on to this object.
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "typestr": "|u1",
            "shape": (nbytes,),
            "data": (address, not writable),
        }
        # At exit views may still be read, by threads or other finalizers; the system cleans up.
        weakref.finalize(self, _libc.munmap, address, nbytes).atexit = False
