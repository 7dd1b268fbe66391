"""Neighbourhoods made whole: induced and bidirectional batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.graph import EdgeType, Graph
from penstock.kernels import Sample
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.collate import sampler_of
from penstock.sampling.induced import InducedSampler, check_whole, reverse_types
from penstock.sampling.names import qualified
from penstock.sampling.request import Request
from penstock.sampling.seeds import NodeSeedBuilder, Seeds
from penstock.sampling.spec import Direction, NeighborSpec
from tests.sampling.graphs import CITES, HOUSES, WRITES, Array, library, web
from tests.sampling.subgraphs import Desk, assert_whole, request_of

REV_WRITES = ("paper", "rev_writes", "author")


def whole_sampler_of(graph: Graph, spec: NeighborSpec) -> InducedSampler:
    return InducedSampler(graph, spec, NodeSeedBuilder(graph, spec))


def sampled(graph: Graph, spec: NeighborSpec, request: Request) -> Sample:
    start = NodeSeedBuilder(graph, spec).start(request)
    return sampler_of(graph, spec).sample_by_type(start.seeds)


def pairs(ends: Array) -> set[tuple[int, int]]:
    return {(row, col) for row, col in ends.T.tolist()}


def is_sorted_and_coalesced(ends: Array) -> bool:
    keys = [(col, row) for row, col in ends.T.tolist()]
    return keys == sorted(set(keys))


def two_ways() -> Graph:
    """Edge types with a reverse by name, among one kind of nodes, and with an only way back."""
    rng = np.random.default_rng(4)
    sizes = {"paper": 40, "author": 30, "venue": 5}
    kinds = [WRITES, CITES, REV_WRITES, HOUSES, ("author", "likes", "venue")]
    return Graph.from_coo(
        {
            kind: np.stack(
                [rng.integers(0, sizes[kind[0]], 90), rng.integers(0, sizes[kind[2]], 90)]
            )
            for kind in kinds
        },
        sizes,
        edge_attr={kind: rng.random((90, 2), np.float32) for kind in kinds},
    )


# --- induced --------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("replace", [False, True])
def test_an_induced_batch_has_all_edges_among_the_nodes_sampled(
    direction: Direction, replace: bool
) -> None:
    graph = web()
    spec = NeighborSpec(
        num_neighbors=(3, 2), subgraph_type="induced", direction=direction, replace=replace
    )
    request = request_of([7, 100, 3])
    cut = whole_sampler_of(graph, spec).cut(request)
    np.testing.assert_array_equal(cut.arrays["n_id"], sampled(graph, spec, request).nodes[0])
    assert_whole(graph, ("", "", ""), cut.arrays, direction)
    assert cut.facts == {"batch_size": 3}  # and no counts per hop


def test_a_seed_given_twice_has_its_edges_at_its_first_place() -> None:
    """CONTRACT 42: seeds keep their rows; edges point at the first of equal ones."""
    graph = Graph.from_coo([[1, 0], [0, 1]], 2)
    spec = NeighborSpec(num_neighbors=(), subgraph_type="induced")
    cut = whole_sampler_of(graph, spec).cut(request_of([0, 1, 0]))
    assert cut.arrays["n_id"].tolist() == [0, 1, 0]
    assert cut.arrays["edge_index"].tolist() == [[1, 0], [0, 1]]


def test_a_heterogeneous_induced_batch_is_whole_in_every_type() -> None:
    graph, spec = library(), NeighborSpec(num_neighbors=(3, 2), subgraph_type="induced")
    cut = whole_sampler_of(graph, spec).cut(request_of([4, 5], "paper"))
    for kind in graph.edge_types:
        assert_whole(graph, kind, cut.arrays, "in")
    assert cut.facts == {"batch_size": 2, "input_type": "paper"}


def test_an_edge_type_that_takes_none_has_none() -> None:
    """CONTRACT 45: fan-out 0 takes none, also where the edge is among the nodes sampled."""
    graph = library()
    spec = NeighborSpec(
        by_type=((WRITES, (3, 2)), (CITES, (0, 0)), (HOUSES, (0, 1))), subgraph_type="induced"
    )
    cut = whole_sampler_of(graph, spec).cut(request_of(list(range(30)), "paper"))
    assert cut.arrays[qualified(CITES, "edge_index")].shape == (2, 0)
    assert cut.arrays[qualified(CITES, "e_id")].shape == (0,)
    for kind in (WRITES, HOUSES):
        assert_whole(graph, kind, cut.arrays, "in")


def test_an_induced_batch_of_trees_has_no_edge_between_them() -> None:
    graph = web()
    spec = NeighborSpec(num_neighbors=(3,), subgraph_type="induced", disjoint=True)
    cut = whole_sampler_of(graph, spec).cut(request_of([7, 7, 3]))
    nodes, trees, ends = (cut.arrays[name] for name in ("n_id", "batch", "edge_index"))
    assert trees[:3].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(trees[ends[0]], trees[ends[1]])
    for tree in range(3):
        mine = nodes[trees == tree]
        among = np.isin(graph.edge_index(), mine).all(axis=0)
        found = cut.arrays["e_id"][trees[ends[1]] == tree]
        assert sorted(found.tolist()) == np.flatnonzero(among).tolist()


def test_weights_choose_the_nodes_and_all_edges_among_them_are_taken() -> None:
    """CONTRACT 45: a neighbour of weight 0 is not taken; an edge of weight 0 is an edge."""
    weights = np.array([0.0, 1.0, 0.0])
    graph = Graph.from_coo([[1, 2, 0], [0, 0, 2]], 3, edge_weight=weights)
    spec = NeighborSpec(num_neighbors=(-1,), subgraph_type="induced", weight_attr="edge_weight")
    cut = whole_sampler_of(graph, spec).cut(request_of([0]))
    assert cut.arrays["n_id"].tolist() == [0, 2]
    assert cut.arrays["e_id"].tolist() == [1, 2]


# --- bidirectional --------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("replace", [False, True])
def test_a_bidirectional_batch_has_each_edge_sampled_and_its_reverse_once(
    direction: Direction, replace: bool
) -> None:
    graph = web()
    spec = NeighborSpec(
        num_neighbors=(3, 2), subgraph_type="bidirectional", direction=direction, replace=replace
    )
    request = request_of([7, 100, 3])
    cut, sample = whole_sampler_of(graph, spec).cut(request), sampled(graph, spec, request)
    np.testing.assert_array_equal(cut.arrays["n_id"], sample.nodes[0])
    ends = np.stack([sample.rows[0], sample.cols[0]])
    assert pairs(cut.arrays["edge_index"]) == pairs(ends) | pairs(ends[::-1])
    assert is_sorted_and_coalesced(cut.arrays["edge_index"])
    assert cut.facts == {"batch_size": 3}


def test_an_edge_has_the_id_of_the_last_edge_it_is_the_reverse_of_or_its_own() -> None:
    """CONTRACT 43: e_id names an edge of the graph between the two nodes, and is PyG's."""
    graph, spec = web(), NeighborSpec(num_neighbors=(4, 2), subgraph_type="bidirectional")
    request = request_of([7, 100, 3])
    cut, sample = whole_sampler_of(graph, spec).cut(request), sampled(graph, spec, request)
    assert sample.edge_ids is not None
    known = np.stack([sample.rows[0], sample.cols[0]]).T.tolist()
    own: dict[tuple[int, ...], int] = {}
    for pair, edge_id in zip(known, sample.edge_ids[0].tolist(), strict=True):
        own[tuple(pair)] = edge_id
    ends, ids = cut.arrays["edge_index"].T.tolist(), cut.arrays["e_id"].tolist()
    for (row, col), edge_id in zip(ends, ids, strict=True):
        assert edge_id == own.get((col, row), own.get((row, col)))


@pytest.mark.parametrize("direction", ["in", "out"])
def test_edges_of_a_type_have_the_reverses_of_its_reverse_type(direction: Direction) -> None:
    graph = two_ways()
    spec = NeighborSpec(num_neighbors=(3, 2), subgraph_type="bidirectional", direction=direction)
    request = request_of([4, 5, 30], "paper")
    cut, sample = whole_sampler_of(graph, spec).cut(request), sampled(graph, spec, request)
    backs = reverse_types(graph.edge_types)
    assert backs == [2, 1, 0, 4, 3]
    ends = [pairs(np.stack(both)) for both in zip(sample.rows, sample.cols, strict=True)]
    for number, kind in enumerate(graph.edge_types):
        found = cut.arrays[qualified(kind, "edge_index")]
        back = backs[number]
        assert back is not None
        assert pairs(found) == ends[number] | {(col, row) for row, col in ends[back]}
        assert is_sorted_and_coalesced(found)


def test_types_whose_edges_are_other_types_have_no_ids_and_no_attributes() -> None:
    graph, spec, desk = (
        two_ways(),
        NeighborSpec(num_neighbors=(3,), subgraph_type="bidirectional"),
        Desk(),
    )
    batches = BufferedBatches(graph, spec, whole_sampler_of(graph, spec))
    batches.write(batches.cut(request_of([4], "paper")), desk)
    assert not any(name.endswith(("e_id", "edge_attr")) for name in desk.arrays)


def test_a_type_without_a_reverse_is_left_as_sampled() -> None:
    graph, spec = library(), NeighborSpec(num_neighbors=(3, 2), subgraph_type="bidirectional")
    request = request_of([4, 5], "paper")
    cut, sample = whole_sampler_of(graph, spec).cut(request), sampled(graph, spec, request)
    assert sample.edge_ids is not None
    number = graph.edge_types.index(WRITES)
    ends = cut.arrays[qualified(WRITES, "edge_index")]
    np.testing.assert_array_equal(ends, [sample.rows[number], sample.cols[number]])
    np.testing.assert_array_equal(cut.arrays[qualified(WRITES, "e_id")], sample.edge_ids[number])
    assert qualified(CITES, "e_id") not in cut.arrays


A, B = "a", "b"


@pytest.mark.parametrize(
    ("edge_types", "expected"),
    [
        ([(A, "to", B), (B, "rev_to", A)], [1, 0]),
        ([(B, "rev_to", A), (A, "to", B)], [1, 0]),
        ([(A, "to", B), (B, "back", A)], [1, 0]),
        ([(A, "to", B), (B, "back", A), (B, "again", A)], [None, 0, 0]),
        ([(A, "to", B)], [None]),
        ([(A, "to", A)], [0]),
        ([(A, "to", A), (A, "rev_to", A)], [1, 0]),
        ([(A, "to", A), (A, "also", A)], [0, 1]),
        ([(A, "to", B), (B, "rev_other", A)], [1, None]),
        ([(A, "rev_to", A)], [None]),
        ([], []),
    ],
)
def test_which_type_is_whose_reverse(
    edge_types: list[EdgeType], expected: list[int | None]
) -> None:
    assert reverse_types(edge_types) == expected


def test_nothing_later_than_its_seed_is_in_a_bidirectional_batch() -> None:
    graph = Graph.from_coo([[1, 2, 0], [0, 0, 1]], 3, edge_time=np.array([5, 9, 1]))
    spec = NeighborSpec(
        num_neighbors=(-1,), subgraph_type="bidirectional", time_attr="edge_time", disjoint=True
    )
    seeds, places = np.array([0, 0]), np.array([0, 1])
    request = Request(0, 0, 0, seeds, places, columns={"time": np.array([5, 9])})
    cut = whole_sampler_of(graph, spec).cut(request)
    assert cut.arrays["n_id"].tolist() == [0, 0, 1, 1, 2]
    assert cut.arrays["batch"].tolist() == [0, 1, 0, 1, 1]
    assert cut.arrays["edge_index"].tolist() == [[2, 3, 4, 0, 1, 1], [0, 1, 1, 2, 3, 4]]
    assert cut.arrays["e_id"].tolist() == [0, 0, 1, 0, 0, 1]
    assert cut.arrays["seed_time"].tolist() == [5, 9]


# --- with any starter -----------------------------------------------------------------------------


class EdgeEnds:
    """Inputs are edges; both ends are seeds, and the trees of one edge are told as one."""

    own = frozenset({"label"})

    def start(self, request: Request) -> Seeds:
        return Seeds(
            [request.seeds.reshape(-1)],
            arrays={"input_id": request.positions, "label": np.array([3.5])},
            facts={"batch_size": request.num_inputs, "odd": True},
            trees=np.tile(np.arange(request.num_inputs), 2),
        )

    def most_seeds(self, inputs: int, of: Any) -> list[int]:
        return [2 * inputs]

    def most_arrays(self, inputs: int, of: Any) -> list[tuple[str, tuple[int, ...]]]:
        return [("int64", (inputs,)), ("float64", (1,))]


def folded(graph: Graph) -> Sampled:
    spec = NeighborSpec(num_neighbors=(2,), subgraph_type="bidirectional", disjoint=True)
    request = Request(0, 0, 0, np.array([[7, 100], [3, 8]]), np.array([0, 1]))
    return InducedSampler(graph, spec, EdgeEnds()).cut(request)


def test_arrays_and_facts_of_the_start_go_into_the_batch() -> None:
    cut = folded(web())
    assert cut.facts == {"batch_size": 2, "odd": True}
    assert list(cut.arrays)[-2:] == ["input_id", "label"]
    assert cut.arrays["n_id"][:4].tolist() == [7, 100, 3, 8]


def test_trees_of_one_input_are_told_as_one() -> None:
    cut = folded(web())
    trees, ends = cut.arrays["batch"], cut.arrays["edge_index"]
    assert trees[:4].tolist() == [0, 1, 0, 1]
    assert set(trees.tolist()) == {0, 1}
    np.testing.assert_array_equal(trees[ends[0]], trees[ends[1]])


def test_a_cutter_says_which_names_are_its_own() -> None:
    spec = NeighborSpec(num_neighbors=(2,), subgraph_type="bidirectional", disjoint=True)
    assert InducedSampler(web(), spec, EdgeEnds()).own == {"label", "batch"}
    spec = NeighborSpec(num_neighbors=(2,), subgraph_type="bidirectional")
    assert InducedSampler(web(), spec, EdgeEnds()).own == {"label"}


# --- sizes, and what is refused -------------------------------------------------------------------


@pytest.mark.parametrize("subgraph_type", ["induced", "bidirectional"])
@pytest.mark.parametrize("make", [web, two_ways])
def test_nearly_any_batch_fits_where_it_should(
    make: Callable[[], Graph], subgraph_type: Any
) -> None:
    graph = make()
    spec = NeighborSpec(num_neighbors=(3, 2), subgraph_type=subgraph_type)
    sampler, owner = whole_sampler_of(graph, spec), graph.node_types[0]
    batches = BufferedBatches(graph, spec, sampler)
    room = batches.likely_bytes(5, owner)
    for start in range(0, 40, 5):
        cut = batches.cut(request_of(list(range(start, start + 5)), owner))
        assert batches.nbytes(cut) <= room
        for kind, most in zip(graph.edge_types, sampler.likely_edges(5, owner), strict=True):
            assert cut.arrays[qualified(kind, "edge_index")].shape[1] <= most


@pytest.mark.parametrize("options", [{"disjoint": True}, {"time_attr": "time"}])
def test_induced_trees_are_refused_in_pygs_words(options: dict[str, Any]) -> None:
    spec = NeighborSpec(num_neighbors=(2,), subgraph_type="induced", **options)
    words = "'disjoint' sampling not supported for neighbor sampling with `subgraph_type='induced'`"
    with pytest.raises(ValueError, match=words):
        check_whole(spec, web())


def test_a_subgraph_type_that_is_none_is_refused() -> None:
    spec = NeighborSpec(num_neighbors=(2,), subgraph_type="half")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="subgraph_type is 'half'"):
        check_whole(spec, web())


def test_a_type_without_a_reverse_is_warned_of_in_pygs_words() -> None:
    spec = NeighborSpec(num_neighbors=(2,), subgraph_type="bidirectional")
    with pytest.warns(
        UserWarning, match="Cannot convert to bidirectional graph since the edge type"
    ):
        check_whole(spec, library())


def test_what_makes_sense_is_not_complained_of() -> None:
    for graph in (web(), two_ways()):
        for options in ({"disjoint": True}, {"replace": True}, {"weight_attr": "w"}):
            bidirectional = NeighborSpec(subgraph_type="bidirectional", **options)  # type: ignore[arg-type]
            check_whole(bidirectional, graph)
        check_whole(NeighborSpec(subgraph_type="induced", weight_attr="w"), graph)
