"""Anonymous shared memory: a descriptor without a name, gone with its last user, however that ends.

Linux only. This module makes the descriptor, seals it and closes it; mapping is done elsewhere.
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

# Known to Linux (6.3, 5.1) before Python knew them.
_MFD_NOEXEC_SEAL: Final = 0x8
_F_SEAL_FUTURE_WRITE: Final = 0x10


@functools.cache
def memfd_works() -> bool:
    """Whether this system has memfd and lets this process use it."""
    if sys.platform != "linux":
        return False
    try:
        os.close(_open_memfd())
    except (AttributeError, OSError):  # a Python built without it; a kernel or sandbox without it
        return False
    return True


class Memfd:
    """The creator's hold on anonymous memory: the one descriptor it keeps, to hand on later."""

    def __init__(self, nbytes: int) -> None:
        self.fd = _open_memfd()
        self.close = weakref.finalize(self, os.close, self.fd)
        os.ftruncate(self.fd, nbytes)
        _forbid_resizing(self.fd)
        status = os.fstat(self.fd)
        self.handle = MemfdHandle(nbytes, status.st_dev, status.st_ino)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What has to travel with the handle."""
        return (self.fd,)

    def forbid_writing(self) -> None:
        """From now on nobody can map this memory writable; writable mappings made before stay."""
        assert sys.platform == "linux"
        os.fchmod(self.fd, 0o400)
        # Older kernels refuse the seal. The mode above is then what an attaching process goes by.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)


def _open_memfd() -> int:
    assert sys.platform == "linux"
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create("penstock", flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fd = os.memfd_create("penstock", flags)
    os.fchmod(fd, 0o600)
    return fd


def _forbid_resizing(fd: int) -> None:
    # Shrinking it under a mapping would end every reader with a bus error.
    assert sys.platform == "linux"
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
