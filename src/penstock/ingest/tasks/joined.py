"""What several tasks have made, side by side, as one; it is read as often as one likes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph.checksum import Bytes
from penstock.graph.external.scratch import append
from penstock.graph.partition.book import ArrayBook, PartitionBook
from penstock.ingest.cutting.owners import Owners
from penstock.ingest.cutting.segments import Segment, Segments
from penstock.ingest.features import Streamed
from penstock.ingest.numbering import KeyNumbers, KeySpool, Numbering
from penstock.ingest.tables import MOST_ROWS, Mask
from penstock.ingest.workspace import Spool, Workspace

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]


# --- files ---------------------------------------------------------------------------------------


class JoinedSegment(Segment):
    """An array in files that stand one after the other."""

    def __init__(self, dtype: str, shape: tuple[int, ...], each: Sequence[Segment]) -> None:
        self.dtype = dtype
        self.shape = shape
        self._each = [segment.kept() for segment in each if np.prod(segment.shape)]

    def pieces(self) -> Iterator[Bytes]:
        def all_bytes() -> Iterator[Bytes]:
            return chain.from_iterable(segment.pieces() for segment in self._each)

        return Streamed(self.dtype, self.shape, all_bytes).pieces()

    def blocks(self, rows: int) -> Iterator[Array]:
        return chain.from_iterable(segment.blocks(rows) for segment in self._each)

    def mapped(self) -> Array:
        if not self._each:
            return np.empty(self.shape, self.dtype)
        (one,) = self._each
        return one.mapped()

    def kept(self) -> Segment:
        return self

    def remove(self) -> None:
        """Leave the files: they are removed when all of the part has been written."""


class JoinedSegments(Segments):
    """What parts get of an array, given out by several tasks.

    Attributes:
        each: What each of them has given out.
    """

    def __init__(self, each: Sequence[Segments]) -> None:
        self.dtype = each[0].dtype
        self.shape = each[0].shape
        self.num_rows = np.sum([segments.num_rows for segments in each], axis=0)
        self.each = each

    def of(self, part: int) -> Segment:
        shape = (int(self.num_rows[part]), *self.shape)
        return JoinedSegment(self.dtype, shape, [segments.of(part) for segments in self.each])


def kept_array(name: str, array: Any, workspace: Workspace) -> Segment:
    """Write an array to a file."""
    path = workspace.path(f"{name}.tmp")
    append(path, array.pieces())
    return Segment(path, array.dtype, array.shape, is_kept=True)


class JoinedSpool(Spool):
    """Rows in files that stand one after the other."""

    def __init__(self, each: Sequence[Spool]) -> None:
        self._each = each
        self.num_rows = sum(spool.num_rows for spool in each)

    def pieces(self, rows: int) -> Iterator[Array]:
        return chain.from_iterable(spool.pieces(rows) for spool in self._each)


# --- which rows, and whose -----------------------------------------------------------------------


class _Spans:
    """Things that stand one after the other, and which of them some places are in."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._begins = [0, *accumulate(sizes)]

    def within(self, begin: int, end: int) -> Iterator[tuple[int, slice]]:
        """Yield which of them has some of these places, and where in it they are."""
        at = bisect_right(self._begins, begin) - 1
        while begin < end:
            first, last = self._begins[at : at + 2]
            if begin < last:
                yield at, slice(begin - first, min(end, last) - first)
            begin, at = max(begin, last), at + 1


class JoinedOwners:
    """The parts of edges, in order of their ids."""

    def __init__(self, each: Sequence[Spool]) -> None:
        self.size = sum(spool.num_rows for spool in each)
        self._each = each
        self._spans = _Spans([spool.num_rows for spool in each])

    def parts(self, begin: int, end: int) -> Array:
        found = [self._each[at].mapped()[some] for at, some in self._spans.within(begin, end)]
        return np.concatenate(found) if found else np.empty(0, np.uint8)


class OwnersFrom:
    """The parts of rows from one on."""

    def __init__(self, owners: Owners, first: int, size: int) -> None:
        self.size = size
        self._owners = owners
        self._first = first

    def parts(self, begin: int, end: int) -> Array:
        return self._owners.parts(self._first + begin, self._first + end)


class JoinedMask:
    """Which rows of a table are meant, said run by run."""

    def __init__(self, each: Sequence[Mask | None], sizes: Sequence[int]) -> None:
        self._each = each
        self._spans = _Spans(sizes)

    def __getitem__(self, rows: slice) -> Flags:
        found = []
        for at, some in self._spans.within(rows.start, rows.stop):
            mask = self._each[at]
            found.append(np.ones(some.stop - some.start, np.bool_) if mask is None else mask[some])
        return np.concatenate(found) if found else np.empty(0, np.bool_)


class MaskFrom:
    """Which rows from one on are meant."""

    def __init__(self, mask: Mask, first: int) -> None:
        self._mask = mask
        self._first = first

    def __getitem__(self, rows: slice) -> Flags:
        return self._mask[self._first + rows.start : self._first + rows.stop]


# --- in files, and pickled as their paths --------------------------------------------------------


class FiledMask:
    """Which rows are meant."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    @classmethod
    def of(cls, mask: Mask, num_rows: int, workspace: Workspace) -> FiledMask:
        """Write a mask to a file."""
        spool = workspace.spool(np.bool_)
        for begin in range(0, num_rows, MOST_ROWS):
            spool.append(mask[begin : min(num_rows, begin + MOST_ROWS)])
        return cls(spool)

    def __getitem__(self, rows: slice) -> Flags:
        return self._spool.mapped()[rows]

    def counts(self, sizes: Sequence[int]) -> list[int]:
        """Return how many rows are meant of so many after so many."""
        mapped, ends = self._spool.mapped(), [0, *accumulate(sizes)]
        return [int(np.count_nonzero(mapped[begin:end])) for begin, end in pairwise(ends)]


class FiledBook(ArrayBook):
    """The part of each node."""

    def __init__(self, spool: Spool, num_partitions: int) -> None:
        super().__init__(spool.mapped(), num_partitions)
        self._spool = spool

    def __reduce__(self) -> tuple[Any, ...]:
        return FiledBook, (self._spool, self.num_partitions)


class FiledNumbers(KeyNumbers):
    """Ids of users, and the table that finds them."""

    def __init__(self, label: str, ids: KeySpool, slots: Spool) -> None:
        super().__init__(label, ids, slots.mapped())
        self._args = (label, ids, slots)

    def __reduce__(self) -> tuple[Any, ...]:
        return FiledNumbers, self._args

    def remove(self) -> None:
        """Remove the files: nothing is looked up any more."""
        _, ids, slots = self._args
        ids.remove()
        slots.remove()


def filed_book(book: PartitionBook, workspace: Workspace) -> PartitionBook:
    """Return a book that tasks can be told of."""
    if not isinstance(book, ArrayBook):
        return book
    spool = workspace.spool(book.parts.dtype)
    spool.append(book.parts)
    return FiledBook(spool, book.num_partitions)


def filed_numbers(label: str, numbering: Numbering, workspace: Workspace) -> Numbering:
    """Return a numbering that tasks can be told of."""
    if not isinstance(numbering, KeyNumbers):
        return numbering
    slots = numbering.slots()
    spool = workspace.spool(slots.dtype)
    for begin in range(0, len(slots), 1 << 20):
        spool.append(slots[begin : begin + (1 << 20)])
    return FiledNumbers(label, numbering.ids, spool)
