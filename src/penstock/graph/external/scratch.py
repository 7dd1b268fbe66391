"""A folder of temporary files, for work that is larger than memory.

It has a name that nothing else has, and is locked while it is in use. The system releases the lock
when a process ends, in any way: whoever makes a scratch folder removes those beside it whose makers
are gone. This module knows nothing about what is in the files.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.graph.folder import naming, remove_folder

if sys.platform != "win32":
    import fcntl

# The names of folders and files. No others are ever removed.
FOLDER_NAME: Final = re.compile(r"penstock-scratch-[0-9a-f]{16}")
FILE_NAME: Final = re.compile(r"[a-z0-9-]+\.tmp")


class Scratch:
    """A new folder for temporary files beside others in `parent`; removed when closed."""

    def __init__(self, parent: Path) -> None:
        _sweep(parent)
        self.folder, self._lock = _made(parent)

    def path(self, name: str) -> Path:
        """Return the path of a temporary file: of small letters, digits and dashes."""
        return self.folder / f"{name}.tmp"

    def array(
        self, name: str, dtype: npt.DTypeLike, shape: Sequence[int], room: int
    ) -> npt.NDArray[Any]:
        """Return an array of zeros: in memory if it takes no more than `room` bytes, else mapped.

        Raises:
            OSError: The disk is full. That is found out here, not when the array is written to.
        """
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if nbytes <= room or sys.platform != "linux":
            return np.zeros(shape, dtype)
        return mapped_zeros(self.path(name), nbytes).view(dtype).reshape(shape)

    def close(self) -> None:
        """Remove the folder. Arrays of it that are mapped stay valid."""
        if self._lock >= 0:
            remove_folder(self.folder, FILE_NAME)
            os.close(self._lock)
            self._lock = -1


def mapped_zeros(path: Path, nbytes: int) -> npt.NDArray[np.uint8]:
    """Return zeros in a new file, mapped; the disk has room for all of them."""
    with naming(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(fd, 0, nbytes)
            mapped = mmap.mmap(fd, nbytes)
        finally:
            os.close(fd)
    return np.frombuffer(mapped, np.uint8)


def append(path: Path, contents: Iterable[npt.NDArray[np.uint8]]) -> None:
    """Append to a file, which need not be there yet."""
    with naming(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for content in contents:
                rest = content.data
                while rest.nbytes:
                    rest = rest[os.write(fd, rest) :]
        finally:
            os.close(fd)


def numbers_of(path: Path) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the int64 numbers of a file, a million at a time."""
    with naming(path), open(path, "rb") as file:
        while len(numbers := np.fromfile(file, np.int64, 1 << 20)):
            yield numbers


def _made(parent: Path) -> tuple[Path, int]:
    """Make a folder and lock it. A sweep that comes in between removes it: then another one."""
    while True:
        folder = parent / f"penstock-scratch-{os.urandom(8).hex()}"
        os.mkdir(folder, 0o700)
        lock = _locked(folder)
        if lock is None:
            continue
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(folder), os.fstat(lock)):
                return folder, lock
        os.close(lock)


def _locked(folder: Path) -> int | None:
    """Return a descriptor that holds the lock; None if somebody else has it."""
    try:
        fd = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        if sys.platform != "win32":
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:  # a file system that cannot lock: nobody can, so nothing is swept there
        pass
    return fd


def _sweep(parent: Path) -> None:
    for name in os.listdir(parent):
        if FOLDER_NAME.fullmatch(name) and stat.S_ISDIR(os.lstat(parent / name).st_mode):
            _remove_if_left(parent / name)


def _remove_if_left(folder: Path) -> None:
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            if sys.platform != "win32":
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(folder, FILE_NAME)
        finally:
            os.close(fd)
