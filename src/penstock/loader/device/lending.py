"""Keeps slots that a user has dropped until the GPU has read them.

With `pin_memory` the user copies batches to the GPU himself, out of the slots. A copy may still be
under way when he drops the batch, and CUDA does not tell which memory it reads. So a dropped batch
is kept until the next one is asked for, and on until the GPU has passed what it had been told by
then, in the stream that is current and in the default one.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.loader.device.gpu import Gpu, Mark

Arrays = Mapping[str, npt.NDArray[Any]]
# Dropped batches that are waited for at most, where nothing else bounds them.
_MOST: Final = 4


class Lending:
    """The batches of one loader that a user has, or has dropped."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._owner = os.getpid()
        # Appended to by finalizers, in any thread and at any moment.
        self.dropped: deque[Arrays] = deque()
        self._passing: deque[tuple[list[Mark], Arrays]] = deque()
        self.is_closed = False

    def lend(self, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
        """Return the same arrays for the user; they are kept until the GPU is done with them."""
        token = _Token(self, arrays)
        return {
            name: np.asarray(_View(array, token)) if array.nbytes else array
            for name, array in arrays.items()
        }

    def look(self, room: Callable[[], int | None]) -> None:
        """Let go of batches that the GPU is done with; wait for some if there is no room.

        Args:
            room: Returns how many more batches may be lent; None: any number.
        """
        while self.dropped:  # an interrupt may leave one in both
            self._passing.append((self._gpu.user_marks(), self.dropped[0]))
            self.dropped.popleft()
        while self._passing:
            marks, _ = self._passing[0]
            if not all(mark.passed() for mark in marks):
                left = room()
                if left is None:
                    left = _MOST - len(self._passing)
                if left > 0:
                    return
                for mark in marks:
                    mark.wait()
            self._passing.popleft()

    def close(self) -> None:
        """Wait for what was dropped. Idempotent."""
        self.is_closed = True
        self.look(lambda: 0)

    def end(
        self,
        is_exiting: Callable[[], bool] = sys.is_finalizing,
        process: Callable[[], int] = os.getpid,
    ) -> None:
        """Close, from a finalizer."""
        # At exit everything goes at once, and in a fork there is no CUDA.
        if not is_exiting() and process() == getattr(self, "_owner", None):
            self.close()

    def __del__(self) -> None:
        self.end()  # the loader has gone, and now the user's last batch


class _Token:
    """Says to whom arrays were lent; the last view of any of them that goes drops them all."""

    __slots__ = ("_arrays", "_lending")

    def __init__(self, lending: Lending, arrays: Arrays) -> None:
        self._lending = lending
        self._arrays = arrays  # last: an interrupt may have come before

    def __del__(self) -> None:
        if (arrays := getattr(self, "_arrays", None)) is None:
            return
        lending = self._lending
        lending.dropped.append(arrays)
        if lending.is_closed:  # nobody else will look
            lending.end()


class _View:
    """The base object of an array over memory that was lent."""

    __slots__ = ("__array_interface__", "_token")

    def __init__(self, array: npt.NDArray[Any], token: _Token) -> None:
        self._token = token
        self.__array_interface__: dict[str, Any] = array.__array_interface__
