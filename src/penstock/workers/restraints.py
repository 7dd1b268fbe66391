"""What a worker does to itself when it starts, so that it ends with its hub and keeps its limits.

Linux has all of it; elsewhere a worker goes without, and notices its hub's end by its socket only.
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
# Set in workers, and inherited by whatever they start.
_VARIABLE: Final = "PENSTOCK_WORKER"


def mark(worker: int) -> None:
    """Mark this process as a worker, for code that runs in it."""
    os.environ[_VARIABLE] = str(worker)


def is_worker() -> bool:
    """Return whether this process is a worker, or was started by one."""
    return _VARIABLE in os.environ


def restrain() -> None:
    """Set up signals: ignore Ctrl-C, show stacks, die with the parent.

    Ctrl-C is handled by the rank. Stacks go to standard error, at a crash and on SIGUSR1.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable(_STDERR, all_threads=True)
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1, _STDERR, all_threads=True, chain=False)
        # The hub, and all that it starts, inherits the signals that the rank has blocked.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def is_orphan(sock: socket.socket) -> bool:
    """Return whether the parent died before `restrain` asked the kernel to signal that.

    The parent made the other end of the socket, so the peer's pid must be the parent's.
    """
    if sys.platform != "linux":
        return False
    size = struct.calcsize("3i")
    pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    # 0: the peer is outside our pid namespace, so nothing is known.
    return bool(pid) and pid != os.getppid()


def private_bytes() -> int:
    """Return the bytes of memory that this process does not share."""
    memory = _this_process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


@functools.cache
def _this_process() -> psutil.Process:
    return psutil.Process()


def limit_memory(most: int) -> None:
    """Refuse allocations, from now on, that would make `private_bytes` exceed `most`.

    The system limits reserved memory, which is more than what is in use: stacks, the allocator's
    own reserves. What is reserved and unused now is allowed on top. Shared memory does not count.

    Raises:
        MemoryError: At least `most` is in use already.
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
    """Reserve address space that counts against the limit but takes no memory, until closed."""
    if sys.platform == "win32":
        return mmap.mmap(-1, nbytes)
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
