"""Page-locks memory that batches lie in, where it is.

A GPU copies from page-locked memory while the program goes on, and fast. The slots of a channel are
used again and again, so each range that batches fill is page-locked once and stays so for as long
as its memory is mapped. Only pages that arrays have filled are: a slot has room for the largest
possible batch, and locking a page takes memory for it.

A copy must not span two locked ranges, so every array lies in one of them. Where arrays grow, the
ranges that they touch are locked anew, as one.

A range is noted before it is locked, and until it is unlocked, since an interrupt may strike
anywhere. So what is noted need not be locked; whoever copies asks CUDA, too. And ranges of memory
that is gone may be left: they are unlocked before memory at their address is.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.loader.device.gpu import Gpu

log = logging.getLogger(__name__)

Bytes = npt.NDArray[np.uint8]
Span: TypeAlias = tuple[int, int]  # from an address to another
_PAGE: Final = mmap.PAGESIZE
# A range has room for arrays that are larger by so much, so that it is rarely locked anew.
_SPARE: Final = 0.125
_begin: Final = itemgetter(0)
_end: Final = itemgetter(1)


class Pins:
    """The page-locked ranges of one loader's memory. Any thread may drop memory that has some.

    Args:
        gpu: Whose CUDA locks them.
        most_bytes: How much is locked at most.
    """

    def __init__(self, gpu: Gpu, most_bytes: int) -> None:
        self._gpu = gpu
        self._most = most_bytes
        self._owner = os.getpid()
        self._spans: list[Span] = []  # in order; none overlap
        self._known: set[int] = set()  # the memory that some are in, by its address
        # Reentrant: memory may be dropped, and forgotten, in the middle of a call.
        self._lock = threading.RLock()
        self._is_refused = self._is_full = False

    @property
    def nbytes(self) -> int:
        """How many bytes are locked."""
        return sum(end - begin for begin, end in list(self._spans))

    def covers(self, begin: int, nbytes: int) -> bool:
        """Return whether one range has all these bytes."""
        with self._lock:
            at = bisect_right(self._spans, begin, key=_begin) - 1
            return at >= 0 and begin + nbytes <= self._spans[at][1]

    def cover(self, memory: Bytes, arrays: Iterable[npt.NDArray[Any]]) -> None:
        """Lock the pages of arrays in this memory, as far as the bound allows.

        Args:
            memory: Whole pages, which nothing else shares. Their ranges are unlocked when this
                object is gone, so it must live as long as anything is read from there.
            arrays: Arrays in it. Nobody may be copying from the memory.
        """
        if self._is_refused:
            return
        whole = address_of(memory), address_of(memory) + memory.nbytes
        with self._lock:
            if whole[0] not in self._known:
                self._unlock_within(whole)
                # Called before whatever unmaps the memory. Not at exit: CUDA may be gone by then.
                weakref.finalize(memory, self._forget, whole).atexit = False
                self._known.add(whole[0])
            for array in arrays:
                if array.nbytes and not self.covers(begin := address_of(array), array.nbytes):
                    self._lock_range(whole, begin, begin + array.nbytes)

    def _lock_range(self, whole: Span, begin: int, end: int) -> None:
        first, last, touched = self._around(whole, begin, end)
        if self.nbytes + last - first - sum(map(_size, touched)) > self._most:
            if not self._is_full:
                self._is_full = True
                log.info("%d bytes are page-locked: no more are; others are copied", self.nbytes)
            return
        for span in touched:
            self._unlock(span)
        insort(self._spans, (first, last))
        try:
            self._gpu.register(first, last - first)
        except RuntimeError as error:
            self._spans.remove((first, last))
            self._is_refused = True
            # As text: who keeps the record would keep the error, and its frames the loader.
            log.warning("memory is not page-locked, so moving batches takes longer: %s", str(error))

    def _around(self, whole: Span, begin: int, end: int) -> tuple[int, int, list[Span]]:
        """Return the range to lock for these bytes, and the locked ones that it takes in."""
        first, last = begin // _PAGE * _PAGE, -(-end // _PAGE) * _PAGE
        low = bisect_right(self._spans, first, key=_end)
        high = bisect_left(self._spans, last, key=_begin)
        touched = self._spans[low:high]
        if touched:
            first, last = min(first, touched[0][0]), max(last, touched[-1][1])
        # Room to grow, as far as the next range or the end of the memory.
        limit = min([whole[1], *(span[0] for span in self._spans[high : high + 1])])
        spare = last + int((end - begin) * _SPARE) // _PAGE * _PAGE
        return first, max(last, min(spare, limit // _PAGE * _PAGE)), touched

    def _unlock(self, span: Span) -> None:
        try:
            self._gpu.unregister(span[0])
        except Exception as error:  # it was not locked; or CUDA has failed, or is being taken down
            log.debug("page-locked memory was not released: %s", str(error))
        self._spans.remove(span)

    def _unlock_within(self, whole: Span) -> None:
        low = bisect_right(self._spans, whole[0], key=_end)
        high = bisect_left(self._spans, whole[1], key=_begin)
        for span in self._spans[low:high]:
            self._unlock(span)

    def _forget(self, whole: Span) -> None:
        """Unlock what is locked of memory that is about to go, whatever interrupts."""
        if os.getpid() != self._owner:  # in a fork CUDA does not work
            return
        try:
            with self._lock:
                self._known.discard(whole[0])
                self._unlock_within(whole)
        except KeyboardInterrupt:
            # Nobody comes back to this memory: Python only prints what a finalizer raises.
            self._forget(whole)
            raise


def _size(span: Span) -> int:
    return span[1] - span[0]


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first element."""
    return int(array.__array_interface__["data"][0])
