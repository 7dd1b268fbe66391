"""What a worker does to itself when it starts: it outlives nobody and keeps its limits.

Linux has all of it; elsewhere a worker goes without, and notices its hub's end by its socket alone.
This module knows no messages.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import mmap
import os
import signal
import socket
import struct
import sys
from typing import Final

import psutil

if sys.platform != "win32":
    import resource

_PR_SET_PDEATHSIG: Final = 1
_STDERR: Final = 2
# Set in workers, and in whatever they start.
_VARIABLE: Final = "PENSTOCK_WORKER"


def mark(worker: int) -> None:
    """Writes down, for code that runs in this process, that it is a worker."""
    os.environ[_VARIABLE] = str(worker)


def is_worker() -> bool:
    """Whether this process is a worker, or was started by one."""
    return _VARIABLE in os.environ


def restrain() -> None:
    """Ctrl-C is the rank's affair; stacks go to standard error, at a crash and on SIGUSR1."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(_STDERR, all_threads=True)
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1, _STDERR, all_threads=True, chain=False)
        # What the rank has blocked, the hub and all that it starts inherit.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def is_orphan(sock: socket.socket) -> bool:
    """Whether the parent died before the kernel was asked to tell: it made the other end."""
    if sys.platform != "linux":
        return False
    size = struct.calcsize("3i")
    pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    # 0: somewhere outside our namespace, so that nothing can be said.
    return bool(pid) and pid != os.getppid()


def private_bytes() -> int:
    """Memory that this process shares with nobody."""
    memory = _this_process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


@functools.cache
def _this_process() -> psutil.Process:
    return psutil.Process()


def limit_memory(most: int) -> None:
    """From now on an allocation that would make `private_bytes` exceed `most` is refused.

    The system limits what is reserved, which is more than what is in use: stacks, the allocator's
    own reserves. Whatever is reserved and unused now is granted on top. Shared memory does not
    count. MemoryError if so much is in use already.
    """
    if sys.platform != "linux":
        return
    memory = _this_process().memory_info()
    used = memory.rss - memory.shared
    if used >= most:
        raise MemoryError(
            f"hard_memory is {most} bytes; a worker has {used} in use before its first batch"
        )
    unused = memory.data - used
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = most + max(unused, 0)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def reserve_memory(nbytes: int) -> mmap.mmap:
    """Address space that counts against the limit and costs nothing; closing it gives it back."""
    if sys.platform == "win32":
        return mmap.mmap(-1, nbytes)
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
