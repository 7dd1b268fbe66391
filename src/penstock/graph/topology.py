"""The neighbours of every node along one edge type, as arrays.

The neighbours of a node are contiguous. The original id of each edge is stored next to the
neighbour, in the same cache line (`paired`); where edges were given in that order anyway, the id is
the position, and only neighbours are stored (`bare`). A part of such a graph has the first id of
each row beside them. This module knows nothing about attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from penstock import kernels
from penstock.errors import GraphFormatError
from penstock.graph.check import PIECE
from penstock.graph.schema import FIRST_IDS, ArrayKey, Arrays, EdgeType
from penstock.kernels.cutting import copy_rows, row_offsets
from penstock.kernels.members import Members

INT32_MAX: Final = 2**31 - 1

Direction = Literal["csc", "csr"]

Spec = tuple[str, tuple[int, ...]]
# Where a piece begins; then the row, the neighbour and the id of each of its edges.
Edges = tuple[int, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Topology:
    """Row i: the neighbours of node i, at positions `indptr[i]` to `indptr[i + 1]`.

    In a csc rows are destinations and neighbours are sources; in a csr the other way round. Within
    a row edges keep the order in which they were given.

    In a part of a graph whose ids are positions, the ids of row i are `first_ids[i]` and those that
    follow it.
    """

    indptr: npt.NDArray[np.int64]
    adjacency: npt.NDArray[Any]
    first_ids: npt.NDArray[Any] | None = None

    @property
    def paired(self) -> bool:
        """Whether `adjacency` is [edges, 2], (neighbour, edge id), rather than [edges]."""
        return self.adjacency.ndim == 2

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.adjacency)

    @property
    def indices(self) -> npt.NDArray[Any]:
        """The neighbours, as a view."""
        return self.adjacency[:, 0] if self.paired else self.adjacency

    @property
    def edge_ids(self) -> npt.NDArray[Any]:
        """The original ids of the edges: a view if paired, else a new array."""
        if self.paired:
            return self.adjacency[:, 1]
        if self.first_ids is None:
            return np.arange(self.num_edges, dtype=id_dtype(self.num_edges))
        shifts = np.repeat(self.first_ids - self.indptr[:-1], self.degrees)
        return (np.arange(self.num_edges) + shifts).astype(self.first_ids.dtype)

    @property
    def pairs(self) -> npt.NDArray[Any]:
        """Neighbours and edge ids, [edges, 2]: a view if paired, else a new array."""
        return self.adjacency if self.paired else np.stack([self.indices, self.edge_ids], axis=1)

    @property
    def rows(self) -> kernels.Adjacency:
        """The rows as kernels read them."""
        return self.rows_of(None)

    def rows_of(self, members: Members | None) -> kernels.Adjacency:
        """Return the rows as kernels read them: those of these nodes, or of all."""
        return kernels.Adjacency(self.indptr, self.adjacency, members, self.first_ids)

    @property
    def without_ids(self) -> kernels.Adjacency:
        """The rows for kernels that do not look at edge ids."""
        return kernels.Adjacency(self.indptr, self.adjacency)

    @property
    def bare(self) -> Topology:
        """The same rows with positions for edge ids, to go with values by position."""
        return Topology(self.indptr, np.ascontiguousarray(self.indices))

    @property
    def degrees(self) -> npt.NDArray[np.int64]:
        """The number of neighbours of each row."""
        return np.diff(self.indptr)


def topology_of(arrays: Arrays, edge_type: EdgeType, direction: Direction) -> Topology:
    """Return the topology of one edge type, as views."""
    indptr, adjacency = (arrays[key] for key in topology_keys(edge_type, direction))
    first_ids = arrays.get(ArrayKey(direction, edge_type, FIRST_IDS))
    return Topology(indptr.array, adjacency.array, None if first_ids is None else first_ids.array)


def topology_keys(edge_type: EdgeType, direction: Direction) -> tuple[ArrayKey, ArrayKey]:
    """Return the keys of the two arrays of a topology."""
    return ArrayKey(direction, edge_type, "indptr"), ArrayKey(direction, edge_type, "adjacency")


def specs(num_rows: int, num_neighbors: int, num_edges: int, *, paired: bool) -> tuple[Spec, Spec]:
    """Return dtype and shape of `indptr` and `adjacency`."""
    largest = max(num_neighbors, num_edges) if paired else num_neighbors
    shape = (num_edges, 2) if paired else (num_edges,)
    return ("int64", (num_rows + 1,)), (id_dtype(largest), shape)


def edges(topology: Topology) -> Iterator[Edges]:
    """Yield all edges in storage order, in pieces. `indptr` must be non-decreasing."""
    for first in range(0, topology.num_rows, PIECE):
        bounds = topology.indptr[first : first + PIECE + 1]
        for begin in range(int(bounds[0]), int(bounds[-1]), PIECE):
            end = min(begin + PIECE, int(bounds[-1]))
            counts = np.diff(bounds.clip(begin, end))
            rows = np.repeat(np.arange(first, first + len(counts)), counts)
            piece = topology.adjacency[begin:end]
            if topology.paired:
                yield begin, rows, piece[:, 0], piece[:, 1]
            else:
                ids = np.arange(begin, end)
                if topology.first_ids is not None:
                    ids += topology.first_ids[rows] - topology.indptr[rows]
                yield begin, rows, piece, ids


def rows_of_some(topology: Topology, nodes: npt.NDArray[np.int64], dtype: str) -> Topology:
    """Return the rows of some nodes, one after the other, as pairs of neighbour and edge id."""
    indptr = row_offsets(topology.rows, nodes)
    entries = np.empty((int(indptr[-1]), 2), dtype)
    copy_rows(topology.rows, nodes, indptr, 0, entries)
    return Topology(indptr, entries)


def coo(csc: Topology, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """Return the edges of a csc in order of their ids, [2, edges], sources above destinations."""
    _check(csc)
    ends = np.empty((2, csc.num_edges), np.int64) if out is None else out
    for _, destinations, sources, ids in edges(csc):
        ends[0, ids] = sources
        ends[1, ids] = destinations
    return ends


def _check(topology: Topology) -> None:
    """Raise if offsets or edge ids are damaged, because they are used as positions to write to."""
    rising = kernels.is_sorted(topology.indptr)
    known = not topology.paired or (
        kernels.first_outside(topology.edge_ids, topology.num_edges) < 0
    )
    if not rising or not known:
        raise GraphFormatError(
            "damaged topology: an offset or edge id is out of range; run its validate()"
        )


def id_dtype(largest: int) -> str:
    """Return the dtype that ids below `largest` are stored in."""
    return "int32" if largest <= INT32_MAX else "int64"
