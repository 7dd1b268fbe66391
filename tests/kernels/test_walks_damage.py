"""Damaged rows under the feet of walks: told as such, and nothing is read outside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency, walks
from penstock.kernels.arrays import Array
from tests.kernels.strategies import Rows
from tests.kernels.test_damage import BAD_OFFSETS
from tests.kernels.walk_jobs import Walking, along

RING = [(node, (node + step) % 4) for node in range(4) for step in (1, 3)]


def biased(sorted_indptr: Array, entries: Array, is_reversed: bool) -> tuple[Array, Array]:
    """Walks round a ring, which look up edges in these rows."""
    ring = along(RING, 4, [0, 1, 2, 3])
    lookup = walks.WalkRows(Adjacency(sorted_indptr, entries), is_reversed)
    return walks.walk(
        [walks.Step(ring.path[0].adjacency, 4)],
        ring.starts,
        3,
        length=30,
        p=0.5,
        q=0.01,
        sorted_rows=lookup,
    )


@pytest.mark.parametrize("indptr", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_a_walk_that_meets_bad_offsets(indptr: list[int]) -> None:
    for entries in (np.ones(5, np.int64), np.ones((5, 2), np.int32)):
        walking = Walking([Rows(np.array(indptr), entries)], [4], np.array([1]))
        with pytest.raises(GraphFormatError, match="damaged topology"):
            walking.native()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("bad", [-1, 4, -(2**31), 2**31 - 1])
def test_a_step_to_a_node_outside_the_graph(bad: int, dtype: str) -> None:
    entries = np.full(5, bad, dtype)
    rows = Rows(np.array([0, 1, 3, 4, 5]), entries)
    walking = Walking([rows], [4], np.array([0, 1]))
    with pytest.raises(GraphFormatError, match="damaged topology"):
        walking.native()


@pytest.mark.parametrize("bad", [-1, 4])
def test_a_biased_step_to_a_node_outside_the_graph(bad: int) -> None:
    walking = along([(0, 1), (1, 0), (1, 2), (1, 3)], 4, [0] * 50)
    lookup = walking.sorted_rows
    walking.path[0].entries[2:, 0] = bad
    step = walks.Step(walking.path[0].adjacency, 4)
    for q in (0.5, 1e-9, 1e9):
        with pytest.raises(GraphFormatError, match="damaged topology"):
            walks.walk([step], walking.starts, 1, length=2, p=1e-9, q=q, sorted_rows=lookup)


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("indptr", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_bad_offsets_where_edges_are_looked_up(indptr: list[int], is_reversed: bool) -> None:
    with pytest.raises(GraphFormatError, match="damaged topology"):
        biased(np.array(indptr), np.zeros(5, np.int64), is_reversed)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_rows_that_are_not_sorted_lead_nobody_astray(is_reversed: bool) -> None:
    entries = np.array([3, -7, 2**62, 1, 0, 2, -1, 9], np.int64)
    nodes, edges = biased(np.array([0, 2, 4, 6, 8]), entries, is_reversed)
    sources, destinations = np.array(RING).T
    np.testing.assert_array_equal(sources[edges], nodes[:, :-1])
    np.testing.assert_array_equal(destinations[edges], nodes[:, 1:])


def test_a_walk_is_not_damaged_by_rows_it_does_not_meet() -> None:
    rows = Rows(np.array([0, 1, 2, 99, 2]), np.array([1, 0]))
    nodes, _ = replace(Walking([rows], [4], np.array([0, 1])), length=4).native()
    assert nodes.tolist() == [[0, 1, 0, 1, 0], [1, 0, 1, 0, 1]]
