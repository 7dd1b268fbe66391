"""Private memory that is lent to batches and used again when they have gone.

Fresh memory of a batch's size is paid for in page faults, which cost more than filling it. So a few
pieces are kept; a reader that holds on to its batches simply gets new ones.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Final

import numpy as np

from penstock.wire.frames import Bytes, private_memory

_KEPT: Final = 2


class PrivateMemory:
    """Pieces of `nbytes` bytes each; as `Arena.lend`, without slots."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        # A deque, because pieces come back in any thread, in the middle of anything.
        self._kept: deque[Bytes] = deque(maxlen=_KEPT)

    def lend(self) -> Bytes:
        """A piece, which comes back when the last view of it has gone."""
        try:
            memory = self._kept.pop()
        except IndexError:
            memory = private_memory(self._nbytes)
        loan = _Loan(memory)
        weakref.finalize(loan, self._kept.append, memory).atexit = False
        return np.asarray(loan)


class _Loan:
    """What arrays over a piece hold on to."""

    def __init__(self, memory: Bytes) -> None:
        self.__array_interface__: dict[str, Any] = memory.__array_interface__
