"""Neighbour batches: what is in them, and that it is what the graph has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import Graph
from penstock.sampling import NeighborSampler
from penstock.sampling.names import qualified
from penstock.sampling.spec import Feed, NeighborSpec
from tests.sampling.graphs import CITES, HOUSES, WRITES, Array, batch_of, bfloat, library, web

Direction = Literal["in", "out"]


def all_nodes(graph: Graph, node_type: str | None = None, **options: Any) -> Feed:
    return Feed(
        num_inputs=graph.num_nodes(node_type), node_type=node_type, **{"batch_size": 16, **options}
    )


def edges_of(graph: Graph, kind: tuple[str, str, str]) -> Iterable[tuple[int, int]]:
    return map(tuple, graph.edge_index(kind).T.tolist())


@pytest.mark.parametrize("direction", ["in", "out"])
@pytest.mark.parametrize("replace", [False, True])
def test_a_homogeneous_batch_is_the_samplers_with_rows_gathered(
    direction: Direction, replace: bool
) -> None:
    """CONTRACT 42: names and meanings, against the sampler and NumPy's own indexing."""
    graph = web()
    spec = NeighborSpec(num_neighbors=(4, 3), direction=direction, replace=replace)
    feed = all_nodes(graph, shuffle=True, seed=11)
    facts, arrays = batch_of(graph, spec, feed, epoch=2, index=3)
    seeds = arrays["input_id"]
    sampler = NeighborSampler(graph, (4, 3), direction=direction, replace=replace)
    expected = sampler.sample(seeds, seed=11, epoch=2, index=3)
    assert expected.edge_ids is not None
    nodes, edges = expected.nodes[0], expected.edge_ids[0]
    wanted = {
        "n_id": nodes,
        "e_id": edges,
        "edge_index": np.stack([expected.rows[0], expected.cols[0]]),
        "input_id": seeds,
        **{name: held.array[nodes] for name, held in graph.node_attributes().items()},
        **{name: held.array[edges] for name, held in graph.edge_attributes().items()},
    }
    assert arrays.keys() == wanted.keys()
    for name, array in wanted.items():
        assert_same(arrays[name], array)
    assert facts == {
        "batch_size": 16,
        "num_sampled_nodes": expected.num_sampled_nodes[0],
        "num_sampled_edges": expected.num_sampled_edges[0],
    }


@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_heterogeneous_batch_is_the_samplers_with_rows_gathered(direction: Direction) -> None:
    """CONTRACT 42: as for homogeneous ones, each array under its type."""
    graph = library()
    spec = NeighborSpec(num_neighbors=(3, 2), direction=direction)
    facts, arrays = batch_of(graph, spec, all_nodes(graph, "paper"), index=1)
    sampler = NeighborSampler(graph, (3, 2), direction=direction)
    expected = sampler.sample({"paper": np.arange(16, 32)}, index=1)
    assert expected.edge_ids is not None
    assert_same(arrays["paper/input_id"], np.arange(16, 32))
    for number, name in enumerate(graph.node_types):
        assert_same(arrays[f"{name}/n_id"], expected.nodes[number])
        x = graph.node_attribute("x", name)
        assert_same(arrays[f"{name}/x"], x[expected.nodes[number]])
    for number, kind in enumerate(graph.edge_types):
        ends = np.stack([expected.rows[number], expected.cols[number]])
        assert_same(arrays[qualified(kind, "edge_index")], ends)
        assert_same(arrays[qualified(kind, "e_id")], expected.edge_ids[number])
    attr = graph.edge_attribute("edge_attr", WRITES)[arrays["author,writes,paper/e_id"]]
    assert_same(arrays["author,writes,paper/edge_attr"], attr)
    assert facts["input_type"] == "paper"
    assert facts["num_sampled_nodes"]["author"] == expected.num_sampled_nodes[1]
    assert facts["num_sampled_edges"]["paper,cites,paper"] == expected.num_sampled_edges[1]


@given(
    fanouts=st.lists(st.integers(-1, 5), max_size=3),
    seed=st.integers(0, 2**64 - 1),
    index=st.integers(0, 12),
    replace=st.booleans(),
)
def test_edges_are_edges_rows_are_rows_and_seeds_come_first(
    fanouts: list[int], seed: int, index: int, replace: bool
) -> None:
    """CONTRACT 43: always true, of whatever is sampled."""
    graph = web()
    spec = NeighborSpec(num_neighbors=tuple(fanouts), replace=replace)
    feed = all_nodes(graph, shuffle=True, seed=seed)
    facts, arrays = batch_of(graph, spec, feed, index=index)
    nodes = arrays["n_id"]
    assert_same(nodes[: facts["batch_size"]], arrays["input_id"])
    ends = nodes[arrays["edge_index"]]
    assert_same(ends, graph.edge_index()[:, arrays["e_id"]])
    assert_same(arrays["x"], graph.node_attribute("x")[nodes])


def test_along_out_edges_an_edge_stands_reversed() -> None:
    """CONTRACT 43: reversed when sampling along out-edges."""
    graph = web()
    spec = NeighborSpec(num_neighbors=(3, 3), direction="out")
    _, arrays = batch_of(graph, spec, all_nodes(graph))
    ends = arrays["n_id"][arrays["edge_index"]]
    assert_same(ends[::-1], graph.edge_index()[:, arrays["e_id"]])


@pytest.mark.parametrize("kind", [WRITES, CITES, HOUSES])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_edges_of_every_type_are_edges(kind: tuple[str, str, str], direction: Direction) -> None:
    """CONTRACT 43: per type; row 0 is the neighbour, row 1 the one that led there."""
    graph = library()
    spec = NeighborSpec(num_neighbors=(-1, -1, -1), direction=direction)
    feed = all_nodes(graph, "paper" if direction == "in" else "venue", batch_size=2)
    _, arrays = batch_of(graph, spec, feed)
    rows, cols = arrays[qualified(kind, "edge_index")]
    found, led = (0, 2) if direction == "in" else (2, 0)
    neighbours = arrays[f"{kind[found]}/n_id"][rows]
    expanded = arrays[f"{kind[led]}/n_id"][cols]
    pairs = [neighbours, expanded] if direction == "in" else [expanded, neighbours]
    assert set(zip(*map(np.ndarray.tolist, pairs), strict=True)) <= set(edges_of(graph, kind))
    assert len(rows) > 0


def test_types_that_were_not_reached_are_there_and_empty() -> None:
    """CONTRACT 44: an empty [0, F] array, not nothing."""
    graph = library()
    spec = NeighborSpec(num_neighbors=(2,))
    facts, arrays = batch_of(graph, spec, all_nodes(graph, "venue", batch_size=2))
    assert arrays["venue/x"].shape == (2, 3)
    assert arrays["paper/x"].shape == (0, 3)
    assert arrays["paper/y"].shape == (0,)
    assert arrays["author/n_id"].shape == (0,)
    assert arrays["author,writes,paper/edge_index"].shape == (2, 0)
    assert arrays["author,writes,paper/edge_attr"].shape == (0, 2)
    assert facts["num_sampled_nodes"] == {"paper": [0, 0], "author": [0, 0], "venue": [2, 0]}


def test_a_seed_that_is_given_twice_has_two_rows() -> None:
    """CONTRACT 43: the seeds in the order given, whatever that is."""
    ids = np.array([5, 3, 5, 5])
    feed = Feed(num_inputs=4, batch_size=4)
    facts, arrays = batch_of(web(), NeighborSpec(num_neighbors=(-1,)), feed, ids)
    assert facts["batch_size"] == 4
    assert arrays["n_id"][:4].tolist() == [5, 3, 5, 5]
    assert arrays["input_id"].tolist() == [0, 1, 2, 3]


def test_bfloat16_keeps_its_name_and_its_bits() -> None:
    graph = bfloat()
    _, arrays = batch_of(graph, NeighborSpec(num_neighbors=(1,)), all_nodes(graph))
    assert_same(arrays["x"], graph.node_attribute("x")[arrays["n_id"]])


def test_attributes_are_chosen_by_name() -> None:
    spec = NeighborSpec(
        num_neighbors=(2,), node_attributes=("y",), edge_attributes=(), with_edge_ids=False
    )
    _, arrays = batch_of(web(), spec, all_nodes(web()))
    assert sorted(arrays) == ["edge_index", "input_id", "n_id", "y"]


def test_an_attribute_of_some_types_is_taken_where_it_is() -> None:
    graph = library()
    spec = NeighborSpec(num_neighbors=(2,), node_attributes=("y",), edge_attributes=("edge_attr",))
    _, arrays = batch_of(graph, spec, all_nodes(graph, "paper"))
    named = {name for name in arrays if name.endswith(("/x", "/y", "/edge_attr"))}
    assert named == {"paper/y", "author,writes,paper/edge_attr"}


def test_edge_ids_come_along_with_edge_attributes() -> None:
    graph = web()
    spec = NeighborSpec(num_neighbors=(2,), edge_attributes=("edge_attr",), with_edge_ids=False)
    _, arrays = batch_of(graph, spec, all_nodes(graph))
    assert_same(arrays["edge_attr"], graph.edge_attribute("edge_attr")[arrays["e_id"]])


def test_an_attribute_the_graph_has_not_is_refused() -> None:
    spec = NeighborSpec(node_attributes=("z",))
    with pytest.raises(ValueError, match="node_attributes names 'z', which the graph has not; it"):
        batch_of(web(), spec, all_nodes(web()))


def test_attributes_called_like_parts_of_a_batch_are_left_out_or_refused_by_name() -> None:
    graph = Graph.from_coo([[0], [1]], 2, node_attrs={"n_id": np.array([7, 8])})
    _, arrays = batch_of(graph, NeighborSpec(num_neighbors=(1,)), all_nodes(graph))
    assert arrays["n_id"].tolist() == [0, 1]
    with pytest.raises(ValueError, match="'n_id', which means something else in a batch"):
        batch_of(graph, NeighborSpec(node_attributes=("n_id",)), all_nodes(graph))


def test_nodes_and_edges_with_an_attribute_of_one_name_must_be_chosen_between() -> None:
    graph = Graph.from_coo(
        [[0], [1]], 2, node_attrs={"w": np.array([7, 8])}, edge_attrs={"w": np.array([9])}
    )
    with pytest.raises(ValueError, match="nodes and edges both have an attribute 'w'"):
        batch_of(graph, NeighborSpec(num_neighbors=(1,)), all_nodes(graph))
    spec = NeighborSpec(num_neighbors=(1,), edge_attributes=())
    assert batch_of(graph, spec, all_nodes(graph))[1]["w"].tolist() == [7, 8]


def test_a_graph_without_edges_gives_its_seeds() -> None:
    graph = Graph.from_coo({}, {"a": 5})
    facts, arrays = batch_of(graph, NeighborSpec(num_neighbors=(2,)), all_nodes(graph, "a"))
    assert arrays["a/n_id"].tolist() == [0, 1, 2, 3, 4]
    assert facts["num_sampled_edges"] == {}


def assert_same(got: Array, wanted: Array) -> None:
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    assert got.tobytes() == wanted.tobytes()
