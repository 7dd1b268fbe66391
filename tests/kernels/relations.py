"""Rows of several edge types, whose nodes are in one index space."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from penstock.kernels import Adjacency
from penstock.kernels.streaming import RowsOfType


@dataclass(frozen=True)
class Typed:
    """Nodes of a few types, and the rows of edges between them."""

    sizes: list[int]
    rows: list[RowsOfType]

    @property
    def bases(self) -> list[int]:
        return [sum(self.sizes[:kind]) for kind in range(len(self.sizes))]

    @property
    def size(self) -> int:
        return sum(self.sizes)


@st.composite
def adjacencies(draw: st.DrawFn, num_rows: int, num_neighbors: int) -> Adjacency:
    """Rows of every form: hubs, parallel edges, self-loops; paired and bare, narrow and wide."""
    most = 9 if num_neighbors else 0
    degrees = draw(st.lists(st.integers(0, most), min_size=num_rows, max_size=num_rows))
    total = sum(degrees)
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    indptr = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
    found = st.lists(st.integers(0, max(num_neighbors - 1, 0)), min_size=total, max_size=total)
    neighbors = np.array(draw(found), dtype)
    if draw(st.booleans()):
        return Adjacency(indptr, neighbors)
    return Adjacency(indptr, np.stack([neighbors, np.arange(total, dtype=dtype)], axis=1))


@st.composite
def typed_rows(draw: st.DrawFn) -> Typed:
    """No nodes, one node, one type, or several."""
    sizes = draw(st.lists(st.integers(0, 8), min_size=1, max_size=3))
    typed = Typed(sizes, [])
    kinds = st.sampled_from(range(len(sizes)))
    for target, source in draw(st.lists(st.tuples(kinds, kinds), max_size=4)):
        rows = draw(adjacencies(sizes[target], sizes[source]))
        bases = typed.bases
        typed.rows.append(RowsOfType(rows, bases[target], bases[source], sizes[source]))
    return typed


def ring(indptr: list[int] | None = None, neighbors: list[int] | None = None) -> RowsOfType:
    """A ring of three nodes in one direction, maybe with damage."""
    rows = Adjacency(np.array(indptr or [0, 1, 2, 3]), np.array(neighbors or [2, 0, 1]))
    return RowsOfType(rows, 0, 0, 3)
