"""Private memory for batches, reused when the last view of a batch has gone.

Fresh memory is paid for in page faults, which cost more than filling it. Batches differ in size, so
each piece has some room to spare; a reader that holds on to its batches simply gets new ones.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Final

import numpy as np

from penstock.wire.frames import Bytes, private_memory

# What a batch is larger than most by, for which no new memory is taken. Pages that are not touched
# cost nothing.
_SPARE: Final = 1.25
_GRAIN: Final = 1 << 16


class BufferPool:
    """Keeps `kept` pieces."""

    def __init__(self, kept: int) -> None:
        # A deque, because pieces come back in any thread, in the middle of anything.
        self._kept: deque[Bytes] = deque(maxlen=kept)

    def lend(self, nbytes: int) -> Bytes:
        """`nbytes` bytes, which come back when the last view of them has gone."""
        piece = self._piece(nbytes)
        loan = _Loan(piece)
        weakref.finalize(loan, self._kept.append, piece).atexit = False
        return np.asarray(loan)[:nbytes]

    def _piece(self, nbytes: int) -> Bytes:
        """One that is there and large enough, those returned last first; else a new one.

        One that is too small is let go of: batches have become larger.
        """
        while True:
            try:
                piece = self._kept.pop()
            except IndexError:
                return private_memory(-(-int(nbytes * _SPARE) // _GRAIN) * _GRAIN)
            if piece.nbytes >= nbytes:
                return piece


class _Loan:
    """What arrays over a piece hold on to."""

    def __init__(self, memory: Bytes) -> None:
        self.__array_interface__: dict[str, Any] = memory.__array_interface__
