"""Where the rows of an answer go: each to its own position, while the answer is being received.

Rows of a batch that are received as a whole have left the processor's cache before they are put in
place. Received into a small buffer, and put in place from there, they are read from memory once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.graph.dtypes import storage_dtype
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.gather import scatter_rows
from penstock.rpc.buffer_pool import BufferPool
from penstock.wire.frames import check_inside
from penstock.wire.messages import ArrayLayout
from penstock.wire.payload import Arrays

# The least bytes of rows that are put in place at once. It fits the second cache of a core, and is
# as much as is written around the caches.
PIECE: Final = 512 << 10
# Buffers that are kept: an answer of each of a few servers is received at a time.
_BUFFERS: Final = BufferPool(4)


class RowsTarget:
    """Positions of rows in an array.

    Args:
        out: The array. Nobody writes to it any more once the call for its rows is over.
        positions: Where its rows go, in the order in which they come.
    """

    __slots__ = ("is_filled", "out", "positions")

    def __init__(self, out: Array, positions: Ids) -> None:
        self.out = out
        self.positions = positions
        self.is_filled = False  # all rows are in place

    def sink(self) -> RowsSink:
        """Return what puts the rows of one answer in place; of several, any may do so."""
        return RowsSink(self)


class RowsSink:
    """Puts the rows of one answer in place, as they come: an `rpc.rpc_client.ArraySink`."""

    def __init__(self, target: RowsTarget) -> None:
        self._target = target
        self._name = ""
        self._put = 0  # rows that are in place
        self._have = 0  # bytes in the buffer
        self._row_bytes = target.out.dtype.itemsize * math.prod(target.out.shape[1:])
        self._buffer: Array = np.empty(0, target.out.dtype)
        self._view = memoryview(b"")
        # Reentrant: a signal handler may give a call up in the middle of `came`.
        self._putting = threading.RLock()
        self._closed = False

    def accepts(self, arrays: Sequence[ArrayLayout], nbytes: int) -> bool:
        """Return whether an answer has all rows and nothing else, and is worth the trouble."""
        target, rows = self._target, len(self._target.positions)
        shape = (rows, *target.out.shape[1:])
        if nbytes != rows * self._row_bytes or nbytes <= PIECE or len(arrays) != 1:
            return False
        check_inside(arrays, nbytes)
        (found,) = arrays
        if tuple(found.shape) != shape or np.dtype(storage_dtype(found.dtype)) != target.out.dtype:
            return False
        self._name = found.name
        at_once = min(rows, -(-PIECE // self._row_bytes))
        memory = _BUFFERS.lend(at_once * self._row_bytes)
        self._view = memory.data
        self._buffer = memory.view(target.out.dtype).reshape(at_once, *shape[1:])
        return True

    def room(self) -> memoryview:
        """Return where the next bytes go."""
        return self._view[self._have :]

    def came(self, nbytes: int) -> None:
        """Put the rows in the buffer in place, once it is full or no more will come."""
        self._have += nbytes
        missing = len(self._target.positions) - self._put
        rows = min(missing, len(self._buffer))
        if self._have == rows * self._row_bytes:
            self._put_in_place(rows)
            self._have = 0

    def _put_in_place(self, rows: int) -> None:
        target, begin = self._target, self._put
        self._put += rows
        with self._putting:
            if self._closed:
                return
            scatter_rows(self._buffer[:rows], target.positions[begin : self._put], target.out)
            if self._put == len(target.positions):
                target.is_filled = True

    @property
    def is_full(self) -> bool:
        """Whether all rows of an answer have come."""
        return self._put > 0 and self._put == len(self._target.positions)

    def arrays(self) -> Arrays:
        """Return an array without rows: they are in place."""
        return {self._name: self._buffer[:0]}

    def close(self) -> None:
        """Put nothing more in place; wait for what is being put."""
        with self._putting:
            self._closed = True
