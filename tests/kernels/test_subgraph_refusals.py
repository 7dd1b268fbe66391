"""What the subgraph kernels refuse: lists that make no sense, and topology that is damaged."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphFormatError
from penstock.kernels import Adjacency, Relation
from penstock.kernels.arrays import Array
from penstock.kernels.subgraph import InducedEdges, bidirectional, induced_edges
from penstock.kernels.twins import subgraph as twin
from tests.kernels.strategies import Job, same_array
from tests.kernels.test_damage import BAD_OFFSETS, damaged_jobs

pytestmark = pytest.mark.usefixtures("no_leaks")

GOOD = Adjacency(np.array([0, 1, 3, 4, 5]), np.array([0, 1, 2, 2, 3]))


def cutter(adjacency: Adjacency = GOOD) -> InducedEdges:
    return InducedEdges([4], [Relation(adjacency, ())])


@pytest.mark.parametrize("indptr", BAD_OFFSETS.values(), ids=BAD_OFFSETS)
def test_bad_offsets_are_damage(indptr: list[int]) -> None:
    for entries in (np.zeros(5, np.int64), np.zeros((5, 2), np.int32)):
        damaged = cutter(Adjacency(np.array(indptr), entries))
        with pytest.raises(GraphFormatError, match="damaged topology"):
            damaged.cut([np.array([3, 1])])


@pytest.mark.parametrize("bad", [-1, 4, -(2**63), 2**63 - 1])
def test_a_neighbour_outside_the_graph_is_damage(bad: int) -> None:
    damaged = cutter(Adjacency(GOOD.indptr, np.array([0, 1, bad, 2, 3])))
    with pytest.raises(GraphFormatError, match="damaged topology"):
        damaged.cut([np.array([1])])
    (edges,) = damaged.cut([np.array([0, 2])])  # as good as new
    assert edges.rows.tolist() == [0, 1]


@given(damaged_jobs(), st.booleans())
def test_any_offsets_and_neighbours_give_the_twins_edges_or_are_refused(
    job: Job, with_trees: bool
) -> None:
    trees = [np.arange(len(job.seeds[0])) % 2] if with_trees else None
    try:
        (edges,) = induced_edges(job.num_nodes, [job.edges[0].native], job.seeds, trees)
    except GraphFormatError:
        return
    (expected,) = twin.induced_edges([job.edges[0].twin], job.seeds, trees)
    for array, other in zip(edges, expected, strict=True):
        assert array is not None
        same_array(array, other)


@pytest.mark.parametrize("bad", [-1, 4, 2**40])
def test_a_listed_node_outside_the_graph_is_named(bad: int) -> None:
    with pytest.raises(ValueError, match=rf"nodes\[0\]\[1\] is {bad}; expected 0 <= id < 4"):
        cutter().cut([np.array([0, bad])])


@pytest.mark.parametrize("nodes", [[], [np.arange(2), np.arange(2)]])
def test_one_list_for_each_type_is_needed(nodes: list[Array]) -> None:
    with pytest.raises(ValueError, match="nodes must have one array for each of 1 types"):
        cutter().cut(nodes)
    with pytest.raises(ValueError, match="trees must have one array for each of 1 types"):
        cutter().cut([np.arange(2)], nodes)


def test_one_tree_for_each_node_is_needed() -> None:
    with pytest.raises(ValueError, match=r"trees\[0\] has 1 entries; there are 2 nodes"):
        cutter().cut([np.arange(2)], [np.zeros(1, np.int64)])


def test_nodes_that_are_no_integers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"nodes\[0\] must be integers, not float64"):
        cutter().cut([np.array([0.5])])


@pytest.mark.parametrize("type_", [-1, 1])
def test_a_relation_of_a_type_that_is_not_there_is_refused(type_: int) -> None:
    with pytest.raises(ValueError, match=f"relation 0 names node type {type_}"):
        InducedEdges([4], [Relation(GOOD, (), type_, 0)])
    with pytest.raises(ValueError, match=f"relation 0 names node type {type_}"):
        InducedEdges([4], [Relation(GOOD, (), 0, type_)])


def test_a_relation_with_more_rows_than_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="another number of rows"):
        InducedEdges([3], [Relation(GOOD, ())])


@pytest.mark.parametrize("name", ["rows", "cols", "rev_rows", "rev_cols"])
def test_a_negative_place_is_named(name: str) -> None:
    lists = {key: np.array([0, 1]) for key in ("rows", "cols", "rev_rows", "rev_cols")}
    lists[name][1] = -5
    with pytest.raises(ValueError, match=rf"^{name}\[1\] is -5; expected a place"):
        bidirectional(**lists)


@pytest.mark.parametrize("name", ["cols", "edge_ids", "rev_cols", "rev_edge_ids"])
def test_lists_of_different_lengths_are_named(name: str) -> None:
    names = ("rows", "cols", "edge_ids", "rev_rows", "rev_cols", "rev_edge_ids")
    lists = {key: np.array([0, 1]) for key in names}
    lists[name] = np.array([0, 1, 2])
    with pytest.raises(ValueError, match=f"^{name} has 3 entries; (rev_)?rows has 2"):
        bidirectional(**lists)


def test_half_of_the_reverses_is_refused() -> None:
    one = np.array([0])
    with pytest.raises(ValueError, match="rev_rows and rev_cols are needed both, or neither"):
        bidirectional(one, one, None, one)
    with pytest.raises(ValueError, match="edge_ids and rev_edge_ids are needed both, or neither"):
        bidirectional(one, one, one, one, one)


def test_a_cutter_in_use_by_a_thread_is_refused_to_another() -> None:
    size = 700
    rows = np.tile(np.arange(size), size)
    busy = InducedEdges(
        [size], [Relation(Adjacency(np.arange(0, size * size + 1, size), rows), ())]
    )
    refused = threading.Event()

    def work() -> None:
        while not refused.is_set():
            try:
                busy.cut([np.arange(size)], with_edge_ids=False)
            except RuntimeError:
                refused.set()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert refused.is_set()
