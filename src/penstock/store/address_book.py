"""The addresses of a store as they are now, for all processes on this host that read the store.

A name that something resolves (`store/names.py`) stands for other addresses after servers have
moved. One process, a rank, learns of it, and writes the book; the workers of its hub read the book
when they miss a server. They need not know what resolves the name.

The book is a file in memory. It has no place on a disk, and is gone when its writer is, in any way;
its path leads through the writer's descriptors under /proc. This module must not know who resolves.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Final

# Another file may have its writer's descriptor by now: only one of this name is a book.
_BOOK: Final = "penstock-addresses"
_FILE: Final = "penstock-file"


class MemoryFile:
    """A file without a place on a disk, which other processes of this user open by its `path`.

    Args:
        data: What it holds.
        name: What the kernel calls it.
    """

    def __init__(self, data: bytes, name: str = _FILE) -> None:
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


class AddressBook:
    """The book of one store, as its writer has it.

    Args:
        addresses: The addresses of all servers.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._file = MemoryFile(_lines(addresses), _BOOK)

    @property
    def path(self) -> str:
        """Where others read it."""
        return self._file.path

    def write(self, addresses: Iterable[str]) -> None:
        """Replace the addresses."""
        self._file.replace(_lines(addresses))

    def close(self) -> None:
        """End the book: readers find none any more. Idempotent."""
        self._file.close()


def read_book(path: str) -> tuple[str, ...]:
    """Return the addresses that a book has now; none if it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ()
    with open(fd, encoding="utf-8") as book:
        if not os.readlink(f"/proc/self/fd/{fd}").startswith(f"/memfd:{_BOOK}"):
            return ()
        return tuple(book.read().split())


def _lines(addresses: Iterable[str]) -> bytes:
    return "".join(f"{each}\n" for each in addresses).encode()


def _written(data: bytes, name: str) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.fchmod(fd, 0o600)
        os.write(fd, data)
    except BaseException:
        os.close(fd)
        raise
    return fd
