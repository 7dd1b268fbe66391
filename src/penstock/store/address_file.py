"""The addresses of a store as they are now, for all processes on this host that read the store.

A name that something resolves (`store/names.py`) stands for other addresses after servers have
moved. One process, a rank, learns of it, and writes the file; the workers of its hub read it when
they miss a server. They need not know what resolves the name.

The file is in memory. It has no place on a disk, and is gone when its writer is, in any way; its
path leads through the writer's descriptors under /proc. This module must not know who resolves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from penstock.store.memory_file import MemoryFile

# Another file may have its writer's descriptor by now: only one of this name has them.
_ADDRESSES: Final = "penstock-addresses"


class AddressFile:
    """The file of one store, as its writer has it.

    Args:
        addresses: The addresses of all servers.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._file = MemoryFile(_lines(addresses), _ADDRESSES)

    @property
    def path(self) -> str:
        """Where others read it."""
        return self._file.path

    def write(self, addresses: Iterable[str]) -> None:
        """Replace the addresses."""
        self._file.replace(_lines(addresses))

    def close(self) -> None:
        """End the file: readers find none any more. Idempotent."""
        self._file.close()


def read_addresses(path: str) -> tuple[str, ...]:
    """Return the addresses that a file has now; none if it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ()
    with open(fd, encoding="utf-8") as file:
        if not os.readlink(f"/proc/self/fd/{fd}").startswith(f"/memfd:{_ADDRESSES}"):
            return ()
        return tuple(file.read().split())


def _lines(addresses: Iterable[str]) -> bytes:
    return "".join(f"{each}\n" for each in addresses).encode()
