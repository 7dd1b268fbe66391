"""Private memory for batches, reused when the last view of a batch is gone.

Fresh memory costs page faults, which take longer than filling it. Batches differ in size, so each
buffer has some room to spare. A reader that keeps its batches simply gets new buffers.
"""

from __future__ import annotations

import mmap
from collections import deque
from typing import Any, Final

import numpy as np

from penstock.wire.frames import Bytes

# How much larger than asked for a new buffer is, so that a somewhat larger batch fits, too. Pages
# that are not touched cost nothing.
_SPARE: Final = 1.25
_GRAIN: Final = 1 << 16


class BufferPool:
    """A pool that keeps at most `kept` unused buffers."""

    def __init__(self, kept: int) -> None:
        # A deque, because finalizers return buffers in any thread and at any moment.
        self._kept: deque[Bytes] = deque(maxlen=kept)

    def lend(self, nbytes: int) -> Bytes:
        """Return `nbytes` bytes, which come back to the pool when the last view of them is gone."""
        return np.asarray(_Loan(self._piece(nbytes), self._kept))[:nbytes]

    def _piece(self, nbytes: int) -> Bytes:
        """Return the buffer that was returned last and is large enough; else a new one.

        Others stay for payloads that they fit. If all are too small, the oldest goes: payloads have
        become larger.
        """
        others: list[Bytes] = []
        try:
            while True:
                piece = self._kept.pop()
                if piece.nbytes >= nbytes:
                    return piece
                others.append(piece)
        except IndexError:
            if others:
                others.pop()
            return _whole_pages(-(-int(nbytes * _SPARE) // _GRAIN) * _GRAIN)
        finally:
            self._kept.extend(reversed(others))


def lasting(memory: Bytes) -> Bytes | None:
    """Return the buffer that lent memory is a piece of; None if no pool has lent it."""
    base: Any = memory
    while base is not None:
        if isinstance(base, _Loan):
            return base.piece
        base = getattr(base, "base", None)
    return None


def _whole_pages(nbytes: int) -> Bytes:
    """Return new private memory, not cleared. Nothing else is in its pages if it has whole ones."""
    room = np.empty(nbytes + mmap.PAGESIZE, np.uint8)
    start = -room.ctypes.data % mmap.PAGESIZE
    return room[start : start + nbytes]


class _Loan:
    """The base object of all arrays over a buffer; when it ends, the buffer is returned."""

    __slots__ = ("__array_interface__", "_home", "piece")

    def __init__(self, piece: Bytes, home: deque[Bytes]) -> None:
        self.__array_interface__: dict[str, Any] = piece.__array_interface__
        self._home = home
        self.piece = piece  # last: an interrupt may have come before

    def __del__(self) -> None:
        if (piece := getattr(self, "piece", None)) is not None:
            self._home.append(piece)
