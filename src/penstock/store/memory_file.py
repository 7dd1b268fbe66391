"""Files in memory: they have no place on a disk, and are gone when their users are, in any way."""

from __future__ import annotations

import os
import weakref
from typing import Final

from penstock.graph.memfd import open_memfd

_NAME: Final = "penstock-file"


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
    fd = open_memfd(name)
    try:
        os.write(fd, data)
    except BaseException:
        os.close(fd)
        raise
    return fd
