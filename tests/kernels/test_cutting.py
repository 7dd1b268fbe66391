"""Cutting a graph into parts: rows that are copied, their edges, and what is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.cutting import copy_rows, count_cut, edge_members, row_offsets
from penstock.kernels.members import Members
from penstock.kernels.twins import cutting as twin
from tests.kernels.large import rows_with_degrees


@st.composite
def rows(draw: st.DrawFn) -> Adjacency:
    """Rows of every form: hubs, empty rows, no nodes; paired and bare, narrow and wide."""
    degrees = draw(st.lists(st.integers(0, 9), max_size=12))
    total = sum(degrees)
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    indptr = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
    found = st.lists(st.integers(0, 20), min_size=total, max_size=total)
    neighbors = np.array(draw(found), dtype)
    if draw(st.booleans()):
        return Adjacency(indptr, neighbors)
    ids = draw(st.permutations(range(total)))
    return Adjacency(indptr, np.stack([neighbors, np.array(ids, dtype)], axis=1))


def some_nodes(data: st.DataObject, adjacency: Adjacency) -> Ids:
    ids = (
        st.sets(st.integers(0, adjacency.num_nodes - 1)) if adjacency.num_nodes else st.just(set())
    )
    return np.array(sorted(data.draw(ids)), np.int64)


@given(rows(), st.data(), st.sampled_from([np.int32, np.int64]), st.integers(1, 7))
def test_rows_are_copied_as_the_twin_copies_them(
    adjacency: Adjacency, data: st.DataObject, dtype: type, piece: int
) -> None:
    nodes = some_nodes(data, adjacency)
    offsets = row_offsets(adjacency, nodes)
    expected = twin.copy_rows(adjacency.indptr, adjacency.neighbors, adjacency.edge_ids, nodes)
    found = np.empty(expected.shape, dtype)
    for begin in range(0, len(found), piece):  # in pieces that cut rows apart
        copy_rows(adjacency, nodes, offsets, begin, found[begin : begin + piece])
    assert found.tolist() == expected.tolist()
    copy_rows(adjacency, nodes, offsets, len(found), found[:0])
    alone = np.empty(len(expected), dtype)
    for begin in range(0, len(alone), piece):
        copy_rows(adjacency, nodes, offsets, begin, alone[begin : begin + piece])
    assert alone.tolist() == expected[:, 0].tolist()


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_rows_that_are_fetched_ahead_are_those_that_are_copied(paired: bool, dtype: str) -> None:
    degrees = np.random.default_rng(1).integers(0, 4, 100)
    adjacency = rows_with_degrees(degrees, 100, paired=paired, dtype=dtype).adjacency
    nodes = np.arange(0, 100, 2)
    expected = twin.copy_rows(adjacency.indptr, adjacency.neighbors, adjacency.edge_ids, nodes)
    found = np.empty(expected.shape, dtype)
    copy_rows(adjacency, nodes, row_offsets(adjacency, nodes), 0, found)
    assert found.tolist() == expected.tolist()


@given(rows(), st.data())
def test_edges_are_marked_as_the_twin_finds_them(adjacency: Adjacency, data: st.DataObject) -> None:
    nodes = some_nodes(data, adjacency)
    members = edge_members(adjacency, nodes, adjacency.num_edges)
    members.check()
    expected = twin.edges_of(adjacency.indptr, adjacency.edge_ids, nodes)
    assert members.ids().tolist() == expected.tolist()


@given(rows(), st.data(), st.sampled_from([np.uint8, np.int16, np.int32]), st.integers(1, 5))
def test_cut_edges_are_counted_as_the_twin_counts_them(
    adjacency: Adjacency, data: st.DataObject, dtype: type, parts: int
) -> None:
    def assigned(size: int) -> Array:
        each = st.lists(st.integers(0, parts - 1), min_size=size, max_size=size)
        return np.array(data.draw(each), dtype)

    owners, others = assigned(adjacency.num_nodes), assigned(21)
    found = count_cut(adjacency, owners, others, parts)
    expected = twin.count_cut(adjacency.indptr, adjacency.neighbors, owners, others, parts)
    assert found.tolist() == expected.tolist()


RING = Adjacency(np.array([0, 1, 2, 3]), np.array([[2, 0], [0, 1], [1, 2]]))
ALL = np.arange(3)


def ring(indptr: list[int] | None = None, entries: list[list[int]] | None = None) -> Adjacency:
    """The ring of three nodes, with damage."""
    return Adjacency(
        RING.indptr if indptr is None else np.array(indptr),
        RING.entries if entries is None else np.array(entries),
    )


class TestDamage:
    @pytest.mark.parametrize("indptr", [[0, 2, 1, 3], [0, -1, 2, 3], [0, 1, 9, 3]])
    def test_offsets_out_of_order_are_found(self, indptr: list[int]) -> None:
        damaged = ring(indptr)
        with pytest.raises(GraphFormatError, match="damaged topology"):
            edge_members(damaged, ALL, 3)
        with pytest.raises(GraphFormatError, match="damaged topology"):
            count_cut(damaged, np.zeros(3, np.uint8), np.zeros(3, np.uint8), 1)
        with pytest.raises(GraphFormatError, match="damaged topology"):
            copy_rows(damaged, ALL, np.array([0, 1, 2, 3]), 0, np.empty((3, 2), np.int64))

    @pytest.mark.parametrize("edge", [-1, 3, 0])
    def test_edges_out_of_range_or_twice_are_found(self, edge: int) -> None:
        with pytest.raises(GraphFormatError, match="damaged topology"):
            edge_members(ring(entries=[[2, 0], [0, 1], [1, edge]]), ALL, 3)

    @pytest.mark.parametrize("neighbor", [-1, 3])
    def test_neighbours_out_of_range_are_found(self, neighbor: int) -> None:
        damaged = ring(entries=[[2, 0], [neighbor, 1], [1, 2]])
        with pytest.raises(GraphFormatError, match="damaged topology"):
            count_cut(damaged, np.zeros(3, np.uint8), np.zeros(3, np.uint8), 1)

    def test_parts_out_of_range_are_found(self) -> None:
        with pytest.raises(GraphFormatError, match="damaged topology"):
            count_cut(RING, np.array([0, 2, 0], np.uint8), np.zeros(3, np.uint8), 2)


class TestRefusals:
    def test_a_node_that_is_not_there_is_named(self) -> None:
        for ask in (
            lambda nodes: row_offsets(RING, nodes),
            lambda nodes: edge_members(RING, nodes, 3),
            lambda nodes: copy_rows(RING, nodes, np.zeros(3, np.int64), 0, np.empty((0, 2), int)),
        ):
            with pytest.raises(ValueError, match=r"nodes\[1\] is 3; expected 0 <= id < 3"):
                ask(np.array([0, 3]))

    @pytest.mark.parametrize(("begin", "size"), [(-1, 1), (1, 3), (4, 0)])
    def test_more_than_there_is_is_refused(self, begin: int, size: int) -> None:
        with pytest.raises(ValueError, match="within 3 entries"):
            copy_rows(RING, ALL, row_offsets(RING, ALL), begin, np.empty((size, 2), np.int64))

    def test_parts_of_other_nodes_are_refused(self) -> None:
        with pytest.raises(ValueError, match="expected the part of each of 3 nodes"):
            count_cut(RING, np.zeros(2, np.uint8), np.zeros(3, np.uint8), 1)
        with pytest.raises(ValueError, match="of one type"):
            count_cut(RING, np.zeros(3, np.uint8), np.zeros(3, np.int32), 1)

    def test_rows_of_some_nodes_are_refused(self) -> None:
        some = Adjacency(RING.indptr, RING.entries, Members.of(np.array([0, 2, 4]), 5))
        with pytest.raises(ValueError, match="the rows of all nodes are needed"):
            edge_members(some, np.array([0]), 5)
