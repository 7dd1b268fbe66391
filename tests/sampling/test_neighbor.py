"""NeighborSampler: types, directions and fan-outs of a graph reach the kernel as they should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Graph
from penstock.kernels import reference
from penstock.sampling import NeighborSampler

RATES = ("user", "rates", "item")
LIKED = ("item", "liked_by", "user")


def small_shop() -> Graph:
    return Graph.from_coo(
        {RATES: [[0, 1, 1, 2], [0, 0, 1, 1]], LIKED: [[0, 1], [2, 0]]},
        num_nodes={"user": 3, "item": 2},
    )


def test_in_edges_are_followed_from_destination_to_source() -> None:
    graph = Graph.from_coo([[1, 2, 0], [0, 0, 2]], num_nodes=3)
    sample = NeighborSampler(graph, [-1]).sample(np.array([0]))
    assert sample.nodes[0].tolist() == [0, 1, 2]
    assert sample.rows[0].tolist() == [1, 2]
    assert sample.cols[0].tolist() == [0, 0]
    assert sample.edge_ids is not None
    assert sample.edge_ids[0].tolist() == [0, 1]


def test_out_edges_are_followed_from_source_to_destination() -> None:
    graph = Graph.from_coo([[1, 2, 0, 0], [0, 0, 2, 1]], num_nodes=3)
    sample = NeighborSampler(graph, [-1], direction="out").sample(np.array([0]))
    assert sample.nodes[0].tolist() == [0, 2, 1]
    assert sample.edge_ids is not None
    assert sample.edge_ids[0].tolist() == [2, 3]


def test_heterogeneous_hops_follow_the_order_of_edge_types() -> None:
    sample = NeighborSampler(small_shop(), [-1, -1]).sample({"item": np.array([1])})
    users, items = sample.nodes
    assert items.tolist() == [1, 0]
    assert users.tolist() == [1, 2]
    rates, liked = 0, 1
    assert sample.num_sampled_edges[rates] == [2, 0]
    assert sample.num_sampled_edges[liked] == [0, 1]
    assert sample.num_sampled_nodes == [[0, 2, 0], [1, 0, 1]]


@given(seed=st.integers(0, 2**32), direction=st.sampled_from(["in", "out"]))
def test_a_heterogeneous_batch_is_the_twins(seed: int, direction: str) -> None:
    graph = small_shop()
    fanouts = {RATES: (2, 1), LIKED: (1, 1)}
    sampler = NeighborSampler(graph, fanouts, direction=direction)  # type: ignore[arg-type]
    got = sampler.sample({"user": np.array([2, 0]), "item": np.array([1])}, seed=seed)
    numbers = {"user": 0, "item": 1}
    relations = []
    for name in graph.edge_types:
        topology = graph.csc(name) if direction == "in" else graph.csr(name)
        ends = (name[2], name[0]) if direction == "in" else (name[0], name[2])
        relations.append(
            reference.Relation(
                topology.indptr,
                topology.indices,
                topology.edge_ids,
                fanouts[name],
                numbers[ends[0]],
                numbers[ends[1]],
                name,
            )
        )
    key = reference.batch_key(seed, 0, 0)
    expected = reference.khop(2, relations, [np.array([2, 0]), np.array([1])], key)
    assert [a.tolist() for a in got.nodes] == [a.tolist() for a in expected.nodes]
    assert [a.tolist() for a in got.rows] == [a.tolist() for a in expected.rows]
    assert [a.tolist() for a in got.edge_ids or []] == [a.tolist() for a in expected.edge_ids]


@pytest.mark.parametrize(
    ("num_neighbors", "message"),
    [
        ({RATES: [1]}, "Not all edge types specified"),
        ({RATES: [1], LIKED: [1, 1]}, "Number of hops must be the same across all edge types"),
        ({RATES: [1], LIKED: [1], ("a", "b", "c"): [1]}, "which the graph has not"),
        ([2, -2], r"num_neighbors\[1\] is -2"),
        ([1.5], r"num_neighbors\[0\] is 1.5"),
        (["a"], r"num_neighbors\[0\] is 'a'"),
        (10, "num_neighbors is 10; expected one fan-out per hop"),
        ({RATES: [1], LIKED: [2**63]}, r"num_neighbors\[\('item', 'liked_by', 'user'\)\]\[0\] is"),
    ],
)
def test_fan_outs_that_make_no_sense_are_refused(num_neighbors: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NeighborSampler(small_shop(), num_neighbors)  # type: ignore[arg-type]


def test_an_unknown_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="direction is 'up'"):
        NeighborSampler(small_shop(), [1], direction="up")  # type: ignore[arg-type]


def test_seeds_of_an_unknown_type_are_refused() -> None:
    with pytest.raises(ValueError, match="node type 'shop'"):
        NeighborSampler(small_shop(), [1]).sample({"shop": np.array([0])})


def test_seeds_of_a_heterogeneous_graph_must_name_their_type() -> None:
    with pytest.raises(ValueError, match="mapping by node type"):
        NeighborSampler(small_shop(), [1]).sample(np.array([0]))


def test_no_hops_gives_the_seeds_alone() -> None:
    sample = NeighborSampler(Graph.from_coo([[0], [1]]), []).sample(np.array([1, 0, 1]))
    assert sample.nodes[0].tolist() == [1, 0, 1]
    assert sample.num_sampled_nodes == [[3]]


def test_a_graph_without_edges_still_counts_its_hops() -> None:
    graph = Graph.from_coo({}, num_nodes={"a": 5})
    sample = NeighborSampler(graph, [1, 2]).sample({"a": np.array([1])})
    assert sample.num_sampled_nodes == [[1, 0, 0]]
