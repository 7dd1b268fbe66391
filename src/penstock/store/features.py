"""Rows of attributes that lie in parts: each is fetched from the part that has it.

A row goes straight from its owner to where it is read, and not at all if this host has it cached.
`begin_gather` asks all owners, and their answers are put in place while they come: several
attributes are begun before the first is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from penstock.graph.dtypes import storage_dtype
from penstock.graph.schema import ArrayKey
from penstock.kernels.arrays import Array, Ids, as_ids
from penstock.kernels.gather import Rows, move_rows, scatter_rows
from penstock.store.cache import CachedRows
from penstock.store.calls import ColumnName, RowsAnswer
from penstock.store.parts import Awaited
from penstock.store.rows_target import RowsTarget

if TYPE_CHECKING:
    from penstock.graph.partition.book import PartitionBook
    from penstock.sampling.attributes import Ends, RowsOnTheirWay
    from penstock.store.graph import StoreGraph

_Asked: TypeAlias = tuple[RowsTarget, Awaited]

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
        rows = self.begin_gather(wanted, out)
        try:
            rows.finish()
        finally:
            rows.abandon()
        return out

    def begin_gather(self, ids: Ids, out: Array, ends: Ends | None = None) -> RowsOnTheirWay:
        """Ask for rows, which are written into `out`."""
        wanted = as_ids(ids, "ids")
        self._check(wanted, out)
        near = wanted if self._end is None else None
        if self._end is not None and ends is not None:
            near = ends(self._end)
        return _Fetch(self, wanted, near, out)

    def here(self, ids: Ids) -> tuple[Rows, Ids] | None:
        """Return the cached rows, and which of them has each id or -1; None without a cache."""
        cached = self._cached
        return None if cached is None else (cached.rows, cached.members.rows(ids))

    def count(self, moved: int, hits: int) -> None:
        """Count rows that came from servers, and rows that were here."""
        self._graph.meter.add(rows=moved, hits=hits, bytes_in=moved * self._row_bytes)

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

    def ask(self, ids: Ids, near: Ids | None, positions: Ids | None, out: Array) -> list[_Asked]:
        """Ask for the rows at these positions: the parts of the nodes near them, or every part."""
        wanted = ids if positions is None else ids[positions]
        if near is None:
            owners = [(part, np.arange(len(wanted))) for part in range(self._graph.num_parts)]
        else:
            owners = shared_out(self._book(), near if positions is None else near[positions])
        asked: list[_Asked] = []
        try:
            for part, places in owners:
                for piece in self._pieces(places):
                    target = RowsTarget(out, piece if positions is None else positions[piece])
                    asked.append((target, self._ask(part, wanted[piece], target)))
        except BaseException:
            _abandon(asked)
            raise
        return asked

    def _ask(self, part: int, ids: Ids, target: RowsTarget) -> Awaited:
        sent = ids.astype(np.int32) if self.num_rows <= _INT32 else ids
        self._graph.meter.add(bytes_out=sent.nbytes)
        some = self._end is not None
        return self._graph.ask(
            part, "get_rows", target, columns=[self._column], ids=sent, some=some
        )

    def _pieces(self, positions: Ids) -> list[Ids]:
        most = max(1, MOST_BYTES // max(1, self._row_bytes))
        return [positions[at : at + most] for at in range(0, len(positions), most)]


class _Fetch:
    """Rows on their way into an array: see `sampling.attributes.RowsOnTheirWay`.

    A row that is wanted at several positions is asked for once.

    Args:
        source: Whose rows.
        ids: Which rows.
        near: The nodes whose parts have them, if they are known.
        out: Where the rows go.
    """

    def __init__(self, source: StoreFeatures, ids: Ids, near: Ids | None, out: Array) -> None:
        self._source, self._ids, self._near, self._out = source, ids, near, out
        self._again = self._origin = self._here = self._hits = _NONE
        self._cached: Rows | None = None
        positions: Ids | None = None  # of the rows to ask for; None: all
        if _has_repeats(ids, source.num_rows):
            self._again, self._origin = _repeats(ids, source.num_rows)
            is_first = np.ones(len(ids), np.bool_)
            is_first[self._again] = False
            positions = np.flatnonzero(is_first)
        if (found := source.here(ids if positions is None else ids[positions])) is not None:
            self._cached, rows = found
            positions = np.arange(len(ids)) if positions is None else positions
            is_here = rows >= 0
            self._here, self._hits = positions[is_here], rows[is_here]
            positions = positions[~is_here]
        self._wanted = len(ids if positions is None else positions)
        self._asked = source.ask(ids, near, positions, out)

    def finish(self) -> None:
        """Wait until all rows are written."""
        if self._cached is not None:
            move_rows(self._cached, self._hits, self._here, self._out)
        moved, missed = _written(self._asked)
        if self._near is not None and len(missed):
            self._asked = self._source.ask(self._ids, None, missed, self._out)
            moved += _written(self._asked)[0]
        if moved != self._wanted:
            raise ValueError(f"{self._wanted - moved} of the ids have no row in any part")
        self._source.count(moved, len(self._here))
        if len(self._again):
            move_rows(Rows(self._out), self._origin, self._again, self._out)

    def abandon(self) -> None:
        """Give the rows up: nothing is written any more."""
        _abandon(self._asked)


def _written(asked: Sequence[_Asked]) -> tuple[int, Ids]:
    """Write the rows that come; return how many, and the positions of those that do not."""
    there, missed = 0, []
    for target, call in asked:
        answer: RowsAnswer = call.result()
        some = target.positions
        if answer.here is not None:
            missed.append(some[~answer.here])
            some = some[answer.here]
        there += len(some)
        if not target.is_filled:
            scatter_rows(answer.rows[0], some, target.out)
    return there, np.concatenate(missed) if missed else _NONE


def _abandon(asked: Sequence[_Asked]) -> None:
    for _, call in asked:
        call.abandon()


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
