"""Subgraphs that seeds induce: which nodes, which edges, and where the seeds are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import Graph
from penstock.graph.derived import OutEdges
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.names import qualified
from penstock.sampling.spec import Direction, SubgraphSpec
from penstock.sampling.subgraph import SubgraphKind, SubgraphSampler
from tests.sampling.graphs import library, web
from tests.sampling.subgraphs import Desk, assert_whole, request_of, within


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, 12))
    node = st.integers(0, size - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=40))
    return Graph.from_coo(np.array(edges, np.int64).reshape(-1, 2).T, size)


@given(graphs(), st.data(), st.integers(0, 3), st.sampled_from(["in", "out"]))
def test_a_subgraph_is_all_there_is_within_its_hops(
    graph: Graph, data: st.DataObject, num_hops: int, direction: Direction
) -> None:
    node = st.integers(0, graph.num_nodes() - 1)
    seeds = data.draw(st.lists(node, max_size=6))
    cut = SubgraphSampler(graph, SubgraphSpec(num_hops=num_hops, direction=direction)).cut(
        request_of(seeds)
    )
    nodes, mapping = cut.arrays["n_id"], cut.arrays["mapping"]
    expected = within(graph, {"": set(seeds)}, num_hops, along=direction)[""]
    assert nodes[: len(seeds)].tolist() == seeds
    assert sorted(nodes[len(seeds) :].tolist()) == sorted(expected - set(seeds))  # each once
    assert mapping.tolist() == [seeds.index(seed) for seed in seeds]
    assert_whole(graph, ("", "", ""), cut.arrays, direction)


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("num_hops", [0, 1, 2])
@pytest.mark.parametrize("node_type", ["paper", "author", "venue"])
def test_a_heterogeneous_subgraph_has_every_type(
    node_type: str, num_hops: int, direction: Direction
) -> None:
    """CONTRACT 42: seeds first; CONTRACT 44: types not reached are there, and empty."""
    graph, seeds = library(), [3, 1, 3, 2]
    cut = SubgraphSampler(graph, SubgraphSpec(num_hops=num_hops, direction=direction)).cut(
        request_of(seeds, node_type)
    )
    expected = within(graph, {node_type: set(seeds)}, num_hops, along=direction)
    for name, nodes in expected.items():
        twice = [3] if name == node_type else []
        assert sorted(cut.arrays[qualified(name, "n_id")].tolist()) == sorted([*nodes, *twice])
    for kind in graph.edge_types:
        assert_whole(graph, kind, cut.arrays, direction)
    assert cut.arrays[qualified(node_type, "n_id")][:4].tolist() == seeds
    assert cut.arrays[qualified(node_type, "mapping")].tolist() == [0, 1, 0, 3]
    assert cut.arrays[qualified(node_type, "input_id")].tolist() == [100, 101, 102, 103]
    assert cut.facts == {"batch_size": 4, "input_type": node_type}


#  0 -> 1 -> 2 -> 3,  0 -> 2,  3 -> 1
PATH = [[0, 1, 2, 0, 3], [1, 2, 3, 2, 1]]


def parts(cut: Sampled) -> tuple[list[int], list[list[int]], list[int]]:
    arrays = cut.arrays
    return arrays["n_id"].tolist(), arrays["edge_index"].tolist(), arrays["e_id"].tolist()


def test_no_hops_leave_the_seeds_and_the_edges_among_them() -> None:
    sampler = SubgraphSampler(Graph.from_coo(PATH, 5), SubgraphSpec())
    assert parts(sampler.cut(request_of([2, 0, 4]))) == ([2, 0, 4], [[1], [0]], [3])
    assert parts(sampler.cut(request_of([2, 1]))) == ([2, 1], [[1], [0]], [1])


def test_a_seed_given_twice_has_two_rows_and_edges_at_the_first() -> None:
    """CONTRACT 43: the first `batch_size` nodes are the seeds, as given."""
    cut = SubgraphSampler(Graph.from_coo(PATH, 5), SubgraphSpec()).cut(request_of([2, 2, 0]))
    assert parts(cut) == ([2, 2, 0], [[2], [0]], [3])
    assert cut.arrays["mapping"].tolist() == [0, 0, 2]
    assert cut.facts == {"batch_size": 3}


def test_the_nodes_come_hop_by_hop_and_the_edges_by_place() -> None:
    sampler = SubgraphSampler(Graph.from_coo(PATH, 5), SubgraphSpec(num_hops=1))
    cut = sampler.cut(request_of([2]))
    # 2 <- 1, 2 <- 0, and 1 <- 0, which nobody walked.
    assert parts(cut) == ([2, 1, 0], [[1, 2, 2], [0, 0, 1]], [1, 3, 0])
    assert cut.facts == {"batch_size": 1}


def test_along_out_edges_the_node_found_stands_above() -> None:
    sampler = SubgraphSampler(Graph.from_coo(PATH, 5), SubgraphSpec(num_hops=1, direction="out"))
    assert parts(sampler.cut(request_of([2]))) == ([2, 3], [[1], [0]], [2])


def test_no_seeds_make_an_empty_batch() -> None:
    cut = SubgraphSampler(Graph.from_coo(PATH, 5), SubgraphSpec(num_hops=2)).cut(request_of([]))
    assert parts(cut) == ([], [[], []], [])
    assert cut.arrays["mapping"].tolist() == []


@pytest.mark.parametrize("bad", [-1, 5])
def test_a_seed_that_is_no_node_is_named(bad: int) -> None:
    sampler = SubgraphSampler(Graph.from_coo(PATH, 5), SubgraphSpec())
    with pytest.raises(ValueError, match=rf"seeds\[2\] is {bad}; expected 0 <= id < 5"):
        sampler.cut(request_of([0, 0, bad]))


def test_attributes_are_those_of_the_nodes_and_edges() -> None:
    """CONTRACT 43: x[i] is the row of n_id[i], and edge attributes those of e_id."""
    graph, spec, desk = web(), SubgraphSpec(num_hops=1, with_edge_ids=False), Desk()
    batches = BufferedBatches(graph, spec, SubgraphSampler(graph, spec))
    batches.write(batches.cut(request_of([5, 9])), desk)
    nodes, edges = desk.arrays["n_id"], desk.arrays["e_id"]  # which the attributes were found by
    for name, held in graph.node_attributes().items():
        np.testing.assert_array_equal(desk.arrays[name], held.array[nodes])
    for name, held in graph.edge_attributes().items():
        np.testing.assert_array_equal(desk.arrays[name], held.array[edges])


def test_edge_ids_that_nobody_wants_are_left_out() -> None:
    spec = SubgraphSpec(with_edge_ids=False, edge_attributes=())
    cut = SubgraphSampler(library(), spec).cut(request_of([1], "paper"))
    assert not any(name.endswith("e_id") for name in cut.arrays)
    assert cut.edge_ids == [None, None, None]


def test_nearly_any_batch_fits_where_it_should() -> None:
    graph, spec = web(), SubgraphSpec(num_hops=1)
    sampler = SubgraphSampler(graph, spec)
    batches = BufferedBatches(graph, spec, sampler)
    room = batches.likely_bytes(8, "")
    for start in range(0, 200, 8):
        cut = batches.cut(request_of(list(range(start, start + 8))))
        assert batches.nbytes(cut) <= room
        assert len(cut.arrays["n_id"]) <= sampler.likely_nodes(8, "")[0]
        assert len(cut.arrays["e_id"]) <= sampler.likely_edges(8, "")[0]


def test_what_is_likely_is_no_more_than_there_is() -> None:
    graph = library()
    sampler = SubgraphSampler(graph, SubgraphSpec(num_hops=9))
    assert sampler.likely_nodes(60, "paper") == [graph.num_nodes(name) for name in graph.node_types]
    assert sampler.likely_edges(60, "paper") == [graph.num_edges(kind) for kind in graph.edge_types]
    assert sampler.likely_nodes(0, "venue") == [0, 0, 0]
    assert sampler.likely_edges(0, "venue") == [0, 0, 0]


def test_more_hops_cost_more() -> None:
    costs = [
        SubgraphKind().draws(SubgraphSpec(num_hops=hops), web(2000, 9000), 8, "")
        for hops in (0, 1, 2)
    ]
    assert costs == sorted(costs)
    assert costs[0] < costs[2]


def test_only_out_edges_must_be_made_first() -> None:
    graph = library()
    assert SubgraphKind().needs(SubgraphSpec(), graph) == []
    needs = SubgraphKind().needs(SubgraphSpec(direction="out"), graph)
    assert needs == [OutEdges(kind) for kind in graph.edge_types]


@pytest.mark.parametrize("bad", [-1, 2**16, 1.5, True, None])
def test_a_number_of_hops_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="num_hops is"):
        SubgraphKind().check(SubgraphSpec(num_hops=bad), web())


def test_a_direction_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="direction is 'up'"):
        SubgraphKind().check(SubgraphSpec(direction="up"), web())  # type: ignore[arg-type]


def test_attributes_that_are_not_there_or_mean_something_else_are_refused() -> None:
    with pytest.raises(ValueError, match="edge_attributes names 'colour'"):
        SubgraphKind().check(SubgraphSpec(edge_attributes=("colour",)), web())
    graph = Graph.from_coo(PATH, 5, node_attrs={"mapping": np.arange(5)})
    with pytest.raises(ValueError, match="node_attributes names 'mapping', which means something"):
        SubgraphKind().check(SubgraphSpec(node_attributes=("mapping",)), graph)
    SubgraphKind().check(SubgraphSpec(), graph)
