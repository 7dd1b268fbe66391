"""Rows of attributes that lie in parts: each is fetched from the part that has it.

A row goes straight from its owner to where it is read, and not at all if this host has it cached.
`begin_gather` asks all owners, and what it returns puts their answers in place: several attributes
are begun before the first is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.graph.dtypes import storage_dtype
from penstock.graph.schema import ArrayKey
from penstock.kernels.arrays import Array, Ids, as_ids
from penstock.kernels.gather import Rows, move_rows, scatter_rows
from penstock.store.cache import CachedRows
from penstock.store.calls import ColumnName, RowsAnswer
from penstock.store.parts import Awaited

if TYPE_CHECKING:
    from penstock.graph.partition.book import PartitionBook
    from penstock.sampling.attributes import Ends
    from penstock.store.graph import StoreGraph

# Bytes of rows that are asked for at once.
MOST_BYTES: Final = 64 << 20
_INT32: Final = 2**31 - 1
_NONE: Final = np.empty(0, np.int64)
# Of so many parts, it is faster to look for each than to sort by part.
_FEW_PARTS: Final = 8
# Of more ids, a mark for each takes longer than to sort those that are asked for.
_MOST_MARKS: Final = 1 << 25


class StoreFeatures:
    """A `FeatureSource` for an attribute of nodes or edges in parts. Thread-safe.

    An edge is in the part of one of its ends. Whoever asks for the rows of edges may say what their
    ends are; otherwise, and for those that are not found there, every part is asked.

    Args:
        graph: The graph in parts.
        key: Which attribute.
        dtype: Its dtype.
        shape: Its shape in the whole graph.
        book: Returns the book of the nodes, or of the nodes at the `end` of the edges.
        end: The end that edges go with, sources (0) or destinations (1); None for nodes.
        cached: Rows that this host has.
    """

    def __init__(
        self,
        graph: StoreGraph,
        key: ArrayKey,
        dtype: str,
        shape: Sequence[int],
        book: Callable[[], PartitionBook],
        end: int | None = None,
        cached: CachedRows | None = None,
    ) -> None:
        self._graph = graph
        self._book = book
        self._end = end
        self._cached = cached
        self._column = ColumnName(
            "node" if isinstance(key.type, str) else "edge", key.type, key.name
        )
        self.dtype = dtype
        self.row_shape = tuple(shape[1:])
        self.num_rows = shape[0]
        self._storage = np.dtype(storage_dtype(dtype))
        self._row_bytes = self._storage.itemsize * int(np.prod(self.row_shape))

    def gather(self, ids: Ids, out: Array | None = None) -> Array:
        """Return the rows of these ids; see `graph.features.FeatureSource`."""
        wanted = as_ids(ids, "ids")
        if out is None:
            out = np.empty((len(wanted), *self.row_shape), self._storage)
        self.begin_gather(wanted, out)()
        return out

    def begin_gather(self, ids: Ids, out: Array, ends: Ends | None = None) -> Callable[[], None]:
        """Ask for rows; return what waits for them and writes them into `out`."""
        wanted = as_ids(ids, "ids")
        self._check(wanted, out)
        near = wanted if self._end is None else None
        if self._end is not None and ends is not None:
            near = ends(self._end)
        if not _has_repeats(wanted, self.num_rows):
            return self._begin_distinct(wanted, near, None, out)
        return self._begin_once(wanted, near, out)

    def _begin_distinct(
        self, ids: Ids, near: Ids | None, positions: Ids | None, out: Array
    ) -> Callable[[], None]:
        """Ask for the rows at these positions of `ids`, or at all; they are different ids.

        `near` are the nodes whose parts have them, if they are known.
        """
        cached = self._cached
        here = hits = _NONE
        if cached is not None:
            positions = np.arange(len(ids)) if positions is None else positions
            found = cached.members.rows(ids[positions])
            is_here = found >= 0
            here, hits, positions = positions[is_here], found[is_here], positions[~is_here]
        wanted = len(ids if positions is None else positions)
        asked = self._asked(ids, near, positions)

        def finish() -> None:
            if cached is not None:
                move_rows(cached.rows, hits, here, out)
            there, missed = self._written(asked, out)
            if near is not None and len(missed):
                there += self._written(self._asked(ids, None, missed), out)[0]
            if there != wanted:
                raise ValueError(f"{wanted - there} of the ids have no row in any part")
            self._graph.meter.add(rows=there, hits=len(here), bytes_in=there * self._row_bytes)

        return finish

    def _written(self, asked: list[tuple[Ids, Awaited]], out: Array) -> tuple[int, Ids]:
        """Write the rows that come; return how many, and the positions of those that do not."""
        there, missed = 0, []
        for places, call in asked:
            answer: RowsAnswer = call.result()
            some = places
            if answer.here is not None:
                some = places[answer.here]
                missed.append(places[~answer.here])
            there += len(some)
            scatter_rows(answer.rows[0], some, out)
        return there, np.concatenate(missed) if missed else _NONE

    def _begin_once(self, ids: Ids, near: Ids | None, out: Array) -> Callable[[], None]:
        """Ask for each row once, and copy it to the other places that want it."""
        again, origin = _repeats(ids, self.num_rows)
        is_first = np.ones(len(ids), np.bool_)
        is_first[again] = False
        finish_rows = self._begin_distinct(ids, near, np.flatnonzero(is_first), out)

        def finish() -> None:
            finish_rows()
            move_rows(Rows(out), origin, again, out)

        return finish

    def _check(self, ids: Ids, out: Array) -> None:
        shape = (len(ids), *self.row_shape)
        if out.shape != shape or out.dtype != self._storage:
            raise ValueError(
                f"out must be {self._storage} of shape {list(shape)}, "
                f"not {out.dtype} {list(out.shape)}"
            )
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.num_rows:
            at = int(np.argmax((ids < 0) | (ids >= self.num_rows)))
            raise ValueError(f"ids[{at}] is {ids[at]}; expected 0 <= id < {self.num_rows}")

    def _asked(
        self, ids: Ids, near: Ids | None, positions: Ids | None
    ) -> list[tuple[Ids, Awaited]]:
        """Ask for the rows at these positions: the parts of the nodes near them, or every part."""
        wanted = ids if positions is None else ids[positions]
        if near is None:
            owners = [(part, np.arange(len(wanted))) for part in range(self._graph.num_parts)]
        else:
            owners = shared_out(self._book(), near if positions is None else near[positions])
        asked = []
        for part, places in owners:
            for piece in self._pieces(places):
                sent = self._sent(wanted[piece])
                self._graph.meter.add(bytes_out=sent.nbytes)
                call = self._graph.ask(
                    part, "get_rows", columns=[self._column], ids=sent, some=self._end is not None
                )
                asked.append((piece if positions is None else positions[piece], call))
        return asked

    def _sent(self, ids: Ids) -> Ids:
        return ids.astype(np.int32) if self.num_rows <= _INT32 else ids

    def _pieces(self, positions: Ids) -> list[Ids]:
        most = max(1, MOST_BYTES // max(1, self._row_bytes))
        return [positions[at : at + most] for at in range(0, len(positions), most)]


def _has_repeats(ids: Ids, size: int) -> bool:
    """Return whether an id occurs more than once; `size` is more than the largest."""
    if size > _MOST_MARKS:
        return len(np.unique(ids)) < len(ids)
    marks = np.zeros(size, np.bool_)
    marks[ids] = True
    return int(np.count_nonzero(marks)) < len(ids)


def _repeats(ids: Ids, size: int) -> tuple[Ids, Ids]:
    """Return the positions of ids that have occurred before, rising, and where each came first."""
    # Usually these are a few seeds: only their places are sorted by id.
    places = _repeated_places(ids, size)
    _, firsts, inverse = np.unique(ids[places], return_index=True, return_inverse=True)
    origin = places[firsts[inverse.reshape(-1)]]
    is_again = origin != places
    return places[is_again], origin[is_again]


def _repeated_places(ids: Ids, size: int) -> Ids:
    """Return the positions of ids that occur more than once, rising."""
    if size > _MOST_MARKS:
        _, inverse, counts = np.unique(ids, return_inverse=True, return_counts=True)
        return np.flatnonzero(counts[inverse.reshape(-1)] > 1)
    # Of an id that occurs more than once, only one place is noted: the others miss themselves.
    place = np.arange(len(ids), dtype=np.int32)
    noted = np.empty(size, np.int32)
    noted[ids] = place
    at = noted[ids]
    is_repeated = at != place
    is_repeated[at[is_repeated]] = True
    return np.flatnonzero(is_repeated)


def shared_out(book: PartitionBook, ids: Ids) -> list[tuple[int, Ids]]:
    """Return each part that has some of these ids, and their positions, in order."""
    if len(ids) == 0:
        return []
    if book.num_partitions == 1:
        return [(0, np.arange(len(ids)))]
    parts: Any = book.partition_of(ids)
    if book.num_partitions <= _FEW_PARTS:
        owned = [(part, np.flatnonzero(parts == part)) for part in range(book.num_partitions)]
        return [(part, positions) for part, positions in owned if len(positions)]
    if book.num_partitions <= 256:
        parts = parts.astype(np.uint8)  # sorted by radix
    order = np.argsort(parts, kind="stable")
    counts = np.bincount(parts, minlength=book.num_partitions)
    ends = np.cumsum(counts)
    return [
        (part, order[ends[part] - counts[part] : ends[part]])
        for part in np.flatnonzero(counts).tolist()
    ]
