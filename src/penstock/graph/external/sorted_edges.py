"""Edges sorted by destination, whose arrays are made while they are written.

Buckets are sorted by several threads, a unit of them at a time: while one unit is written, the next
is made.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.graph.checksum import PIECE_NBYTES, Bytes, pieces
from penstock.graph.external.buckets import Bucket
from penstock.graph.external.work import Work
from penstock.graph.schema import ArrayKey, EdgeType
from penstock.graph.topology import specs, topology_keys
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.buckets import count_records, sort_records
from penstock.kernels.members import WORD_BITS, Members

# What is sorted at a time: enough that threads are kept busy, and that few pieces have to be put
# together of two.
_MOST_UNIT_NBYTES: Final = 4 * PIECE_NBYTES
_MOST_UNIT_ROWS: Final = 1 << 18


@dataclass(frozen=True, eq=False)
class _Source:
    """An array that is made while it is written."""

    dtype: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[Bytes]]


class SortedRows(NamedTuple):
    """Some rows, one after the other.

    Attributes:
        first_row: The number of the first one.
        degrees: How many edges of each of them are here. A row that is too long to be held comes in
            several pieces, alone.
        entries: The edges, as in `adjacency`.
    """

    first_row: int
    degrees: Ids
    entries: Array

    @property
    def bytes(self) -> Bytes:
        """The bytes of the edges."""
        return self.entries.reshape(-1).view(np.uint8)


class SortedEdges:
    """Edges sorted by destination, to be written once; `indptr` best after `adjacency`.

    Attributes:
        num_edges: How many edges there are, without those that were dropped.
        indptr: Where the edges of each destination begin; the array of a graph of that name.
        adjacency: The sources, with the ids of edges beside them unless edges came sorted.
    """

    def __init__(
        self,
        work: Work,
        buckets: list[Bucket],
        dropped: list[int],
        kept: Members | None,
        num_rows: int,
        came_sorted: bool,
        out_of: int | None = None,
    ) -> None:
        # Of how many edges these have ids, if they are some of more.
        self._out_of = out_of
        self._work = work
        self._buckets = buckets
        self._counts = [
            bucket.num_edges - lost for bucket, lost in zip(buckets, dropped, strict=True)
        ]
        self._kept = kept
        self._offsets: Ids = work.scratch.array(
            "indptr", np.int64, [num_rows + 1], work.memory // 8
        )
        self._lock = threading.Lock()
        self._is_counted = self._is_taken = False
        self.num_edges = sum(self._counts)
        self._spec(num_rows, paired=True)
        if came_sorted or (any(dropped) and self._is_in_order()):
            self._spec(num_rows, paired=False)

    def _spec(self, num_rows: int, *, paired: bool) -> None:
        out_of = self.num_edges if self._out_of is None else self._out_of
        indptr, (dtype, shape) = specs(num_rows, self._work.num_sources, out_of, paired=paired)
        self.indptr = _Source(*indptr, self._pieces_of_indptr)
        shape = (self.num_edges, *shape[1:])
        self.adjacency = _Source(dtype, shape, self._pieces_of_adjacency)

    def arrays(self, edge_type: EdgeType) -> dict[ArrayKey, _Source]:
        """Return the two arrays by their keys, in the order in which to write them."""
        indptr, adjacency = topology_keys(edge_type, "csc")
        return {adjacency: self.adjacency, indptr: self.indptr}

    def kept(self, first: int, count: int) -> npt.NDArray[np.bool_] | None:
        """Return which of these edges stay, numbered as they were added; None if all edges do."""
        if self._kept is None:
            return None
        last = min(first + count, self._kept.size)
        begin = first // WORD_BITS
        words = self._kept.words[begin : -(-last // WORD_BITS), 0]
        bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")
        return bits[first - begin * WORD_BITS : last - begin * WORD_BITS].view(np.bool_)

    # --- adjacency ---

    def rows(self) -> Iterator[SortedRows]:
        """Yield all rows in order, in place of the pieces of `adjacency`.

        Rows are valid until the next ones are asked for.
        """
        with self._lock:
            if self._is_taken:
                raise ValueError("sorted edges can be written once: their files have been removed")
            self._is_taken = True
            yield from self._made(self.adjacency, lambda bucket: bucket.remove())
            self._is_counted = True

    def _pieces_of_adjacency(self) -> Iterator[Bytes]:
        return _in_pieces(rows.bytes for rows in self.rows())

    def _made(self, adjacency: _Source, done: Callable[[Bucket], object]) -> Iterator[SortedRows]:
        """Yield rows in order; `done` is called with buckets that are used up."""
        dtype, shape = np.dtype(adjacency.dtype), adjacency.shape[1:]
        width = math.prod(shape)
        with self._work.threads() as threads:
            coming: deque[_Rows] = deque()
            # The rows of one unit are written while those of the next are made.
            buffers = deque([np.empty(0, dtype), np.empty(0, dtype)])
            for unit in self._units(dtype.itemsize * width):
                if unit.is_large:
                    while coming:
                        yield self._ended(coming.popleft())
                    yield from self._row(unit, dtype, width)
                    done(unit.buckets[0])
                    continue
                if len(buffers[0]) < unit.count * width:
                    buffers[0] = np.empty(unit.count * width, dtype)
                entries = buffers[0][: unit.count * width].reshape(-1, *shape)
                buffers.rotate()
                coming.append(self._started(threads, unit, entries, done))
                if len(coming) == len(buffers):
                    yield self._ended(coming.popleft())
            while coming:
                yield self._ended(coming.popleft())

    def _units(self, width: int) -> Iterator[_Unit]:
        """Yield units of all buckets, in order; a large bucket is one by itself."""
        limit = min(self._work.memory // 8, _MOST_UNIT_NBYTES) // width
        unit = _Unit(0)
        for bucket, count in zip(self._buckets, self._counts, strict=True):
            is_large = self._work.is_large(bucket)
            is_full = (
                unit.count + count > limit or unit.num_rows + bucket.num_rows > _MOST_UNIT_ROWS
            )
            if unit.buckets and (is_large or unit.is_large or is_full):
                yield unit
                unit = _Unit(unit.begin + unit.count)
            unit.add(bucket, count, is_large)
        if unit.buckets:
            yield unit

    def _started(
        self,
        threads: ThreadPoolExecutor,
        unit: _Unit,
        entries: Array,
        done: Callable[[Bucket], object],
    ) -> _Rows:
        tasks, at = [], 0
        for bucket, count in zip(unit.buckets, unit.counts, strict=True):
            own = entries[at : at + count]
            tasks.append(threads.submit(self._sort, bucket, unit.begin + at, own, done))
            at += count
        return _Rows(unit, entries, tasks)

    def _ended(self, rows: _Rows) -> SortedRows:
        """Wait until rows are sorted."""
        for task in rows.tasks:
            task.result()
        first, last = rows.unit.buckets[0], rows.unit.buckets[-1]
        ends = self._offsets[first.first_row + 1 : last.first_row + last.num_rows + 1]
        return SortedRows(first.first_row, np.diff(ends, prepend=rows.unit.begin), rows.entries)

    def _sort(
        self, bucket: Bucket, begin: int, entries: Array, done: Callable[[Bucket], object]
    ) -> None:
        records, num_sources = bucket.load(), self._work.num_sources
        ends = self._ends(bucket)
        sort_records(records, bucket.record, begin, num_sources, ends, entries, self._kept)
        done(bucket)

    def _row(self, unit: _Unit, dtype: np.dtype[Any], width: int) -> Iterator[SortedRows]:
        """Yield the edges of one row that is too long to be held: they need no sorting."""
        (bucket,), found = unit.buckets, 0
        for sources, _, ids in self._work.edges_of(bucket):
            if self._kept is not None:
                ids = self._kept.rows(ids)
                sources, ids = sources[ids >= 0], ids[ids >= 0]
            found += len(ids)
            entries = np.stack([sources, ids], axis=1) if width == 2 else sources
            yield SortedRows(bucket.first_row, np.array([len(ids)]), entries.astype(dtype))
        assert found == unit.count
        self._ends(bucket)[:] = unit.begin + unit.count

    def _ends(self, bucket: Bucket) -> Ids:
        first = bucket.first_row + 1
        return self._offsets[first : first + bucket.num_rows]

    # --- indptr ---

    def _pieces_of_indptr(self) -> Iterator[Bytes]:
        with self._lock:
            if not self._is_counted:
                self._count()
        return pieces(self._offsets)

    def _count(self) -> None:
        """Find out where rows begin. Costs reading all buckets once more."""
        begin = 0
        for bucket, count in zip(self._buckets, self._counts, strict=True):
            if self._work.is_large(bucket):
                self._ends(bucket)[:] = begin + count
            else:
                count_records(bucket.load(), bucket.record, begin, self._ends(bucket), self._kept)
            begin += count
        self._is_counted = True

    def _is_in_order(self) -> bool:
        """Return whether edges that stay are sorted. Most others are seen not to be at once."""
        expected = 0
        for made in self._made(self.adjacency, lambda bucket: None):
            ids = made.entries[:, 1]
            if not np.array_equal(ids, np.arange(expected, expected + len(ids))):
                return False
            expected += len(ids)
        return True


class _Unit:
    """Buckets that are sorted together: where their edges begin, and how many each has."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.count = 0
        self.num_rows = 0
        self.buckets: list[Bucket] = []
        self.counts: list[int] = []
        self.is_large = False

    def add(self, bucket: Bucket, count: int, is_large: bool) -> None:
        self.buckets.append(bucket)
        self.counts.append(count)
        self.count += count
        self.num_rows += bucket.num_rows
        self.is_large = is_large


class _Rows(NamedTuple):
    """Rows of a unit that are being sorted."""

    unit: _Unit
    entries: Array
    tasks: Sequence[Future[None]]


def _in_pieces(arrays: Iterator[Bytes]) -> Iterator[Bytes]:
    """Yield the bytes of arrays in pieces of a file; each is used up before the next is made."""
    buffer, held, total = np.empty(0, np.uint8), 0, 0
    for array in arrays:
        total += len(array)
        if held:
            count = min(PIECE_NBYTES - held, len(array))
            buffer[held : held + count] = array[:count]
            held, array = held + count, array[count:]
            if held < PIECE_NBYTES:
                continue
            yield buffer
        held = len(array) % PIECE_NBYTES
        for begin in range(0, len(array) - held, PIECE_NBYTES):
            yield array[begin : begin + PIECE_NBYTES]
        if held and not len(buffer):
            buffer = np.empty(PIECE_NBYTES, np.uint8)
        buffer[:held] = array[len(array) - held :]
    if held or not total:
        yield buffer[:held]
