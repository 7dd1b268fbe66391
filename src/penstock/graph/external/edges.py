"""Takes edges in order of their ids, to sort them by destination out of core.

Edges are shared out to buckets by destination. A bucket is small enough to be sorted in memory,
which happens while the graph is written. One that is not, because many edges lead to few nodes, is
shared out again; the edges of one node need no sorting.

The bytes of the result are those that `Graph.from_coo` makes.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np

from penstock.graph.external.buckets import MOST_KEYS, Bucket, Buckets
from penstock.graph.external.duplicates import find_duplicates, refuse_duplicates
from penstock.graph.external.scratch import Scratch, append, numbers_of
from penstock.graph.external.sorted_edges import SortedEdges
from penstock.graph.external.work import Work
from penstock.kernels import first_outside, is_sorted
from penstock.kernels.arrays import Array, Ids, as_numbers, check_integer
from penstock.kernels.buckets import all_members, drop, ranked
from penstock.kernels.members import WORD_BITS, Members

Keep: TypeAlias = Literal["keep", "drop", "refuse"]
KEEP: Final = ("keep", "drop", "refuse")

LEAST_MEMORY: Final = 1 << 20
# Chunks of edges that wait to be shared out.
_MOST_WAITING: Final = 2
# Of the files of buckets.
_NAME: Final = "edges"


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
        out_of: int | None = None,
    ) -> None:
        """Prepare for edges.

        Args:
            folder: Where temporary files go, in a folder of their own.
            num_sources: How many nodes edges may come from.
            num_destinations: How many nodes edges may lead to.
            memory: How many bytes of memory to use, about; beside it, one piece of a file (16 MB).
            self_loops: Whether edges of a node to itself are kept, dropped or refused.
            duplicates: Whether edges with the ends of an earlier one are kept, dropped or refused.
            out_of: How many edges there are in all, if these are some of them: they are added with
                their ids, and all of them are kept.
        """
        self._num_sources = check_integer(num_sources, "num_sources", 0, MOST_KEYS)
        self._num_destinations = check_integer(num_destinations, "num_destinations", 0, MOST_KEYS)
        self._memory = check_integer(memory, "memory", LEAST_MEMORY, 2**62)
        self._self_loops = _checked("self_loops", self_loops)
        self._duplicates = _checked("duplicates", duplicates)
        self._out_of = out_of
        self._num_given = 0
        self._is_sorted = True
        self._last = -1
        self._loops: Path | None = None
        self._is_finished = False
        self._failed: BaseException | None = None
        self._waiting: deque[Future[None]] = deque()
        self._thread = ThreadPoolExecutor(1, "penstock-edges")
        self._scratch = Scratch(folder)
        try:
            keys, pool = self._num_destinations, self._memory * 3 // 8
            self._buckets = Buckets(self._scratch, _NAME, 0, keys, self._num_sources, pool)
        except BaseException:
            self.close()
            raise

    def add(self, sources: Array, destinations: Array, ids: Ids | int | None = None) -> None:
        """Add a chunk of edges: int32 or int64, whose memory must not be written to afterwards.

        Args:
            sources: Where edges begin.
            destinations: Where they lead to.
            ids: Their ids, which rise, if they are some of more edges; else they are counted.

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
        ids = first if ids is None else ids
        if self._self_loops != "keep":
            sources, destinations, ids = self._without_loops(sources, destinations, first)
        self._num_given += count
        if not len(sources):
            return
        self._note_order(destinations)
        self._wait(_MOST_WAITING - 1)
        self._waiting.append(self._thread.submit(self._buckets.add, sources, destinations, ids))

    def finish(self, *, paired: bool = False) -> SortedEdges:
        """Return the edges, which are sorted when they are written.

        They are valid until this object is closed.

        Args:
            paired: Whether ids of edges stand beside sources even if edges came sorted.

        Raises:
            ValueError: There is an edge twice, which was to be refused.
            OSError: The disk is full, or failed.
        """
        self._wait(0)
        self._is_finished = True
        self._thread.shutdown()
        num_given = self._num_given if self._out_of is None else self._out_of
        work = Work(self._scratch, self._num_sources, num_given, self._memory)
        buckets = self._buckets.finish(in_memory=True)
        buckets = list(work.expanded(buckets, work.is_large, _NAME))
        kept, dropped = self._kept(work, buckets)
        is_sorted = self._is_sorted and not paired
        return SortedEdges(
            work, buckets, dropped, kept, self._num_destinations, is_sorted, self._out_of
        )

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
        if self._is_finished:
            raise ValueError(
                "these edges are finished already: sort others with an object of their own"
            )
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

    def _kept(self, work: Work, buckets: list[Bucket]) -> tuple[Members | None, list[int]]:
        """Return which edges stay (None: all), and how many of each bucket do not."""
        dropped = [0] * len(buckets)
        kept = None
        if self._loops is not None or self._duplicates == "drop":
            kept = _all_edges(work)
        if self._duplicates != "keep":
            repeats = find_duplicates(work, buckets, kept)
            dropped = [each.total for each in repeats]
            if self._duplicates == "refuse":
                refuse_duplicates(buckets, repeats)
        if kept is None or (self._loops is None and not any(dropped)):
            return None, dropped
        if self._loops is not None:
            for loops in numbers_of(self._loops):
                drop(kept, loops)
        return ranked(kept.words, kept.size), dropped


def _all_edges(work: Work) -> Members:
    shape = [-(-work.num_given // WORD_BITS), 2]
    words = work.scratch.array("kept", np.uint64, shape, work.memory // 16)
    return all_members(work.num_given, words)


def _checked(name: str, value: Keep) -> Keep:
    if value not in KEEP:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, KEEP))}")
    return value
