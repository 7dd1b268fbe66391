"""Checksums of arrays that tasks write by ranges: each digests the pieces that lie within its own.

What is left at both ends of a range, 16 MiB at most each, is in a file. Whoever has all ranges
digests these, and so has the checksum of the array.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.graph.checksum import PIECE_NBYTES, Bytes
from penstock.graph.external.scratch import append
from penstock.ingest.cutting.sums import Sum


@dataclass(frozen=True)
class RangeSummed:
    """What is known of the sum of a range of an array.

    Attributes:
        begin: Where it begins, in bytes.
        end: Where it ends.
        head: How many bytes there are before the first piece within.
        digests: Those of the pieces within.
        path: The file with the bytes before these, and those after them.
    """

    begin: int
    end: int
    head: int
    digests: tuple[bytes, ...]
    path: Path


class RangeSum:
    """Sums up a range of an array, whose bytes come in pieces of any size."""

    def __init__(self, begin: int, path: Path) -> None:
        self._begin = self._end = begin
        self._head = -begin % PIECE_NBYTES
        self._path = path
        self._within = Sum()

    def add(self, data: Bytes) -> None:
        """Add the bytes that come next."""
        done = self._end - self._begin
        self._end += len(data)
        if done < self._head:
            own = data[: self._head - done]
            append(self._path, [own])
            data = data[len(own) :]
        self._within.add(data)

    def summed(self) -> RangeSummed:
        """Return what is known, once all bytes have been added."""
        digests, tail = self._within.taken()
        if len(tail):
            append(self._path, [tail])
        head = min(self._head, self._end - self._begin)
        return RangeSummed(self._begin, self._end, head, digests, self._path)


def checksum_of(ranges: Iterable[RangeSummed]) -> str:
    """Return the checksum of an array from its ranges, in order."""
    total, at = Sum(), 0
    for each in ranges:
        assert each.begin == at, "ranges of an array that do not follow each other"
        at = each.end
        if each.begin == each.end:
            continue
        left = each.end - each.begin - PIECE_NBYTES * len(each.digests)
        ends = np.fromfile(each.path, np.uint8) if left else np.empty(0, np.uint8)
        assert len(ends) == left, each.path
        total.add(ends[: each.head])
        total.add_digests(each.digests)
        total.add(ends[each.head :])
    return total.checksum()
