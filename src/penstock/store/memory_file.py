"""Files in memory: they have no place on a disk, and are gone when their users are, in any way.

What starts a server after a host has died is imported while readers wait: this module must not
import the graph, as `graph.memfd` does, which is about arrays.
"""

from __future__ import annotations

import os
import weakref
from typing import Final

_NAME: Final = "penstock-file"
# A constant that Linux has (since 6.3), but Python has not.
_MFD_NOEXEC_SEAL: Final = 0x8


class MemoryFile:
    """A file without a place on a disk, which other processes of this user open by its `path`.

    Args:
        data: What it holds.
        name: What the kernel calls it.
    """

    def __init__(self, data: bytes, name: str = _NAME) -> None:
        self._name = name
        self._fd = _written(data, name)
        self.path = f"/proc/{os.getpid()}/fd/{self._fd}"
        self.close = weakref.finalize(self, os.close, self._fd)

    @property
    def fd(self) -> int:
        """Its descriptor, for a child that is to have it even if this process is gone."""
        return self._fd

    def replace(self, data: bytes) -> None:
        """Put another file in its place: readers find the old one or the new one, whole."""
        new = _written(data, self._name)
        try:
            os.dup2(new, self._fd, inheritable=False)
        finally:
            os.close(new)


def _written(data: bytes, name: str) -> int:
    try:
        fd = os.memfd_create(name, os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError:  # an older kernel
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.fchmod(fd, 0o600)
        os.write(fd, data)
    except BaseException:
        os.close(fd)
        raise
    return fd
