"""Map, of edges: gives out the rows, attributes and links of an edge type by parts.

A row goes to the part of its node. What the whole graph would have is summed up as it passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.graph.checksum import Bytes
from penstock.graph.external import SortedRows
from penstock.graph.partition.book import PartitionBook
from penstock.graph.schema import EdgeType, Side, found_by, owner_of
from penstock.graph.topology import id_dtype
from penstock.ingest.cutting.owners import NodeOwners, Owners
from penstock.ingest.cutting.rows import EdgeRows, StoredRows, offsets_of
from penstock.ingest.cutting.segments import Segments
from penstock.ingest.cutting.sums import Sum, Summed
from penstock.ingest.features import Streamed
from penstock.ingest.workspace import Workspace
from penstock.kernels import Adjacency
from penstock.kernels.cutting import copy_rows, row_offsets

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]
Books = Mapping[str, PartitionBook]

# Edges whose other ends are looked up at a time.
_PIECE: Final = 1 << 18


@dataclass
class SharedRows:
    """The rows of one side of an edge type, given out.

    Attributes:
        entries: The edges.
        degrees: How many edges each row has.
        first_ids: The id of the first edge of each row, if ids are not beside the edges.
    """

    entries: Segments
    degrees: Segments
    first_ids: Segments | None


@dataclass
class SharedEdges:
    """The edges of a type, given out.

    Attributes:
        kind: The type.
        num_edges: How many edges belong to each part.
        edges_cut: How many of these have their other end in another part.
        sides: The rows of each side that parts have.
        whole: All rows, if every part has all of them.
        owners: The part of each edge, if there are attributes.
        columns: The attributes, by name.
    """

    kind: EdgeType
    num_edges: list[int] = field(default_factory=list)
    edges_cut: list[int] = field(default_factory=list)
    sides: dict[Side, SharedRows] = field(default_factory=dict)
    whole: StoredRows | None = None
    owners: Owners | None = None
    columns: dict[str, Segments] = field(default_factory=dict)


class RowSharer:
    """Gives out rows of one side of an edge type."""

    def __init__(
        self, kind: EdgeType, side: Side, books: Books, workspace: Workspace, room: int
    ) -> None:
        self._rows = NodeOwners(books[owner_of(kind, side)])
        self._workspace = workspace
        self._num_parts = self._rows.book.num_partitions
        self._room = room

    def share(self, found: EdgeRows, rows: Iterator[SortedRows], first_row: int = 0) -> SharedRows:
        """Give out rows as they come; then `indptr` can be read, and where they begin is known.

        Args:
            found: What the rows are of.
            rows: The rows.
            first_row: The number of the first of them, where `indptr` begins.
        """
        entries = self._segments(found.adjacency.dtype, found.adjacency.shape[1:])
        for each in rows:
            self._share(entries, each)
        entries.flush()
        shared = SharedRows(entries, self._segments("int64"), None)
        # The ids of a row are consecutive; those of the only part are positions.
        if len(found.adjacency.shape) == 1 and self._num_parts > 1:
            shared.first_ids = self._segments(id_dtype(found.num_edges))
        self._share_offsets(found, shared, first_row)
        return shared

    def _segments(self, dtype: str, shape: tuple[int, ...] = ()) -> Segments:
        folder = self._workspace.path("segments")
        return Segments(folder, self._num_parts, dtype, shape, self._room)

    def _share(self, entries: Segments, rows: SortedRows) -> None:
        first, degrees = rows.first_row, rows.degrees
        parts = self._rows.parts(first, first + len(degrees))
        counts = np.zeros(self._num_parts, np.int64)
        np.add.at(counts, parts, degrees)
        if counts.max(initial=0) == len(rows.entries):  # one part has all of them
            entries.append(rows.entries, counts)
            return
        indptr = np.concatenate([[0], np.cumsum(degrees)])
        local = Adjacency(indptr, rows.entries)
        order = np.argsort(parts, kind="stable")
        offsets, out = row_offsets(local, order), np.empty_like(rows.entries)
        copy_rows(local, order, offsets, 0, out)
        entries.append(out, counts)

    def _share_offsets(self, found: EdgeRows, shared: SharedRows, first_row: int) -> None:
        done = first_row
        for lengths, begins in offsets_of(found.indptr.pieces()):
            parts = self._rows.parts(done, done + len(lengths))
            shared.degrees.share(lengths, parts)
            if shared.first_ids is not None:
                shared.first_ids.share(begins.astype(shared.first_ids.dtype), parts)
            done += len(lengths)
        shared.degrees.flush()
        if shared.first_ids is not None:
            shared.first_ids.flush()


class CutCounter:
    """Counts the edges of parts, and those that lead to another part."""

    def __init__(self, kind: EdgeType, owning: Side, books: Books) -> None:
        self._rows = NodeOwners(books[owner_of(kind, "in")])
        self._others = NodeOwners(books[found_by(kind, "in")])
        self._owning = owning
        self.num_edges = np.zeros(self._rows.book.num_partitions, np.int64)
        self.edges_cut = np.zeros_like(self.num_edges)

    def counted(self, rows: Iterator[SortedRows]) -> Iterator[SortedRows]:
        """Yield in-edges, which are counted."""
        for each in rows:
            self._count(each)
            yield each

    def _count(self, rows: SortedRows) -> None:
        first, degrees = rows.first_row, rows.degrees
        targets = np.repeat(self._rows.parts(first, first + len(degrees)), degrees)
        entries = rows.entries
        for begin in range(0, len(entries), _PIECE):
            some = entries[begin : begin + _PIECE]
            here = targets[begin : begin + _PIECE]
            there = self._others.of(some[:, 0] if some.ndim == 2 else some)
            owners = here if self._owning == "in" else there
            size = len(self.num_edges)
            self.num_edges += np.bincount(owners, minlength=size)
            self.edges_cut += np.bincount(owners[here != there], minlength=size)


def share_rows(source: Streamed, owners: Owners, segments: Segments) -> Summed:
    """Give out the rows of an array; return what it is as a whole."""
    total = Sum()
    give_rows(source, owners, segments, total.add)
    return Summed(source.dtype, source.shape, total.checksum())


def give_rows(
    source: Streamed, owners: Owners, segments: Segments, add: Callable[[Bytes], object]
) -> None:
    """Give out the rows of an array, whose bytes are added to a sum."""
    done = 0
    for block in source.rows():
        add(block.reshape(-1).view(np.uint8))
        segments.share(block, owners.parts(done, done + len(block)))
        done += len(block)
    segments.flush()
