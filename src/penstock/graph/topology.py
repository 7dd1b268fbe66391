"""The neighbours of every node of one edge type, as arrays.

A node's neighbours stand together. Beside each stands the original id of the edge, in the same
cache line (`paired`); where the edges were given in that order anyway, the id is the position, and
only neighbours are kept (`bare`). This module knows nothing of types and attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock import kernels
from penstock.errors import GraphFormatError
from penstock.graph.check import PIECE

INT32_MAX: Final = 2**31 - 1

Spec = tuple[str, tuple[int, ...]]
# Where a piece begins; then of each of its edges the row, the neighbour and the id.
Edges = tuple[int, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Topology:
    """Row i: the neighbours of node i, at positions `indptr[i]` to `indptr[i + 1]`.

    Of a csc the rows are destinations and the neighbours sources; of a csr the other way round.
    Within a row edges stand in the order they were given.
    """

    indptr: npt.NDArray[np.int64]
    adjacency: npt.NDArray[Any]

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
        """The neighbours: a view."""
        return self.adjacency[:, 0] if self.paired else self.adjacency

    @property
    def edge_ids(self) -> npt.NDArray[Any]:
        """The original ids of the edges: a view if paired, else counted out anew."""
        if self.paired:
            return self.adjacency[:, 1]
        return np.arange(self.num_edges, dtype=id_dtype(self.num_edges))

    @property
    def degrees(self) -> npt.NDArray[np.int64]:
        """How many neighbours each row has."""
        return np.diff(self.indptr)


def specs(num_rows: int, num_neighbors: int, num_edges: int, *, paired: bool) -> tuple[Spec, Spec]:
    """Dtype and shape of `indptr` and `adjacency`."""
    largest = max(num_neighbors, num_edges) if paired else num_neighbors
    shape = (num_edges, 2) if paired else (num_edges,)
    return ("int64", (num_rows + 1,)), (id_dtype(largest), shape)


def edges(topology: Topology) -> Iterator[Edges]:
    """All edges in storage order, in pieces: rows, neighbours and ids. `indptr` must not fall."""
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
                yield begin, rows, piece, np.arange(begin, end)


def coo(csc: Topology, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """The edges of a csc in the order of their ids, [2, edges], sources above destinations."""
    _check(csc)
    ends = np.empty((2, csc.num_edges), np.int64) if out is None else out
    for _, destinations, sources, ids in edges(csc):
        ends[0, ids] = sources
        ends[1, ids] = destinations
    return ends


def _check(topology: Topology) -> None:
    """What is damaged must not be written by."""
    rising = kernels.is_sorted(topology.indptr)
    known = not topology.paired or (
        kernels.first_outside(topology.edge_ids, topology.num_edges) < 0
    )
    if not rising or not known:
        raise GraphFormatError(
            "damaged topology: an offset or edge id is out of range; run its validate()"
        )


def id_dtype(largest: int) -> str:
    """What ids below `largest` are kept in."""
    return "int32" if largest <= INT32_MAX else "int64"
