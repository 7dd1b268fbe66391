"""Edges among nodes that are there already: native against the twin, and by hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import Adjacency, Relation
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.subgraph import Edges, InducedEdges, bidirectional, induced_edges
from penstock.kernels.twins import subgraph as twin
from tests.kernels.large import degrees_around, rows_with_degrees
from tests.kernels.strategies import Edges as Along
from tests.kernels.strategies import any_rows, any_seeds, same_array


@dataclass(frozen=True)
class Task:
    """Nodes by type, and the relations between them."""

    num_nodes: list[int]
    edges: list[Along]
    nodes: list[Ids]
    trees: list[Ids] | None = None

    def native(self) -> list[Edges]:
        relations = [along.native for along in self.edges]
        return induced_edges(self.num_nodes, relations, self.nodes, self.trees)

    def twin(self) -> list[twin.Edges]:
        return twin.induced_edges([along.twin for along in self.edges], self.nodes, self.trees)


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    num_nodes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    types = st.integers(0, len(num_nodes) - 1)
    edges = []
    for _ in range(draw(st.integers(0, 3))):
        expands, finds = draw(types), draw(types)
        rows = draw(any_rows(num_nodes[finds], num_nodes[expands]))
        edges.append(Along(rows, (), expands, finds))
    nodes = [draw(any_seeds(count)) for count in num_nodes]
    if draw(st.booleans()):
        return Task(num_nodes, edges, nodes)
    trees = st.integers(0, 2)
    return Task(
        num_nodes,
        edges,
        nodes,
        [
            np.array(draw(st.lists(trees, min_size=len(ids), max_size=len(ids))), np.int64)
            for ids in nodes
        ],
    )


def assert_same_edges(found: Edges, expected: twin.Edges) -> None:
    for array, other in zip(found, expected, strict=True):
        assert array is not None
        same_array(array, other)


# --- induced --------------------------------------------------------------------------------------


@given(tasks())
def test_the_edges_among_nodes_are_the_twins(task: Task) -> None:
    for found, expected in zip(task.native(), task.twin(), strict=True):
        assert_same_edges(found, expected)


@given(tasks())
def test_the_edges_are_the_same_without_their_ids(task: Task) -> None:
    relations = [along.native for along in task.edges]
    bare = induced_edges(task.num_nodes, relations, task.nodes, task.trees, with_edge_ids=False)
    for without, full in zip(bare, task.native(), strict=True):
        assert without.edge_ids is None
        same_array(without.rows, full.rows)
        same_array(without.cols, full.cols)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
@pytest.mark.parametrize("num_trees", [0, 3])
def test_large_lists_fill_every_chunk(
    paired: bool, dtype: str, share: float, num_trees: int
) -> None:
    rng = np.random.default_rng(5)
    rows = rows_with_degrees(degrees_around(9, 1000), 1000, paired=paired, dtype=dtype)
    nodes = rng.choice(1000, int(share * 1000), replace=share < 1)
    trees = [rng.integers(0, num_trees, len(nodes))] if num_trees else None
    task = Task([1000], [Along(rows, ())], [nodes], trees)
    ((found,), (expected,)) = task.native(), task.twin()
    assert len(found.rows) > (100 if share > 0.1 else 0)
    assert_same_edges(found, expected)


#   0 <- 1, 2 (twice), 0     1 <- 2     2 <- 0, 3     3 <- nothing
SMALL = Adjacency(np.array([0, 4, 5, 7, 7]), np.array([1, 2, 2, 0, 2, 0, 3]))


def test_all_edges_among_the_nodes_in_order_of_places_then_of_storage() -> None:
    (edges,) = induced_edges([4], [Relation(SMALL, ())], [np.array([2, 0])])
    assert edges.cols.tolist() == [0, 1, 1, 1]
    assert edges.rows.tolist() == [1, 0, 0, 1]
    assert edges.edge_ids is not None
    assert edges.edge_ids.tolist() == [5, 1, 2, 3]


def test_a_node_listed_twice_counts_at_its_first_place() -> None:
    (edges,) = induced_edges([4], [Relation(SMALL, ())], [np.array([0, 2, 0, 2])])
    assert edges.cols.tolist() == [0, 0, 0, 1]
    assert edges.rows.tolist() == [1, 1, 0, 0]


def test_edges_between_trees_are_left_out() -> None:
    nodes, trees = np.array([0, 1, 0, 2, 1, 2]), np.array([0, 0, 1, 0, 1, 2])
    (edges,) = induced_edges([4], [Relation(SMALL, ())], [nodes], [trees])
    assert list(zip(edges.rows.tolist(), edges.cols.tolist(), strict=True)) == [
        (1, 0),  # tree 0: 1 -> 0, 2 -> 0 twice, 0 -> 0
        (3, 0),
        (3, 0),
        (0, 0),
        (3, 1),  # 2 -> 1
        (4, 2),  # tree 1: 1 -> 0, 0 -> 0
        (2, 2),
        (0, 3),  # 0 -> 2
    ]


@pytest.mark.parametrize("nodes", [[], [3], [1, 3]])
def test_nodes_without_edges_among_them_have_none(nodes: list[int]) -> None:
    (edges,) = induced_edges([4], [Relation(SMALL, ())], [np.array(nodes, np.int64)])
    assert [len(array) for array in edges if array is not None] == [0, 0, 0]


def test_a_complete_graph_is_found_whole() -> None:
    size = 40
    everybody = np.tile(np.arange(size), size)
    complete = Adjacency(np.arange(0, size * size + 1, size), everybody)
    (edges,) = induced_edges([size], [Relation(complete, ())], [np.arange(size)])
    assert edges.rows.tolist() == everybody.tolist()
    assert edges.cols.tolist() == np.repeat(np.arange(size), size).tolist()


def test_a_cutter_forgets_the_lists_before() -> None:
    cutter = InducedEdges([4], [Relation(SMALL, ())])
    cutter.cut([np.arange(4)])
    (edges,) = cutter.cut([np.array([1, 3])])
    assert len(edges.rows) == 0


def test_the_lists_stay_when_their_cutter_is_gone() -> None:
    (edges,) = InducedEdges([4], [Relation(SMALL, ())]).cut([np.arange(4)])
    assert edges.rows.tolist() == [1, 2, 2, 0, 2, 0, 3]
    edges.rows[0] = 7  # memory of their own
    assert edges.rows[0] == 7


# --- bidirectional --------------------------------------------------------------------------------

PLACES = st.one_of(st.integers(0, 6), st.integers(0, 300), st.integers(0, 2**63 - 2))


@st.composite
def edge_tables(draw: st.DrawFn) -> tuple[Ids, Ids, Ids]:
    pairs = draw(st.lists(st.tuples(PLACES, PLACES, st.integers(-9, 99)), max_size=40))
    table = np.array(pairs, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]  # strided: every third number


@given(edge_tables())
def test_edges_and_their_reverses_are_the_twins(edges: tuple[Ids, Ids, Ids]) -> None:
    assert_same_edges(bidirectional(*edges), twin.bidirectional(*edges))


@given(edge_tables(), edge_tables())
def test_edges_and_the_reverses_of_others_are_the_twins(
    edges: tuple[Ids, Ids, Ids], back: tuple[Ids, Ids, Ids]
) -> None:
    assert_same_edges(bidirectional(*edges, *back), twin.bidirectional(*edges, back))


def test_many_edges_and_their_reverses_are_the_twins() -> None:
    rng = np.random.default_rng(3)
    edges = rng.integers(0, 500, 20_000), rng.integers(0, 400, 20_000), rng.permutation(20_000)
    assert_same_edges(bidirectional(*edges), twin.bidirectional(*edges))


def test_an_edge_keeps_its_first_id_and_gives_it_to_its_reverse() -> None:
    rows, cols, ids = np.array([0, 1, 0, 2]), np.array([1, 0, 1, 2]), np.array([7, 8, 9, 5])
    edges = bidirectional(rows, cols, ids)
    assert edges.rows.tolist() == [1, 0, 2]
    assert edges.cols.tolist() == [0, 1, 2]
    assert edges.edge_ids is not None
    assert edges.edge_ids.tolist() == [8, 7, 5]


def test_edges_without_ids_have_reverses_without_ids() -> None:
    edges = bidirectional(np.array([0]), np.array([3]), None, np.array([5]), np.array([1]))
    assert edges.edge_ids is None
    assert edges.rows.tolist() == [0, 1]
    assert edges.cols.tolist() == [3, 5]


def test_no_edges_have_no_reverses() -> None:
    nothing: Array = np.empty(0, np.int64)
    edges = bidirectional(nothing, nothing, nothing)
    assert [len(array) for array in edges if array is not None] == [0, 0, 0]
