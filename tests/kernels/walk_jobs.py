"""Walks for tests: over small graphs of any shape, for the native kernel and for the twin."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from penstock.kernels import walks
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.twins import walks as twin
from tests.kernels.strategies import WORDS, Rows, any_rows, any_seeds, rows_of, transposed

# Weights of any proportion: far apart, few draws are accepted, and the row is read.
PULLS = st.sampled_from([1.0, 0.5, 4.0, 0.01, 30.0, 1e-7, 1e12, 1 / 3])


@dataclass(frozen=True)
class Walking:
    """Walks to take. `finds` is the number of nodes that each step leads to."""

    path: list[Rows]
    finds: list[int]
    starts: Ids
    length: int = 3
    rounds: int = 1
    key: int = 1
    stays: bool = True
    p: float = 1.0
    q: float = 1.0
    reversed_lookup: bool = False

    @property
    def sorted_rows(self) -> walks.WalkRows:
        rows = self.path[0]
        if self.reversed_lookup:
            rows = transposed(rows, self.finds[0])
        return walks.WalkRows(ascending(rows).adjacency, self.reversed_lookup)

    def native(self) -> tuple[Array, Array]:
        is_biased = (self.p, self.q) != (1, 1)
        return walks.walk(
            [walks.Step(rows.adjacency, n) for rows, n in zip(self.path, self.finds, strict=True)],
            self.starts,
            self.key,
            length=self.length,
            rounds=self.rounds,
            stays=self.stays,
            p=self.p,
            q=self.q,
            sorted_rows=self.sorted_rows if is_biased else None,
        )

    def twin(self) -> tuple[Array, Array]:
        return twin.walk(
            [twin.WalkTwinRows(rows.indptr, rows.neighbors, rows.edge_ids) for rows in self.path],
            self.starts,
            self.key,
            length=self.length,
            rounds=self.rounds,
            stays=self.stays,
            p=self.p,
            q=self.q,
        )


def ascending(rows: Rows) -> Rows:
    """The neighbours of each row in rising order, without edge ids."""
    parts = np.split(rows.neighbors, rows.indptr[1:-1])
    return Rows(rows.indptr, np.concatenate([np.sort(part) for part in parts]))


def along(edges: list[tuple[int, int]], num_nodes: int, starts: list[int]) -> Walking:
    """Walks along edges (from, to), which have their places in the list as ids."""
    table = np.array(edges, np.int64).reshape(-1, 2)
    rows = rows_of(table[:, 1], table[:, 0], num_nodes, paired=True, dtype="int64")
    return Walking([rows], [num_nodes], np.array(starts, np.int64))


@st.composite
def walkings(draw: st.DrawFn) -> Walking:
    """Uniform walks over one type."""
    num_nodes = draw(st.integers(0, 9))
    rows = draw(any_rows(num_nodes, num_nodes))
    return _with_options(draw, Walking([rows], [num_nodes], draw(any_seeds(num_nodes))))


@st.composite
def biased_walkings(draw: st.DrawFn) -> Walking:
    """node2vec's walks."""
    walking = draw(walkings())
    return replace(walking, p=draw(PULLS), q=draw(PULLS), reversed_lookup=draw(st.booleans()))


@st.composite
def path_walkings(draw: st.DrawFn) -> Walking:
    """Walks round a path of up to three types."""
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    finds = [*sizes[1:], sizes[0]]
    path = [draw(any_rows(found, size)) for size, found in zip(sizes, finds, strict=True)]
    walking = _with_options(draw, Walking(path, finds, draw(any_seeds(sizes[0]))))
    return replace(walking, stays=len(set(sizes)) == 1 and draw(st.booleans()))


def _with_options(draw: st.DrawFn, walking: Walking) -> Walking:
    return replace(
        walking,
        length=draw(st.integers(0, 7)),
        rounds=draw(st.integers(0, 3)),
        key=draw(WORDS),
        stays=draw(st.booleans()),
    )
