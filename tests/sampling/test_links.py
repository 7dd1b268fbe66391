"""Links: edges, what stands against them, and how both are told in a batch."""

from __future__ import annotations

from itertools import product
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import EdgeType, Graph
from penstock.graph.derived import SortedNeighbors
from penstock.kernels.arrays import Array
from penstock.sampling.links import LinkKind, LinkSeedBuilder, label_shift
from penstock.sampling.spec import LinkSpec
from tests.sampling.graphs import CITES, HOUSES, WRITES, library, web
from tests.sampling.linking import EDGE, batch_of_links, edge_set, request_of, spec_of, started

EDGES = np.array([[3, 5, 3, 9], [5, 3, 7, 9]])


def pairs_of(n_id: Array, index: Array) -> list[tuple[int, int]]:
    return [(int(n_id[u]), int(n_id[v])) for u, v in index.T]


# --- edges and their ends -------------------------------------------------------------------------


def test_the_ends_of_edges_are_seeds_each_once_in_order_of_first_appearance() -> None:
    start = started(web(), spec_of(2), request_of(EDGES))
    assert start.seeds[0].tolist() == [3, 5, 9, 7]
    assert start.arrays["edge_label_index"].tolist() == [[0, 1, 0, 2], [1, 0, 3, 2]]
    assert list(start.arrays) == ["input_id", "edge_label_index"]
    assert start.arrays["input_id"].tolist() == [100, 101, 102, 103]
    assert start.facts == {"batch_size": 4}
    assert start.trees is None
    assert start.times is None


def test_ends_of_two_types_have_two_lists() -> None:
    start = started(library(), spec_of(2), request_of([[4, 4, 2], [4, 9, 4]], WRITES))
    assert [ids.tolist() for ids in start.seeds] == [[4, 9], [4, 2], []]
    name = "author,writes,paper/edge_label_index"
    assert start.arrays[name].tolist() == [[0, 0, 1], [0, 1, 0]]
    assert start.facts == {"batch_size": 3, "input_type": "author,writes,paper"}


def test_ends_of_one_type_of_several_share_a_list() -> None:
    start = started(library(), spec_of(2), request_of([[4, 8], [8, 4]], CITES))
    assert [ids.tolist() for ids in start.seeds] == [[4, 8], [], []]
    assert start.arrays["paper,cites,paper/edge_label_index"].tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("disjoint", [False, True])
def test_a_whole_batch_has_its_edges_where_it_says(disjoint: bool) -> None:
    """CONTRACT 43, 46: `n_id[edge_label_index]` are the edges given, and all else is as ever."""
    graph = web()
    edges = graph.edge_index()[:, 20:52]
    spec = spec_of(5, 3, negatives="binary", disjoint=disjoint)
    facts, arrays = batch_of_links(graph, spec, request_of(edges))
    there = edge_set(graph)
    assert pairs_of(arrays["n_id"], arrays["edge_label_index"][:, :32]) == pairs_of(
        np.arange(200), edges
    )
    assert set(pairs_of(arrays["n_id"], arrays["edge_index"])) <= there
    np.testing.assert_array_equal(arrays["x"], graph.node_attribute("x")[arrays["n_id"]])
    assert facts["batch_size"] == 32
    assert arrays["edge_label_index"].max() < facts["num_sampled_nodes"][0]


# --- binary -----------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [0.1, 0.5, 1.0, 2.5, 7.0])
def test_binary_negatives_are_appended_to_the_edges(amount: float) -> None:
    """CONTRACT 46: as many as the ratio says, rounded up; ones and zeros where no labels are."""
    spec = spec_of(2, negatives="binary", amount=amount)
    start = started(web(), spec, request_of(EDGES))
    count = ceil(4 * amount)
    index, label = start.arrays["edge_label_index"], start.arrays["edge_label"]
    assert index.shape == (2, 4 + count)
    assert pairs_of(start.seeds[0], index[:, :4]) == [(3, 5), (5, 3), (3, 7), (9, 9)]
    assert label.dtype == np.float32
    assert label.tolist() == [1.0] * 4 + [0.0] * count
    assert len(set(start.seeds[0].tolist())) == len(start.seeds[0])


def test_seeds_are_sources_destinations_then_negatives() -> None:
    start = started(web(), spec_of(2, negatives="binary"), request_of([[3], [5]]))
    assert start.seeds[0][:2].tolist() == [3, 5]
    assert start.arrays["edge_label_index"].tolist() == [[0, 2], [1, 3]]


def test_labels_move_up_where_the_feed_says_so_and_negatives_have_label_0() -> None:
    """CONTRACT 46: the shift is decided over all labels; this batch alone has no 0."""
    everything = np.array([2, 0, 1, 2, 2, 1])
    shift = np.array([label_shift(everything)])
    request = request_of(EDGES, columns={"label": everything[2:]}, tables={"label_shift": shift})
    start = started(web(), spec_of(2, negatives="binary", amount=0.5), request)
    assert start.arrays["edge_label"].tolist() == [2, 3, 3, 2, 0, 0]
    assert start.arrays["edge_label"].dtype == everything.dtype


@pytest.mark.parametrize(
    ("labels", "shift"),
    [([0, 1], 1), ([1, 2], 0), ([-1, 1], 0), ([], 0), ([False, True], 1), ([0.0, 0.5], 1)],
)
def test_labels_move_up_if_the_least_of_all_is_0(labels: list[float], shift: int) -> None:
    assert label_shift(np.array(labels)) == shift


@pytest.mark.parametrize("labels", [[-1, 0], [0.0, np.nan], [-0.5, 0.0, 0.5]])
def test_labels_that_leave_no_0_to_negatives_are_refused(labels: list[float]) -> None:
    with pytest.raises(ValueError, match=r"label has (-1|nan|-0\.5) and 0: negatives have"):
        label_shift(np.array(labels))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "uint64"])
def test_labels_that_would_be_shifted_beyond_their_dtype_are_refused(dtype: str) -> None:
    most = np.iinfo(dtype).max
    with pytest.raises(ValueError, match=f"label has {most}, the most that {dtype} can hold"):
        label_shift(np.array([most, 0], dtype))
    assert label_shift(np.array([most - 1, 0], dtype)) == 1
    assert label_shift(np.array([most, 1], dtype)) == 0


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float32", "float16", "float64"])
def test_labels_keep_their_type_and_shape(dtype: str) -> None:
    labels = np.arange(8).reshape(4, 2).astype(dtype)
    request = request_of(EDGES, columns={"label": labels}, tables={"label_shift": np.array([1])})
    label = started(web(), spec_of(2, negatives="binary"), request).arrays["edge_label"]
    assert label.dtype == labels.dtype
    assert label.tolist() == [*(labels + 1).tolist(), *np.zeros((4, 2)).tolist()]


def test_labels_of_bool_become_numbers_when_they_move() -> None:
    columns = {"label": np.array([True, False, True, True])}
    spec = spec_of(2, negatives="binary", amount=0.25)
    moved = started(
        web(), spec, request_of(EDGES, columns=columns, tables={"label_shift": np.array([1])})
    )
    assert moved.arrays["edge_label"].tolist() == [2, 1, 2, 2, 0]
    assert moved.arrays["edge_label"].dtype == np.int64
    kept = started(web(), spec, request_of(EDGES, columns=columns))
    assert kept.arrays["edge_label"].dtype == bool


def test_without_negatives_labels_are_as_given() -> None:
    labels = np.array([0, 1, 0, 1], np.int16)
    start = started(web(), spec_of(2), request_of(EDGES, columns={"label": labels}))
    assert start.arrays["edge_label"].tolist() == labels.tolist()
    assert start.arrays["edge_label"].dtype == np.int16


# --- triplets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("amount", [1, 3])
@pytest.mark.parametrize("kind", [WRITES, CITES])
def test_triplets_are_told_on_the_stores_of_their_ends(
    kind: EdgeType, amount: int, disjoint: bool
) -> None:
    """CONTRACT 46."""
    graph = library()
    spec = spec_of(2, negatives="triplet", amount=amount, disjoint=disjoint)
    edges = np.array([[1, 2, 1, 7, 8], [3, 3, 4, 9, 9]])
    start = started(graph, spec, request_of(edges, kind))
    source, destination = (graph.node_types.index(kind[end]) for end in (0, 2))
    positives = start.arrays[f"{kind[2]}/dst_pos_index"]
    negatives = start.arrays[f"{kind[2]}/dst_neg_index"]
    sources = start.arrays[f"{kind[0]}/src_index"]
    assert start.seeds[source][sources].tolist() == edges[0].tolist()
    assert start.seeds[destination][positives].tolist() == edges[1].tolist()
    assert negatives.shape == ((5,) if amount == 1 else (5, amount))
    assert negatives.max() < len(start.seeds[destination])
    assert not any("label" in name for name in start.arrays)


def test_triplets_stand_against_their_own_edges() -> None:
    """CONTRACT 46: strict ones share no edge with the source in their row, and cover the rest."""
    graph = Graph.from_coo([[0, 0, 1, 1], [0, 1, 2, 3]], 4)
    spec = spec_of(1, negatives="triplet", amount=40, strict=True)
    start = started(graph, spec, request_of([[0, 1], [0, 2]]))
    negatives = start.seeds[0][start.arrays["dst_neg_index"]]
    assert [set(row.tolist()) for row in negatives] == [{2, 3}, {0, 1}]
    assert start.facts["num_false_negatives"] == 0


# --- strict, weighted -----------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, EdgeType, Array]:
    """A random graph of two node types, an edge type of it, and inputs."""
    sizes = {"a": draw(st.integers(1, 8)), "b": draw(st.integers(1, 8))}
    kinds = [("a", "to", "b"), ("b", "to", "b")]
    edges = {}
    for kind in kinds:
        every = list(product(range(sizes[kind[0]]), range(sizes[kind[2]])))
        chosen = draw(st.lists(st.sampled_from(every), max_size=60) | st.just(every))
        edges[kind] = np.array(chosen, np.int64).reshape(-1, 2).T
    kind = draw(st.sampled_from(kinds))
    ends = st.tuples(st.integers(0, sizes[kind[0]] - 1), st.integers(0, sizes[kind[2]] - 1))
    inputs = np.array(draw(st.lists(ends, min_size=1, max_size=5)), np.int64).T
    return Graph.from_coo(edges, sizes), kind, inputs


@given(graphs(), st.sampled_from(["binary", "triplet"]), st.booleans(), st.integers(0, 99))
def test_strict_negatives_are_no_edges_or_counted(
    case: tuple[Graph, EdgeType, Array], mode: str, disjoint: bool, index: int
) -> None:
    """CONTRACT 46: against all edges there are, and against the one each stands against."""
    graph, kind, inputs = case
    spec = spec_of(1, negatives=mode, amount=3, strict=True, disjoint=disjoint)
    start = started(graph, spec, request_of(inputs, kind, index=index))
    negatives = negatives_of(graph, kind, start, mode, inputs.shape[1])
    edges = edge_set(graph, kind)
    given = list(map(tuple, inputs.T.tolist()))
    false = sum(pair in edges or pair == given[k % len(given)] for k, pair in enumerate(negatives))
    assert len(negatives) == 3 * len(given)
    assert start.facts["num_false_negatives"] == false
    for source, destination in negatives if false and mode == "triplet" else ():
        taken = {v for u, v in edges if u == source}
        if (source, destination) in edges:  # only where there was nothing else
            assert len(taken | {v for u, v in given if u == source}) == graph.num_nodes(kind[2])


def negatives_of(
    graph: Graph, kind: EdgeType, start: object, mode: str, count: int
) -> list[tuple[int, int]]:
    """Negatives as pairs, in the order they were drawn."""
    seeds, arrays = start.seeds, start.arrays  # type: ignore[attr-defined]
    source, destination = (seeds[graph.node_types.index(kind[end])] for end in (0, 2))
    if mode == "binary":
        index = arrays[f"{','.join(kind)}/edge_label_index"][:, count:]
        return list(zip(source[index[0]].tolist(), destination[index[1]].tolist(), strict=True))
    rows = arrays[f"{kind[2]}/dst_neg_index"].reshape(count, -1).T
    sources = source[arrays[f"{kind[0]}/src_index"]].tolist()
    return [(u, v) for row in rows for u, v in zip(sources, destination[row].tolist(), strict=True)]


def test_a_node_of_weight_0_is_in_no_negative() -> None:
    """CONTRACT 46."""
    weights = np.zeros(200, np.int64)
    weights[[11, 12]] = [1, 3]
    others = np.zeros(200, np.int64)
    others[150:] = 1
    tables = {"src_weight": np.cumsum(weights), "dst_weight": np.cumsum(others)}
    spec = spec_of(1, negatives="binary", amount=50)
    start = started(web(), spec, request_of(EDGES, tables=tables))
    drawn = start.seeds[0][start.arrays["edge_label_index"][:, 4:]]
    assert set(drawn[0].tolist()) == {11, 12}
    assert drawn[1].min() >= 150


def test_another_table_of_weights_is_heeded_at_once() -> None:
    seed_builder = LinkSeedBuilder(web(), spec_of(1, negatives="triplet", amount=9))
    for only in (17, 18):
        sums = np.cumsum(np.arange(200) == only)
        start = seed_builder.start(request_of(EDGES, tables={"dst_weight": sums}))
        assert set(start.seeds[0][start.arrays["dst_neg_index"]].reshape(-1).tolist()) == {only}


def test_an_edge_type_that_the_graph_has_not_can_be_asked_for_but_not_checked_against() -> None:
    kind = ("venue", "prints", "paper")
    graph, request = library(), request_of([[1, 2], [30, 30]], kind)
    start = started(graph, spec_of(1, negatives="binary"), request)
    assert start.arrays["venue,prints,paper/edge_label_index"].shape == (2, 4)
    with pytest.raises(ValueError, match=r"edge_type is \('venue', 'prints', 'paper'\)"):
        started(graph, spec_of(1, negatives="binary", strict=True), request)


# --- degenerate graphs ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("disjoint", [False, True])
def test_graphs_that_leave_no_choice_are_done_with(mode: str, disjoint: bool) -> None:
    spec = spec_of(-1, 2, negatives=mode, amount=2, strict=True, disjoint=disjoint)
    every = np.array(list(product(range(6), range(6)))).T
    for graph in (
        Graph.from_coo(np.empty((2, 0), np.int64), 1),
        Graph.from_coo([[0], [0]], 1),
        Graph.from_coo(every, 6),
    ):
        facts, arrays = batch_of_links(graph, spec, request_of([[0, 0], [0, 0]]))
        assert facts["num_false_negatives"] == 4
        assert arrays["n_id"].max() < graph.num_nodes()


# --- the same again -------------------------------------------------------------------------------


def test_a_batch_is_a_pure_function_of_its_name() -> None:
    graph = web()
    spec = spec_of(3, 2, negatives="binary", amount=3, strict=True)
    seed_builder = LinkSeedBuilder(graph, spec)
    other = seed_builder.start(request_of(EDGES, index=8)).arrays["edge_label_index"].tolist()
    first = seed_builder.start(request_of(EDGES, index=7))
    again = started(graph, spec, request_of(EDGES, index=7))
    assert first.seeds[0].tolist() == again.seeds[0].tolist()
    assert first.arrays["edge_label_index"].tolist() == again.arrays["edge_label_index"].tolist()
    assert first.arrays["edge_label_index"].tolist() != other


# --- room and cost --------------------------------------------------------------------------------


def _against(fanout: int, mode: str, amount: int, **options: Any) -> LinkSpec:
    """An amount only where there are negatives."""
    return spec_of(fanout, negatives=mode, amount=1 if mode == "none" else amount, **options)


@given(
    st.sampled_from(["none", "binary", "triplet"]),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([WRITES, CITES, HOUSES]),
    st.booleans(),
    st.integers(1, 40),
)
def test_a_batch_never_needs_more_room_than_is_said(
    mode: str, amount: int, kind: EdgeType, disjoint: bool, inputs: int
) -> None:
    graph = library()
    sizes = [graph.num_nodes(kind[end]) for end in (0, 2)]
    edges = np.random.default_rng(inputs).integers(0, sizes, (inputs, 2)).T
    seed_builder = LinkSeedBuilder(graph, _against(1, mode, amount, disjoint=disjoint))
    start = seed_builder.start(request_of(edges, kind, columns={}))
    most = seed_builder.most_seeds(inputs, kind)
    assert all(len(ids) <= bound for ids, bound in zip(start.seeds, most, strict=True))
    room = sum(8 * int(np.prod(shape)) for _, shape in seed_builder.most_arrays(inputs, kind))
    assert sum(array.nbytes for array in start.arrays.values()) <= room
    assert len(start.arrays) <= len(seed_builder.most_arrays(inputs, kind))


def test_rows_to_look_edges_up_in_are_needed_only_where_someone_looks() -> None:
    graph = library()
    assert LinkKind().needs(spec_of(1, negatives="binary"), graph) == []
    strict = LinkKind().needs(spec_of(1, negatives="binary", strict=True), graph)
    assert strict == [SortedNeighbors(kind) for kind in graph.edge_types]


def test_more_negatives_cost_more() -> None:
    graph = web(2000, 20_000)
    costs = [
        LinkKind().draws(_against(5, mode, 4), graph, 8, EDGE)
        for mode in ("none", "triplet", "binary")
    ]
    assert 0 < costs[0] < costs[1] < costs[2]


def test_edges_of_a_homogeneous_graph_have_the_nameless_type() -> None:
    assert LinkSeedBuilder(web(), spec_of(1)).most_seeds(7, EDGE) == [14]
