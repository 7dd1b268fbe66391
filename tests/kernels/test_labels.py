"""The first neighbours of nodes: native and twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.graph import Graph
from penstock.kernels import Adjacency
from penstock.kernels.labels import first_neighbors
from penstock.kernels.twins import labels as twin


@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=40),
    st.lists(st.integers(0, 8), max_size=12),
    st.none() | st.integers(0, 5),
)
def test_native_and_twin_agree(
    size: int, edges: list[tuple[int, int]], nodes: list[int], most: int | None
) -> None:
    ends = np.array(edges, np.int64).reshape(-1, 2).T % size
    rows = Graph.from_coo(ends, size).csr()
    ids = np.array(nodes, np.int64) % size
    ours = first_neighbors(Adjacency(rows.indptr, rows.adjacency), ids, size, most)
    theirs = twin.first_neighbors(rows.indptr, rows.indices, ids, most)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        assert mine.tolist() == other.tolist()


def test_a_node_that_is_none_is_refused() -> None:
    adjacency = Adjacency(np.array([0, 1]), np.array([0], np.int32))
    with pytest.raises(ValueError, match=r"nodes\[1\] is 1; expected 0 <= id < 1"):
        first_neighbors(adjacency, np.array([0, 1]), 1)


@pytest.mark.parametrize(
    ("indptr", "entries"), [([0, 2], [0]), ([1, 0], [0]), ([-1, 1], [0]), ([0, 1], [7])]
)
def test_a_damaged_topology_is_told(indptr: list[int], entries: list[int]) -> None:
    adjacency = Adjacency(np.array(indptr), np.array(entries, np.int32))
    with pytest.raises(GraphFormatError, match="damaged topology"):
        first_neighbors(adjacency, np.array([0]), 1)
