"""Temporary files of a build, in a folder beside the graph that is built.

The folder's name follows from the graph's, and whoever builds holds a lock on it: what a build that
was killed has left is removed by the next one.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph.external.scratch import mapped_array
from penstock.graph.folder import naming

if sys.platform != "win32":
    import fcntl

Array = npt.NDArray[Any]


class Workspace:
    """A folder for temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()
        self._spools: list[Spool] = []
        # Bytes of tables of ids that are in memory.
        self.held = 0

    def path(self, name: str) -> Path:
        """Return a new path for a file or a folder."""
        return self.folder / f"{next(self._numbers):05d}-{name}"

    def spool(self, dtype: npt.DTypeLike, width: int = 0) -> Spool:
        """Return a new array in a file, to which rows are appended."""
        found = Spool(self.path("spool"), np.dtype(dtype), width)
        self._spools.append(found)
        return found

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike, room: int) -> Array:
        """Return an array of zeros: in memory if it takes no more than `room` bytes, else mapped.

        Raises:
            OSError: The disk is full. That is found out here, not when the array is written to.
        """
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        if nbytes <= room or sys.platform != "linux":
            return np.zeros(shape, dtype)
        path = self.path("array")
        found = mapped_array(path, dtype, shape)
        path.unlink()  # it is there as long as it is mapped
        return found

    def close(self) -> None:
        """End the writing of all files."""
        for spool in self._spools:
            spool.close()


class Spool:
    """An array in a file: rows are appended, then read in pieces, or mapped.

    Written and read as a file, so that the pages belong to the system and not to this process.
    Pickled, it is a path: whoever reads it on another host has the same file by the same path.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], width: int = 0) -> None:
        self.path = path
        self.dtype = dtype
        self._row = (width,) if width else ()
        self._file: FileIO | None = FileIO(path, "wb")  # closed by the workspace
        self.num_rows = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def append(self, rows: Array) -> None:
        """Add rows at the end."""
        data = np.ascontiguousarray(rows, self.dtype).reshape(-1).view(np.uint8).data
        assert self._file is not None
        with naming(self.path):
            while data.nbytes:
                data = data[self._file.write(data) :]
        self.num_rows += len(rows)

    def close(self) -> None:
        """End the writing."""
        if self._file is not None:
            self._file.close()

    def pieces(self, rows: int) -> Iterator[Array]:
        """Yield all rows, so many at a time."""
        count = rows * math.prod(self._row)
        with naming(self.path), open(self.path, "rb") as file:
            while len(piece := np.fromfile(file, self.dtype, count)):
                yield piece.reshape(-1, *self._row)

    def mapped(self) -> Array:
        """Return all rows there are as an array that is mapped from the file."""
        if not self.num_rows:
            return np.empty((0, *self._row), self.dtype)
        return np.asarray(np.memmap(self.path, self.dtype, "r", shape=(self.num_rows, *self._row)))

    def remove(self) -> None:
        """Remove the file; what has been mapped stays valid."""
        self.close()
        self.path.unlink(missing_ok=True)


@contextmanager
def workspace_of(graph: Path) -> Iterator[Workspace]:
    """Yield the workspace of a build, and remove it afterwards.

    Raises:
        BlockingIOError: Another process builds this graph.
    """
    folder = graph.with_name(f".{graph.name}.build")
    fd = _claimed(folder)
    try:
        _clear(folder)
        workspace = Workspace(folder)
        try:
            yield workspace
        finally:
            workspace.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if fd is not None:
            os.close(fd)


def _claimed(folder: Path) -> int | None:
    """Create the folder if it is not there, and lock it."""
    while True:
        folder.mkdir(exist_ok=True)
        if sys.platform == "win32":
            return None
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_the_same(fd, folder):
                return fd
        except BlockingIOError:
            os.close(fd)
            what = "another process is building this graph"
            raise BlockingIOError(errno.EWOULDBLOCK, what, str(folder)) from None
        except OSError:  # some network file systems cannot lock folders
            return fd
        os.close(fd)  # whoever had it has removed it meanwhile


def _is_the_same(fd: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(folder))
    except FileNotFoundError:
        return False


def _clear(folder: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()
