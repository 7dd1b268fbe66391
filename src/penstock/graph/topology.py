"""The neighbours of every node of one edge type, as arrays.

A node's neighbours stand together. Beside each stands the original id of the edge, in the same
cache line (`paired`); where the edges were given in that order anyway, the id is the position, and
only neighbours are kept (`bare`). This module knows nothing of types and attributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock import kernels
from penstock.graph.layout import layout
from penstock.graph.segment import Segment, check_room
from penstock.graph.shared import SharedArray

INT32_MAX: Final = 2**31 - 1

Spec = tuple[str, tuple[int, ...]]


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
        return np.arange(self.num_edges, dtype=_id_dtype(self.num_edges))

    @property
    def degrees(self) -> npt.NDArray[np.int64]:
        """How many neighbours each row has."""
        return np.diff(self.indptr)


def specs(num_rows: int, num_neighbors: int, num_edges: int, *, paired: bool) -> tuple[Spec, Spec]:
    """Dtype and shape of `indptr` and `adjacency`."""
    largest = max(num_neighbors, num_edges) if paired else num_neighbors
    shape = (num_edges, 2) if paired else (num_edges,)
    return ("int64", (num_rows + 1,)), (_id_dtype(largest), shape)


def transposed(
    topology: Topology, num_neighbors: int, *, kind: str | None
) -> tuple[SharedArray, SharedArray]:
    """`indptr` and `adjacency` of the other direction, in shared memory of their own."""
    wanted = specs(num_neighbors, topology.num_rows, topology.num_edges, paired=True)
    offsets, nbytes = layout(wanted)
    check_room(nbytes, kind=kind)
    segment = Segment.create(nbytes, kind=kind)
    try:
        indptr, adjacency = (
            SharedArray(segment, dtype, shape, offset)
            for (dtype, shape), offset in zip(wanted, offsets, strict=True)
        )
        kernels.transpose(topology.indptr, topology.adjacency, indptr.array, adjacency.array)
        segment.freeze()
    except BaseException:
        segment.close()
        raise
    return indptr, adjacency


def coo(csc: Topology, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """The edges of a csc in the order of their ids, [2, edges], sources above destinations."""
    edges = np.empty((2, csc.num_edges), np.int64) if out is None else out
    order: Any = csc.edge_ids if csc.paired else slice(None)
    edges[0, order] = csc.indices
    edges[1, order] = np.repeat(np.arange(csc.num_rows), csc.degrees)
    return edges


def _id_dtype(largest: int) -> str:
    return "int32" if largest <= INT32_MAX else "int64"
