"""Rows of attributes that lie in parts: each is fetched from the part that has it.

A row goes straight from its owner to where it is read. `begin` asks all owners, and what it returns
puts their answers in place: several attributes are begun before the first is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.graph.dtypes import storage_dtype
from penstock.graph.schema import ArrayKey
from penstock.kernels.arrays import Array, Ids, as_ids
from penstock.kernels.gather import scatter_rows
from penstock.store.calls import ColumnName, RowsAnswer
from penstock.store.parts import Awaited, Parts

if TYPE_CHECKING:
    from penstock.graph.partition.book import PartitionBook

# Bytes of rows that are asked for at once.
MOST_BYTES: Final = 64 << 20


class StoreFeatures:
    """A `FeatureSource` for an attribute of nodes or edges in parts. Thread-safe."""

    def __init__(
        self,
        parts: Callable[[], Parts],
        key: ArrayKey,
        dtype: str,
        shape: Sequence[int],
        book: Callable[[], PartitionBook] | None,
    ) -> None:
        self._parts = parts
        self._book = book  # None for edges: nobody but its owner knows where an edge is
        self._column = ColumnName(
            "node" if isinstance(key.type, str) else "edge", key.type, key.name
        )
        self.dtype = dtype
        self.row_shape = tuple(shape[1:])
        self.num_rows = shape[0]
        self._storage = np.dtype(storage_dtype(dtype))
        self._row_bytes = max(1, self._storage.itemsize * int(np.prod(self.row_shape)))

    def gather(self, ids: Ids, out: Array | None = None) -> Array:
        """Return the rows of these ids; see `graph.features.FeatureSource`."""
        wanted = as_ids(ids, "ids")
        if out is None:
            out = np.empty((len(wanted), *self.row_shape), self._storage)
        self.begin_gather(wanted, out)()
        return out

    def begin_gather(self, ids: Ids, out: Array) -> Callable[[], None]:
        """Ask for rows; return what waits for them and writes them into `out`."""
        wanted = as_ids(ids, "ids")
        shape = (len(wanted), *self.row_shape)
        if out.shape != shape or out.dtype != self._storage:
            raise ValueError(
                f"out must be {self._storage} of shape {list(shape)}, "
                f"not {out.dtype} {list(out.shape)}"
            )
        asked = (
            self._asked_of_nodes(wanted) if self._book is not None else self._asked_of_all(wanted)
        )

        def finish() -> None:
            there = 0
            for positions, call in asked:
                answer: RowsAnswer = call.result()
                places = positions if answer.here is None else positions[answer.here]
                there += len(places)
                scatter_rows(answer.rows[0], places, out)
            if there != len(wanted):
                self._complain(wanted, asked)

        return finish

    def _asked_of_nodes(self, ids: Ids) -> list[tuple[Ids, Awaited]]:
        assert self._book is not None
        parts = self._parts()
        asked = []
        for part, positions in shared_out(self._book(), ids):
            for piece in self._pieces(positions):
                call = parts.begin(part, "get_rows", columns=[self._column], ids=ids[piece])
                asked.append((piece, call))
        return asked

    def _asked_of_all(self, ids: Ids) -> list[tuple[Ids, Awaited]]:
        """Ask every part for the rows that it has: the ids of edges do not tell their part."""
        parts, positions = self._parts(), np.arange(len(ids))
        return [
            (
                piece,
                parts.begin(part, "get_rows", columns=[self._column], ids=ids[piece], some=True),
            )
            for piece in self._pieces(positions)
            for part in range(parts.num_parts)
        ]

    def _pieces(self, positions: Ids) -> list[Ids]:
        most = max(1, MOST_BYTES // self._row_bytes)
        return [positions[at : at + most] for at in range(0, len(positions), most)]

    def _complain(self, ids: Ids, asked: Sequence[Any]) -> None:
        bad = (ids < 0) | (ids >= self.num_rows)
        at = int(np.argmax(bad)) if bad.any() else 0
        raise ValueError(f"ids[{at}] is {ids[at]}; expected 0 <= id < {self.num_rows}")


def shared_out(book: PartitionBook, ids: Ids) -> list[tuple[int, Ids]]:
    """Return each part that has some of these ids, and their positions, in order."""
    if len(ids) == 0:
        return []
    if book.num_partitions == 1:
        book.partition_of(ids[:0])
        return [(0, np.arange(len(ids)))]
    parts = book.partition_of(ids)
    if book.num_partitions <= 256:
        parts = parts.astype(np.uint8)  # sorted by radix
    order = np.argsort(parts, kind="stable")
    counts = np.bincount(parts, minlength=book.num_partitions)
    ends = np.cumsum(counts)
    return [
        (part, order[ends[part] - counts[part] : ends[part]])
        for part in np.flatnonzero(counts).tolist()
    ]
