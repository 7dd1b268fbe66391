"""Arrays of a part, made while they are written: slices and rows of the whole graph's arrays.

Whatever the size of a part, one buffer of a piece of a file is held at a time. This module knows
neither types nor parts.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.graph.checksum import PIECE_NBYTES, Bytes, pieces
from penstock.graph.dtypes import dtype_name, itemsize, storage_dtype
from penstock.graph.shared import SharedArray
from penstock.kernels import Adjacency
from penstock.kernels.cutting import copy_rows
from penstock.kernels.gather import Rows
from penstock.kernels.id_table import Text

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]
_T = TypeVar("_T")

_TEXTS_AT_ONCE: Final = 1 << 16


class Held:
    """An array in memory, or a slice of a mapped one."""

    def __init__(self, array: Array, dtype: str | None = None) -> None:
        self._array = np.ascontiguousarray(array)
        self.dtype = dtype_name(array.dtype) if dtype is None else dtype
        self.shape = array.shape

    def pieces(self) -> Iterator[Bytes]:
        return pieces(self._array)


class Made:
    """An array that is made when it is written."""

    def __init__(self, dtype: str, shape: tuple[int, ...], make: Callable[[], Array]) -> None:
        self._make = make
        self.dtype = dtype
        self.shape = shape

    def pieces(self) -> Iterator[Bytes]:
        return pieces(self._make())


class Once(Generic[_T]):
    """Makes something when it is first asked for, once for all threads."""

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._made: list[_T] = []
        self._lock = threading.Lock()

    def __call__(self) -> _T:
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]


class SomeRows:
    """The rows of `count` ids of an attribute; the ids are asked for when it is written."""

    def __init__(self, array: SharedArray, count: int, ids: Callable[[], Ids]) -> None:
        self._array = array
        self._ids = ids
        self.dtype = array.dtype
        self.shape = (count, *array.shape[1:])

    def pieces(self) -> Iterator[Bytes]:
        ids, whole = self._ids(), self._array.array
        if is_range(ids):
            return pieces(whole[ids[0] : ids[-1] + 1])
        rows, dtype, shape = Rows(whole), storage_dtype(self.dtype), self.shape[1:]

        def fill(out: Bytes, first: int, count: int) -> None:
            rows.gather(ids[first : first + count], out.view(dtype).reshape(count, *shape))

        return in_pieces(len(ids), itemsize(self.dtype) * math.prod(shape), fill)


class SomeText:
    """The bytes of the text of some nodes, in their order.

    Attributes:
        offsets: Where the text of each begins among these bytes, and where the last ends.
    """

    dtype = "uint8"

    def __init__(self, offsets: Ids, text: npt.NDArray[np.uint8], nodes: Ids) -> None:
        self._whole = Text(offsets, text)
        self._nodes = nodes
        self.offsets = np.zeros(len(nodes) + 1, np.int64)
        np.cumsum(offsets[nodes + 1] - offsets[nodes], out=self.offsets[1:])
        self.shape: tuple[int, ...] = (int(self.offsets[-1]),)

    def pieces(self) -> Iterator[Bytes]:
        if is_range(self._nodes):
            begin = self._whole.offsets[self._nodes[0]]
            return pieces(self._whole.data[begin : begin + self.shape[0]])
        return self._gathered()

    def _gathered(self) -> Iterator[Bytes]:
        """Take texts a piece at a time; what is over goes with the next."""
        held = np.empty(0, np.uint8)
        for begin in range(0, len(self._nodes), _TEXTS_AT_ONCE):
            some = self._whole.take(self._nodes[begin : begin + _TEXTS_AT_ONCE])
            held = np.concatenate([held, some.data])
            full = len(held) - len(held) % PIECE_NBYTES
            for start in range(0, full, PIECE_NBYTES):
                yield held[start : start + PIECE_NBYTES]
            held = held[full:]
        if len(held) or not self.shape[0]:
            yield held


class SomeEntries:
    """The entries of the rows of some nodes, one row after the other.

    They are (neighbour, edge id) if `paired`, or else neighbours alone.
    """

    def __init__(
        self, rows: Adjacency, nodes: Ids, offsets: Ids, dtype: str, *, paired: bool
    ) -> None:
        self._rows = rows
        self._nodes = nodes
        self._offsets = offsets
        self.dtype = dtype
        self.shape: tuple[int, ...] = (int(offsets[-1]), 2) if paired else (int(offsets[-1]),)

    def pieces(self) -> Iterator[Bytes]:
        dtype = np.dtype(self.dtype)

        def fill(out: Bytes, first: int, count: int) -> None:
            entries = out.view(dtype).reshape(count, *self.shape[1:])
            copy_rows(self._rows, self._nodes, self._offsets, first, entries)

        return in_pieces(self.shape[0], dtype.itemsize * math.prod(self.shape[1:]), fill)


def is_range(ids: Ids) -> bool:
    """Return whether ids that rise are without gaps."""
    return bool(len(ids)) and int(ids[-1]) - int(ids[0]) == len(ids) - 1


def in_pieces(
    num_rows: int, row_nbytes: int, fill: Callable[[Bytes, int, int], object]
) -> Iterator[Bytes]:
    """Yield the bytes of rows in pieces of a file, whatever the size of a row.

    Args:
        num_rows: How many rows there are.
        row_nbytes: The bytes of each.
        fill: Called as `fill(out, first, count)` to write the rows from `first` on.
    """
    if not num_rows * row_nbytes:
        yield np.empty(0, np.uint8)
        return
    buffer = np.empty(min(PIECE_NBYTES, num_rows * row_nbytes) + row_nbytes, np.uint8)
    done = held = 0
    while done < num_rows:
        # As many rows as complete a piece; the rest of the last one is kept for the next piece.
        count = min(num_rows - done, -(-(PIECE_NBYTES - held) // row_nbytes))
        end = held + count * row_nbytes
        fill(buffer[held:end], done, count)
        done, begin = done + count, 0
        while end - begin >= PIECE_NBYTES:
            yield buffer[begin : begin + PIECE_NBYTES]
            begin += PIECE_NBYTES
        held = end - begin
        buffer[:held] = buffer[begin:end].copy() if begin else buffer[:held]
    if held:
        yield buffer[:held]
