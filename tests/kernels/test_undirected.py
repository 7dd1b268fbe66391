"""The undirected graph of all edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency, _native
from penstock.kernels.streaming import RowsOfType
from penstock.kernels.twins import undirected as twin
from penstock.kernels.undirected import undirected
from tests.kernels.relations import Typed, ring, typed_rows


@given(typed_rows())
def test_neighbours_and_weights_are_those_of_the_twin(typed: Typed) -> None:
    found = undirected(typed.rows, typed.size)
    expected = twin.undirected(typed.rows, typed.size)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


@given(typed_rows())
def test_every_edge_is_there_from_both_ends_with_one_weight(typed: Typed) -> None:
    indptr, ends, weights = undirected(typed.rows, typed.size)
    rows = np.repeat(np.arange(typed.size), np.diff(indptr))
    here = dict(zip(zip(rows.tolist(), ends.tolist(), strict=True), weights.tolist(), strict=True))
    assert len(here) == len(ends)
    for (one, other), weight in here.items():
        assert one != other
        assert here[other, one] == weight


def test_parallel_edges_and_both_directions_are_one_edge_with_a_weight() -> None:
    rows = Adjacency(np.array([0, 3, 4, 4]), np.array([1, 1, 0, 0]))
    indptr, ends, weights = undirected([RowsOfType(rows, 0, 0, 3)], 3)
    assert (indptr.tolist(), ends.tolist(), weights.tolist()) == ([0, 1, 2, 2], [1, 0], [3, 3])


@pytest.mark.parametrize("indptr", [[0, 2, 1, 3], [0, -1, 2, 3], [0, 1, 9, 3]])
def test_offsets_out_of_order_are_found(indptr: list[int]) -> None:
    with pytest.raises(GraphFormatError, match="damaged topology"):
        undirected([ring(indptr=indptr)], 3)


@pytest.mark.parametrize("neighbor", [-1, 3])
def test_neighbours_out_of_range_are_found(neighbor: int) -> None:
    with pytest.raises(GraphFormatError, match="damaged topology"):
        undirected([ring(neighbors=[2, neighbor, 1])], 3)


def test_kernels_write_nothing_beyond_the_room_there_is() -> None:
    places = (0, 0, 3, True)
    rows = ring().rows.native
    assert not _native.place_ends(rows, *places, np.array([0, 5, 2]), np.zeros(6, np.int32))
    assert not _native.place_ends(rows, *places, np.array([0, -1, 2]), np.zeros(6, np.int32))
    for indptr in ([1, 2], [0, 3], [0, 2, 1]):
        ends, weights = np.zeros(2, np.int32), np.zeros(2, np.int32)
        assert _native.merge_ends(np.array(indptr), ends, weights) == -1
