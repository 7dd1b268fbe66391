"""Anonymous shared memory: a memfd has no name, and is freed when its last user ends, in any way.

Linux only. This module creates, seals and closes the descriptor; mapping is done elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sys
import weakref
from typing import Final

from penstock.graph.handles import MemfdHandle

if sys.platform == "linux":
    import fcntl

# Constants that Linux has (since 6.3 and 5.1), but older Pythons have not.
_MFD_NOEXEC_SEAL: Final = 0x8
_F_SEAL_FUTURE_WRITE: Final = 0x10


@functools.cache
def memfd_works() -> bool:
    """Return whether this system has memfd and lets this process use it."""
    if sys.platform != "linux":
        return False
    try:
        os.close(open_memfd())
    except (AttributeError, OSError):  # a Python, kernel or sandbox without it
        return False
    return True


class Memfd:
    """Anonymous memory at its creator: the one descriptor it keeps, to send on later."""

    def __init__(self, nbytes: int) -> None:
        self.fd = open_memfd()
        self.close = weakref.finalize(self, os.close, self.fd)
        os.ftruncate(self.fd, nbytes)
        _forbid_resizing(self.fd)
        status = os.fstat(self.fd)
        self.handle = MemfdHandle(nbytes, status.st_dev, status.st_ino)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to send with the handle."""
        return (self.fd,)

    def forbid_writing(self) -> None:
        """Forbid new writable mappings of this memory; existing writable ones stay."""
        assert sys.platform == "linux"
        os.fchmod(self.fd, 0o400)
        # Older kernels refuse the seal. An attaching process then goes by the mode set above.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)


def open_memfd(name: str = "penstock") -> int:
    """Return the descriptor of new anonymous memory, for this user alone.

    Args:
        name: What /proc calls it.
    """
    assert sys.platform == "linux"
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create(name, flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fd = os.memfd_create(name, flags)
    os.fchmod(fd, 0o600)
    return fd


def _forbid_resizing(fd: int) -> None:
    # Shrinking the memory would end every process that reads it with a bus error.
    assert sys.platform == "linux"
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
