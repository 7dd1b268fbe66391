"""Rows of edges by destination, or by source, as they are given out: sorted, or read from files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from penstock.graph.checksum import Bytes
from penstock.graph.external import SortedRows
from penstock.graph.external.scratch import append
from penstock.graph.format import ArraySource
from penstock.graph.topology import Topology
from penstock.ingest.cutting.segments import Segment
from penstock.ingest.cutting.sums import Sum
from penstock.ingest.work import Work

Array = npt.NDArray[Any]

# Rows that are read from a file at a time.
_ROWS: Final = 1 << 17
_LEAST_EDGES: Final = 1 << 12


class EdgeRows(Protocol):
    """Edges in the order of the rows that they belong to; they can be had once."""

    @property
    def num_edges(self) -> int: ...
    @property
    def adjacency(self) -> ArraySource: ...
    @property
    def indptr(self) -> ArraySource: ...
    def rows(self) -> Iterator[SortedRows]:
        """Yield all rows in order, before `indptr` is asked for."""
        ...


@dataclass(frozen=True)
class StoredRows:
    """Edges that have been sorted, in two files.

    Attributes:
        num_edges: How many there are.
        adjacency: The edges, as an array of the graph.
        indptr: Where rows begin, likewise.
        memory: What may be held while they are read, in bytes.
    """

    num_edges: int
    adjacency: Segment
    indptr: Segment
    memory: int

    def rows(self) -> Iterator[SortedRows]:
        """Yield all rows in order, some at a time."""
        indptr, adjacency = self.indptr.mapped(), self.adjacency.mapped()
        width = adjacency.itemsize * (adjacency.shape[1] if adjacency.ndim == 2 else 1)
        most = max(self.memory // width, _LEAST_EDGES)
        row, num_rows = 0, len(indptr) - 1
        while row < num_rows:
            begin = int(indptr[row])
            bounds = indptr[row : row + _ROWS + 1]
            fitting = int(np.searchsorted(bounds, begin + most, side="right")) - 1
            count = max(fitting, 1)
            end = int(indptr[row + count])
            if end - begin <= most:
                degrees = np.diff(bounds[: count + 1])
                yield SortedRows(row, degrees, np.ascontiguousarray(adjacency[begin:end]))
            for at in range(begin, end, most) if end - begin > most else ():
                some = np.ascontiguousarray(adjacency[at : min(at + most, end)])
                yield SortedRows(row, np.array([len(some)]), some)
            row += count

    @property
    def topology(self) -> Topology:
        """The rows as they are in a graph, mapped."""
        return Topology(self.indptr.mapped(), self.adjacency.mapped())

    def remove(self) -> None:
        """Remove the files."""
        self.adjacency.remove()
        self.indptr.remove()


def stored(found: EdgeRows, rows: Iterator[SortedRows], folder: Path, memory: int) -> StoredRows:
    """Write edges, whose rows are these, to files in a new folder."""
    folder.mkdir()
    edges, indptr = folder / "adjacency.tmp", folder / "indptr.tmp"
    for each in rows:
        append(edges, [each.bytes])
    append(indptr, found.indptr.pieces())
    return StoredRows(
        found.num_edges,
        Segment(edges, found.adjacency.dtype, found.adjacency.shape, is_kept=True),
        Segment(indptr, found.indptr.dtype, found.indptr.shape, is_kept=True),
        memory,
    )


def summed_rows(rows: Iterator[SortedRows], total: Sum, work: Work) -> Iterator[SortedRows]:
    """Yield rows while their bytes are added to a sum, and to what has been done."""
    for each in rows:
        total.add(each.bytes)
        yield each
        work.add(each.entries.nbytes)


def offsets_of(pieces: Iterator[Bytes]) -> Iterator[tuple[Array, Array]]:
    """Yield the lengths of rows, and where they begin, from the bytes of their offsets."""
    last = np.empty(0, np.int64)
    for piece in pieces:
        whole = piece.view(np.int64)
        for first in range(0, len(whole), _ROWS):
            offsets = np.concatenate([last, whole[first : first + _ROWS]])
            yield np.diff(offsets), offsets[:-1]
            last = offsets[-1:].copy()
