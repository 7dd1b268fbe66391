"""What parts get of an array: a file for each part, to which rows are appended.

It is the shuffle of a build: whoever reads tables writes segments, whoever writes a part reads its
own. Nothing but these files passes from the one to the other.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.graph.checksum import PIECE_NBYTES, Bytes
from penstock.graph.dtypes import itemsize
from penstock.graph.external.scratch import append
from penstock.graph.folder import naming
from penstock.graph.partition.book import part_dtype
from penstock.kernels.arrays import raw_bytes
from penstock.kernels.gather import gather_rows

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]

# The least that is held before files are appended to.
_LEAST_ROOM: Final = 1 << 16


class Segments:
    """The rows of one array, or of something that an array follows from, in a file for each part.

    Attributes:
        dtype: The type of their elements.
        shape: The shape of a row.
        num_rows: How many rows each part has.
    """

    def __init__(
        self, folder: Path, num_parts: int, dtype: str, shape: tuple[int, ...] = (), room: int = 0
    ) -> None:
        """Prepare for rows.

        Args:
            folder: A new folder for the files.
            num_parts: How many parts there are.
            dtype: The type of the elements.
            shape: The shape of a row.
            room: How many bytes may be held in memory, about.
        """
        self.dtype = dtype
        self.shape = shape
        self.num_rows = np.zeros(num_parts, np.int64)
        self._folder = folder
        self._width = itemsize(dtype) * math.prod(shape)
        self._narrow = part_dtype(num_parts)
        self._room = max(room, _LEAST_ROOM)
        self._held: dict[int, list[Bytes]] = {}
        self._held_nbytes = 0
        folder.mkdir()

    def share(self, rows: Array, parts: Array) -> None:
        """Give out rows in their order: row i goes to `parts[i]`."""
        counts = np.bincount(parts, minlength=len(self.num_rows))
        if counts.max(initial=0) < len(parts):  # else one part has all of them
            # In bytes, or pairs of them, NumPy counts instead of comparing.
            order = np.argsort(parts.astype(self._narrow, copy=False), kind="stable")
            rows = gather_rows(np.ascontiguousarray(rows), order) if self._width else rows
        self.append(rows, counts)

    def append(self, rows: Array, counts: Ids) -> None:
        """Append rows that come part by part: the first `counts[0]` of them go to part 0."""
        self.append_bytes(raw_bytes(np.ascontiguousarray(rows), "rows"), counts * self._width)
        self.num_rows += counts

    def append_bytes(self, data: Bytes, nbytes: Ids) -> None:
        """Append bytes that come part by part, without counting rows."""
        is_whole = self._held_nbytes + len(data) > self._room
        ends = np.cumsum(nbytes)
        for part in np.flatnonzero(nbytes).tolist():
            own = data[ends[part] - nbytes[part] : ends[part]]
            # What is held has to outlive the array that it is from.
            self._held.setdefault(part, []).append(own if is_whole else own.copy())
        self._held_nbytes += len(data)
        if is_whole:
            self.flush()

    def flush(self) -> None:
        """Write what is held: nothing more is added, or there is no room."""
        for part, contents in self._held.items():
            append(self.path(part), contents)
        self._held = {}
        self._held_nbytes = 0

    def path(self, part: int) -> Path:
        """Return the file of a part; there is none if it has no rows."""
        return self._folder / f"{part}.tmp"

    def of(self, part: int) -> Segment:
        """Return what a part has."""
        count = int(self.num_rows[part])
        return Segment(self.path(part), self.dtype, (count, *self.shape))


class Segment:
    """An array in a file, which is removed when it has been read; none if the array is empty."""

    def __init__(
        self, path: Path, dtype: str, shape: tuple[int, ...], *, is_kept: bool = False
    ) -> None:
        self.path = path
        self.dtype = dtype
        self.shape = shape
        self._is_kept = is_kept

    def pieces(self) -> Iterator[Bytes]:
        """Yield the bytes, in pieces of a file."""
        nbytes = itemsize(self.dtype) * math.prod(self.shape)
        if not nbytes:
            yield np.empty(0, np.uint8)
            return
        buffer = np.empty(min(nbytes, PIECE_NBYTES), np.uint8)
        with naming(self.path), open(self.path, "rb", buffering=0) as file:
            while nbytes:
                out = buffer[: min(nbytes, PIECE_NBYTES)]
                read_whole(file, out, self.path)
                yield out
                nbytes -= len(out)
        if not self._is_kept:
            os.unlink(self.path)

    def blocks(self, rows: int) -> Iterator[Array]:
        """Yield rows of numbers, so many at a time, each as an array of its own."""
        left, width = self.shape[0], math.prod(self.shape[1:])
        if not left:
            return
        with naming(self.path), open(self.path, "rb", buffering=0) as file:
            while left:
                out = np.empty(min(left, rows) * width, self.dtype)
                read_whole(file, out.view(np.uint8), self.path)
                yield out.reshape(-1, *self.shape[1:])
                left -= min(left, rows)
        if not self._is_kept:
            os.unlink(self.path)

    def mapped(self) -> Array:
        """Return the array, mapped."""
        if not math.prod(self.shape):
            return np.empty(self.shape, self.dtype)
        return np.asarray(np.memmap(self.path, self.dtype, "r", shape=self.shape))

    def kept(self) -> Segment:
        """Return the array as one that may be read again."""
        return Segment(self.path, self.dtype, self.shape, is_kept=True)

    def remove(self) -> None:
        """Remove the file; what has been mapped stays valid."""
        self.path.unlink(missing_ok=True)


def read_whole(file: Any, out: Bytes, path: Path) -> None:
    """Fill an array from a file."""
    while len(out):
        count = file.readinto(out.data)
        if not count:
            raise OSError(errno.EIO, "a temporary file was cut short", str(path))
        out = out[count:]
