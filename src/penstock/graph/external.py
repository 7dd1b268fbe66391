"""Sorts edges by destination out of core: `Graph.from_coo` for more edges than memory holds.

Edges come in order of their ids and are shared out to buckets by destination. A bucket is small
enough to be sorted in memory, which happens while the graph is written. One that is not, because
many edges lead to few nodes, is shared out again; the edges of one node need no sorting.

The bytes of the result are those that `Graph.from_coo` makes. This module knows nothing about where
edges come from.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.graph.buckets import MOST_KEYS, Bucket, Buckets
from penstock.graph.checksum import PIECE_NBYTES, Bytes, pieces
from penstock.graph.schema import ArrayKey, EdgeType
from penstock.graph.scratch import Scratch, append, numbers_of
from penstock.graph.topology import id_dtype, specs, topology_keys
from penstock.kernels import first_outside, is_sorted
from penstock.kernels.arrays import Array, Ids, as_numbers, check_integer
from penstock.kernels.buckets import (
    Repeats,
    all_members,
    count_records,
    drop,
    find_repeats,
    ranked,
    sort_records,
    unpack_records,
)
from penstock.kernels.members import WORD_BITS, Members

Keep: TypeAlias = Literal["keep", "drop", "refuse"]
KEEP: Final = ("keep", "drop", "refuse")

LEAST_MEMORY: Final = 1 << 20
_MOST_THREADS: Final = 4
# What is sorted at a time: enough that threads are kept busy, and that few pieces have to be put
# together of two.
_MOST_UNIT_NBYTES: Final = 4 * PIECE_NBYTES
# Chunks of edges that wait to be shared out.
_MOST_WAITING: Final = 2


class ExternalEdges:
    """Edges of one type that come in order of their ids, sorted by destination out of core.

    Use it in a `with` statement: temporary files are removed when it is closed. What a process left
    that was killed is removed when the next one begins to work in the same folder.
    """

    def __init__(
        self,
        folder: Path,
        num_sources: int,
        num_destinations: int,
        memory: int,
        *,
        self_loops: Keep = "keep",
        duplicates: Keep = "keep",
    ) -> None:
        """Prepare for edges.

        Args:
            folder: Where temporary files go, in a folder of their own.
            num_sources: How many nodes edges may come from.
            num_destinations: How many nodes edges may lead to.
            memory: How many bytes of memory to use, about; beside it, one piece of a file (16 MB).
            self_loops: Whether edges of a node to itself are kept, dropped or refused.
            duplicates: Whether edges with the ends of an earlier one are kept, dropped or refused.
        """
        self._num_sources = check_integer(num_sources, "num_sources", 0, MOST_KEYS)
        self._num_destinations = check_integer(num_destinations, "num_destinations", 0, MOST_KEYS)
        self._memory = check_integer(memory, "memory", LEAST_MEMORY, 2**62)
        self._self_loops = _checked("self_loops", self_loops)
        self._duplicates = _checked("duplicates", duplicates)
        self._num_given = 0
        self._is_sorted = True
        self._last = -1
        self._loops: Path | None = None
        self._failed: BaseException | None = None
        self._waiting: deque[Future[None]] = deque()
        self._thread = ThreadPoolExecutor(1, "penstock-edges")
        self._scratch = Scratch(folder)
        try:
            keys, pool = self._num_destinations, self._memory * 3 // 8
            self._buckets = Buckets(self._scratch, "edges", 0, keys, self._num_sources, pool)
        except BaseException:
            self.close()
            raise

    def add(self, sources: Array, destinations: Array) -> None:
        """Add a chunk of edges: int32 or int64, whose memory must not be written to afterwards.

        Raises:
            ValueError: An end is out of range, or an edge is refused.
            OSError: The disk is full, or failed; maybe at an earlier chunk.
        """
        sources = as_numbers(sources, "sources")
        destinations = as_numbers(destinations, "destinations")
        if len(sources) != len(destinations):
            raise ValueError(
                f"{len(sources)} sources are given, and {len(destinations)} destinations"
            )
        self._check("source", sources, self._num_sources)
        self._check("destination", destinations, self._num_destinations)
        first, count = self._num_given, len(sources)
        ids: Ids | int = first
        if self._self_loops != "keep":
            sources, destinations, ids = self._without_loops(sources, destinations, first)
        self._num_given += count
        if not len(sources):
            return
        self._note_order(destinations)
        self._wait(_MOST_WAITING - 1)
        self._waiting.append(self._thread.submit(self._buckets.add, sources, destinations, ids))

    def finish(self) -> SortedEdges:
        """Return the edges, which are sorted when they are written.

        They are valid until this object is closed.

        Raises:
            ValueError: There is an edge twice, which was to be refused.
            OSError: The disk is full, or failed.
        """
        self._wait(0)
        self._thread.shutdown()
        work = _Work(self._scratch, self._num_sources, self._num_given, self._memory)
        buckets = list(work.expanded(self._buckets.finish(in_memory=True), work.is_large))
        kept, dropped = self._kept(work, buckets)
        return SortedEdges(work, buckets, dropped, kept, self._num_destinations, self._is_sorted)

    def close(self) -> None:
        """Remove temporary files."""
        self._thread.shutdown(cancel_futures=True)
        self._scratch.close()

    def __enter__(self) -> ExternalEdges:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, most: int) -> None:
        """Return when no more than so many chunks wait. After an error there are no more edges."""
        while self._failed is None and len(self._waiting) > most:
            self._failed = self._waiting.popleft().exception()
        if self._failed is not None:
            raise self._failed

    def _check(self, end: str, ids: Array, bound: int) -> None:
        bad = first_outside(ids, bound)
        if bad >= 0:
            raise ValueError(
                f"edge {self._num_given + bad} has the {end} {ids[bad]}; expected 0 <= id < {bound}"
            )

    def _note_order(self, destinations: Array) -> None:
        if self._is_sorted:
            self._is_sorted = int(destinations[0]) >= self._last and is_sorted(destinations)
            self._last = int(destinations[-1])

    def _without_loops(
        self, sources: Array, destinations: Array, first: int
    ) -> tuple[Array, Array, Ids | int]:
        loops = sources == destinations
        found = np.flatnonzero(loops)
        if not len(found):
            return sources, destinations, first
        if self._self_loops == "refuse":
            node = sources[found[0]]
            raise ValueError(f"edge {first + found[0]} leads from node {node} to itself")
        self._loops = self._scratch.path("loops")
        append(self._loops, [(found + first).view(np.uint8)])
        left = np.flatnonzero(~loops)
        return sources[left], destinations[left], left + first

    def _kept(self, work: _Work, buckets: list[Bucket]) -> tuple[Members | None, list[int]]:
        """Return which edges stay (None: all), and how many of each bucket do not."""
        dropped = [0] * len(buckets)
        kept = None
        if self._loops is not None or self._duplicates == "drop":
            kept = work.all_edges()
        if self._duplicates != "keep":
            repeats = work.repeats(buckets, kept)
            dropped = [each.total for each in repeats]
            if self._duplicates == "refuse":
                _refuse(buckets, repeats)
        if kept is None or (self._loops is None and not any(dropped)):
            return None, dropped
        if self._loops is not None:
            for loops in numbers_of(self._loops):
                drop(kept, loops)
        return ranked(kept.words, kept.size), dropped


@dataclass(frozen=True, eq=False)
class _Source:
    """An array that is made while it is written."""

    dtype: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[Bytes]]


class SortedEdges:
    """Edges sorted by destination, to be written once; `indptr` best after `adjacency`.

    Attributes:
        num_edges: How many edges there are, without those that were dropped.
        indptr: Where the edges of each destination begin; the array of a graph of that name.
        adjacency: The sources, with the ids of edges beside them unless edges came sorted.
    """

    def __init__(
        self,
        work: _Work,
        buckets: list[Bucket],
        dropped: list[int],
        kept: Members | None,
        num_rows: int,
        came_sorted: bool,
    ) -> None:
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
        indptr, adjacency = specs(num_rows, self._work.num_sources, self.num_edges, paired=paired)
        self.indptr = _Source(*indptr, self._pieces_of_indptr)
        self.adjacency = _Source(*adjacency, self._pieces_of_adjacency)

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

    def _pieces_of_adjacency(self) -> Iterator[Bytes]:
        with self._lock:
            if self._is_taken:
                raise ValueError("sorted edges can be written once: their files have been removed")
            self._is_taken = True
            yield from _in_pieces(self._made(self.adjacency, lambda bucket: bucket.remove()))
            self._is_counted = True

    def _made(self, adjacency: _Source, done: Callable[[Bucket], object]) -> Iterator[Bytes]:
        """Yield the bytes of rows in order; `done` is called with buckets that are used up."""
        dtype, width = np.dtype(adjacency.dtype), math.prod(adjacency.shape[1:])
        with self._work.threads() as threads:
            coming: deque[_Unit] = deque()
            rest: list[Array] = [np.empty(0, dtype), np.empty(0, dtype)]
            for buckets, begin, counts in self._units(dtype.itemsize * width):
                if len(buckets) == 1 and self._work.is_large(buckets[0]):
                    while coming:
                        yield coming.popleft().result()
                    yield from self._row(buckets[0], begin, counts[0], dtype, width)
                    done(buckets[0])
                    continue
                size = sum(counts) * width
                if len(rest[0]) < size:
                    rest[0] = np.empty(size, dtype)
                out = rest[0][:size].reshape(-1, *adjacency.shape[1:])
                rest.reverse()
                coming.append(self._unit(threads, buckets, begin, counts, out, done))
                if len(coming) == 2:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()

    def _units(self, width: int) -> Iterator[tuple[list[Bucket], int, list[int]]]:
        """Yield buckets to sort together, where their edges begin, and how many there are."""
        limit = min(self._work.memory // 8, _MOST_UNIT_NBYTES) // width
        begin = 0
        buckets: list[Bucket] = []
        counts: list[int] = []
        for bucket, count in zip(self._buckets, self._counts, strict=True):
            large = self._work.is_large(bucket)
            if buckets and (large or sum(counts) + count > limit):
                yield buckets, begin, counts
                begin, buckets, counts = begin + sum(counts), [], []
            buckets.append(bucket)
            counts.append(count)
            if large:
                yield buckets, begin, counts
                begin, buckets, counts = begin + sum(counts), [], []
        if buckets:
            yield buckets, begin, counts

    def _unit(
        self,
        threads: ThreadPoolExecutor,
        buckets: list[Bucket],
        begin: int,
        counts: list[int],
        out: Array,
        done: Callable[[Bucket], object],
    ) -> _Unit:
        tasks, at = [], 0
        for bucket, count in zip(buckets, counts, strict=True):
            entries = out[at : at + count]
            tasks.append(threads.submit(self._sort, bucket, begin + at, entries, done))
            at += count
        return _Unit(out, tasks)

    def _sort(
        self, bucket: Bucket, begin: int, entries: Array, done: Callable[[Bucket], object]
    ) -> None:
        sort_records(
            bucket.load(),
            bucket.record,
            begin,
            self._work.num_sources,
            self._ends(bucket),
            entries,
            self._kept,
        )
        done(bucket)

    def _row(
        self, bucket: Bucket, begin: int, count: int, dtype: np.dtype[Any], width: int
    ) -> Iterator[Bytes]:
        """Yield the edges of one row that is too long to be held: they need no sorting."""
        found = 0
        for sources, ids in self._work.edges_of(bucket):
            if self._kept is not None:
                ids = self._kept.rows(ids)
                sources, ids = sources[ids >= 0], ids[ids >= 0]
            found += len(ids)
            entries = np.stack([sources, ids], axis=1) if width == 2 else sources
            yield entries.astype(dtype).reshape(-1).view(np.uint8)
        assert found == count
        self._ends(bucket)[:] = begin + count

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
            ids = made.view(self.adjacency.dtype).reshape(-1, 2)[:, 1]
            if not np.array_equal(ids, np.arange(expected, expected + len(ids))):
                return False
            expected += len(ids)
        return True


@dataclass(frozen=True, eq=False)
class _Unit:
    """Rows that are being sorted."""

    entries: Array
    tasks: Sequence[Future[None]]

    def result(self) -> Bytes:
        for task in self.tasks:
            task.result()
        return self.entries.reshape(-1).view(np.uint8)


@dataclass(frozen=True)
class _Work:
    """What sorting works with. Of the memory, three eighths are the pool of buckets."""

    scratch: Scratch
    num_sources: int
    num_given: int
    memory: int

    def threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(min(_cores(), _MOST_THREADS), "penstock-sort")

    def is_large(self, bucket: Bucket) -> bool:
        """Return whether a bucket is not to be sorted in memory."""
        width = np.dtype(self._dtype).itemsize
        return max(bucket.nbytes, 2 * width * bucket.num_edges) > self.memory // 16

    @property
    def _dtype(self) -> str:
        return id_dtype(max(self.num_sources, self.num_given))

    def expanded(
        self, buckets: Sequence[Bucket], is_large: Callable[[Bucket], bool], name: str = "edges"
    ) -> Iterator[Bucket]:
        """Yield buckets, sharing out large ones again; those of one row cannot be."""
        for number, bucket in enumerate(buckets):
            if bucket.num_rows == 1 or not is_large(bucket):
                yield bucket
                continue
            finer = f"{name}-{number}"
            again = Buckets(
                self.scratch,
                finer,
                bucket.first_row,
                bucket.num_rows,
                self.num_sources,
                self.memory // 8,
            )
            for sources, rows, ids in self._unpacked(bucket):
                again.add(sources, rows + bucket.first_row, ids)
            bucket.remove()
            yield from self.expanded(again.finish(in_memory=False), is_large, finer)

    def edges_of(self, bucket: Bucket) -> Iterator[tuple[Ids, Ids]]:
        """Yield sources and ids of a bucket, in order of ids."""
        return ((sources, ids) for sources, _, ids in self._unpacked(bucket))

    def _unpacked(self, bucket: Bucket) -> Iterator[tuple[Ids, Ids, Ids]]:
        upper = 0
        for part in bucket.parts(self.memory // 64):
            sources, rows, ids, upper = unpack_records(part, bucket.record, upper)
            yield sources, rows, ids

    # --- which edges stay ---

    def all_edges(self) -> Members:
        shape = [-(-self.num_given // WORD_BITS), 2]
        words = self.scratch.array("kept", np.uint64, shape, self.memory // 16)
        return all_members(self.num_given, words)

    def repeats(self, buckets: Sequence[Bucket], kept: Members | None) -> list[Repeats]:
        """Find edges that repeat earlier ones, in each bucket; they do not stay."""
        with self.threads() as threads:
            small = [
                None if self.is_large(bucket) else threads.submit(self._repeats, bucket, kept)
                for bucket in buckets
            ]
            found = [None if task is None else task.result() for task in small]
        return [
            self._repeats_of_row(bucket, kept) if one is None else one
            for bucket, one in zip(buckets, found, strict=True)
        ]

    def _repeats(self, bucket: Bucket, kept: Members | None) -> Repeats:
        ends = np.empty(bucket.num_rows, np.int64)
        entries = np.empty((bucket.num_edges, 2), self._dtype)
        sort_records(bucket.load(), bucket.record, 0, self.num_sources, ends, entries)
        return find_repeats(ends, entries, 0, kept)

    def _repeats_of_row(self, bucket: Bucket, kept: Members | None) -> Repeats:
        """Find them in a row that is too long to be held: by the sources of its edges."""
        by_source = Buckets(
            self.scratch,
            f"row-{bucket.first_row}",
            0,
            self.num_sources,
            self.num_sources,
            self.memory // 8,
        )
        for sources, ids in self.edges_of(bucket):
            by_source.add(sources, sources, ids)
        count, lowest = 0, Repeats(0, -1, -1, -1)
        for part in self.expanded(
            by_source.finish(in_memory=False), self._has_many_rows, f"row-{bucket.first_row}"
        ):
            if part.num_edges:
                found = (
                    self._repeats_of_one(part, kept)
                    if self._has_many_rows(part)
                    else self._repeats(part, kept)
                )
                count += found.total
                if found.total and (lowest.id < 0 or found.id < lowest.id):
                    lowest = found
            part.remove()
        return Repeats(count, lowest.id, lowest.source, 0)

    def _has_many_rows(self, bucket: Bucket) -> bool:
        return bucket.num_edges > 0 and (
            self.is_large(bucket) or 8 * bucket.num_rows > self.memory // 16
        )

    def _repeats_of_one(self, bucket: Bucket, kept: Members | None) -> Repeats:
        """Find them among edges that all have the same ends: all but the first."""
        lowest, seen = -1, 0
        for _, ids in self.edges_of(bucket):
            later = ids[1:] if not seen else ids
            if kept is not None:
                drop(kept, later)
            if lowest < 0 and len(later):
                lowest = int(later[0])
            seen += len(ids)
        return Repeats(seen - 1, lowest, bucket.first_row, 0)


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


def _refuse(buckets: Sequence[Bucket], found: Sequence[Repeats]) -> None:
    first = min(
        (
            (each.id, each.source, bucket.first_row + each.row)
            for bucket, each in zip(buckets, found, strict=True)
            if each.total
        ),
        default=None,
    )
    if first is not None:
        total = sum(each.total for each in found)
        raise ValueError(
            f"edge {first[0]} leads from {first[1]} to {first[2]}, as an earlier one does; "
            f"{total} edges are such duplicates"
        )


def _checked(name: str, value: Keep) -> Keep:
    if value not in KEEP:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, KEEP))}")
    return value


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
