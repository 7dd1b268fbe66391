"""Nodes that are assigned to parts one after the other, by the votes of their neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency
from penstock.kernels.members import Members
from penstock.kernels.streaming import RowsOfType, count_votes, is_undirected, place_nodes
from penstock.kernels.twins import streaming as twin
from tests.kernels.relations import Typed, ring, typed_rows

PART_TYPES = st.sampled_from([np.uint8, np.int16, np.int32])


@st.composite
def some_parts(draw: st.DrawFn, typed: Typed) -> tuple[Any, int]:
    """The part of each node, or none, and how many parts there are."""
    num_parts = draw(st.integers(1, 5))
    numbers = st.lists(st.integers(0, num_parts), min_size=typed.size, max_size=typed.size)
    return np.array(draw(numbers), draw(PART_TYPES)), num_parts


@given(typed_rows(), st.data())
def test_nodes_are_placed_as_the_twin_places_them(typed: Typed, data: st.DataObject) -> None:
    parts, num_parts = data.draw(some_parts(typed))
    kind = data.draw(st.sampled_from(range(len(typed.sizes))))
    base, size = typed.bases[kind], typed.sizes[kind]
    first = data.draw(st.integers(0, size))
    end = data.draw(st.integers(first, size))
    rows = [each for each in typed.rows if (each.row_base, each.rows.num_nodes) == (base, size)]
    here = parts[base : base + size]
    sizes = np.bincount(here[here < num_parts], minlength=num_parts).astype(np.int64)
    capacity = data.draw(st.integers(max(1, -(-size // num_parts)), size + 1))
    votes = None
    if data.draw(st.booleans()):
        shape = (end - first, num_parts)
        votes = np.array(
            data.draw(st.lists(st.integers(0, 3), min_size=shape[0] * shape[1], max_size=25 * 5)),
            np.int32,
        )[: shape[0] * shape[1]].reshape(shape)
    other_parts, other_sizes = parts.copy(), sizes.copy()
    moved = place_nodes(rows, base, first, end, capacity, sizes, parts, votes)
    expected = twin.place_nodes(rows, base, first, end, capacity, other_sizes, other_parts, votes)
    assert moved == expected
    assert parts.tolist() == other_parts.tolist()
    assert sizes.tolist() == other_sizes.tolist()


@given(typed_rows(), st.data())
def test_votes_are_counted_as_the_twin_counts_them(typed: Typed, data: st.DataObject) -> None:
    parts, num_parts = data.draw(some_parts(typed))
    for rows in typed.rows:
        first = data.draw(st.integers(0, rows.size))
        end = data.draw(st.integers(first, rows.size))
        votes = np.ones((end - first, num_parts), np.int32)
        expected = votes.copy()
        count_votes(rows, first, end, parts, votes)
        twin.count_votes(rows, first, end, parts, expected)
        assert votes.tolist() == expected.tolist()


@given(typed_rows())
def test_directions_are_compared_as_the_twin_compares_them(typed: Typed) -> None:
    here, there = twin.sums_of_directions(typed.rows)
    assert is_undirected(typed.rows) == (here == there)


@given(typed_rows())
def test_edges_with_their_reverses_are_undirected(typed: Typed) -> None:
    both = sorted(
        edge
        for rows in typed.rows
        for one, other in twin.edges_of(rows)
        for edge in ((one, other), (other, one))
    )
    degrees = np.bincount([one for one, _ in both], minlength=typed.size)
    indptr = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
    entries = np.array([other for _, other in both], np.int64)
    assert is_undirected([RowsOfType(Adjacency(indptr, entries), 0, 0, typed.size)])


def test_an_edge_more_in_one_direction_makes_a_graph_directed() -> None:
    assert not is_undirected([ring()])
    pair = Adjacency(np.array([0, 1, 3]), np.array([1, 0, 0]))
    assert not is_undirected([RowsOfType(pair, 0, 0, 2)])
    loop = Adjacency(np.array([0, 1]), np.array([0]))
    assert is_undirected([RowsOfType(loop, 0, 0, 1)])


def test_a_node_with_more_votes_than_32_bits_hold_is_placed() -> None:
    """Votes and room are multiplied in 64 bits."""
    alone = [RowsOfType(Adjacency(np.array([0, 0]), np.zeros(0, np.int32)), 0, 0, 1)]
    parts, sizes = np.array([2], np.uint8), np.zeros(2, np.int64)
    most = np.array([[2**31 - 1, 1]], np.int32)
    place_nodes(alone, 0, 0, 1, (1 << 33) - 1, sizes, parts, most)
    assert parts.tolist() == [0]


Use = Callable[[RowsOfType], object]
USES: list[Use] = [
    lambda rows: place_nodes([rows], 0, 0, 3, 9, np.zeros(2, np.int64), np.zeros(3, np.uint8)),
    lambda rows: count_votes(rows, 0, 3, np.zeros(3, np.uint8), np.zeros((3, 2), np.int32)),
    lambda rows: is_undirected([rows]),
]


class TestDamage:
    @pytest.mark.parametrize("use", USES)
    @pytest.mark.parametrize("indptr", [[0, 2, 1, 3], [0, -1, 2, 3], [0, 1, 9, 3]])
    def test_offsets_out_of_order_are_found(self, use: Use, indptr: list[int]) -> None:
        with pytest.raises(GraphFormatError, match="damaged topology"):
            use(ring(indptr=indptr))

    @pytest.mark.parametrize("use", USES)
    @pytest.mark.parametrize("neighbor", [-1, 3])
    def test_neighbours_out_of_range_are_found(self, use: Use, neighbor: int) -> None:
        with pytest.raises(GraphFormatError, match="damaged topology"):
            use(ring(neighbors=[2, neighbor, 1]))

    def test_numbers_that_are_no_parts_count_as_none(self) -> None:
        parts, sizes = np.array([-5, 9, 1], np.int32), np.array([0, 1], np.int64)
        place_nodes([ring()], 0, 0, 3, 3, sizes, parts)
        assert parts.tolist() == [1, 1, 1]


class TestRefusals:
    def test_nodes_outside_of_the_index_space_are_refused(self) -> None:
        parts, sizes = np.zeros(2, np.uint8), np.zeros(2, np.int64)
        with pytest.raises(ValueError, match="outside of the index space"):
            place_nodes([ring()], 0, 0, 2, 3, sizes, parts)
        with pytest.raises(ValueError, match="outside of the index space"):
            count_votes(ring(), 0, 3, parts, np.zeros((3, 2), np.int32))
        with pytest.raises(ValueError, match="fewer rows"):
            place_nodes([ring()], 0, 0, 4, 4, sizes, np.zeros(9, np.uint8))

    def test_votes_of_other_nodes_are_refused(self) -> None:
        parts, sizes = np.zeros(3, np.uint8), np.zeros(2, np.int64)
        with pytest.raises(ValueError, match="votes of each node for each part"):
            place_nodes([ring()], 0, 0, 3, 3, sizes, parts, np.zeros((3, 1), np.int32))
        with pytest.raises(ValueError, match="votes of each node for each part"):
            count_votes(ring(), 0, 2, parts, np.zeros((3, 2), np.int32))

    def test_parts_without_room_for_all_nodes_are_refused(self) -> None:
        parts, sizes = np.full(3, 2, np.uint8), np.zeros(2, np.int64)
        with pytest.raises(ValueError, match="not enough for all nodes"):
            place_nodes([ring()], 0, 0, 3, 1, sizes, parts)

    def test_rows_of_some_nodes_are_refused(self) -> None:
        some = Adjacency(
            np.array([0, 1, 2, 3]), np.array([2, 0, 1]), Members.of(np.array([0, 2, 4]), 5)
        )
        for use in USES:
            with pytest.raises(ValueError, match="the rows of all nodes are needed"):
                use(RowsOfType(some, 0, 0, 5))

    def test_parts_of_another_type_are_refused(self) -> None:
        with pytest.raises(TypeError, match="uint8, int16 or int32"):
            place_nodes([ring()], 0, 0, 3, 3, np.zeros(2, np.int64), np.zeros(3, np.int64))
