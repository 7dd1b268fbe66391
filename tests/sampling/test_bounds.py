"""The bound on a batch's size: never below what the kernel finds, and no larger than the graph."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import Graph
from penstock.sampling import NeighborSampler
from penstock.sampling.bounds import Hops, Reach, Sizes
from penstock.sampling.shape import hops_of
from penstock.sampling.spec import NeighborSpec
from tests.graph.shapes import Typed, heterogeneous

FANOUTS = st.integers(-1, 4)


@given(
    heterogeneous(),
    st.lists(FANOUTS, max_size=3),
    st.booleans(),
    st.sampled_from(["in", "out"]),
    st.lists(st.integers(-1, 3), max_size=3),
    st.integers(0, 2**32),
)
def test_no_batch_is_larger_than_its_bound(
    typed: Typed,
    fanouts: list[int],
    replace: bool,
    direction: str,
    caps: list[int],
    seed: int,
) -> None:
    graph = Graph.from_coo(typed.edge_index, typed.num_nodes)
    spec = NeighborSpec(
        num_neighbors=tuple(fanouts),
        replace=replace,
        direction=direction,  # type: ignore[arg-type]
        node_caps=tuple(caps),
    )
    sampler = NeighborSampler(
        graph, fanouts, replace=replace, direction=spec.direction, node_caps=caps
    )
    seeds = {name: np.arange(size) for name, size in typed.num_nodes.items()}
    sample = sampler.sample(seeds, seed=seed)
    bound = hops_of(graph, spec).bound(list(typed.num_nodes.values()))
    assert all(map(int.__le__, map(len, sample.nodes), bound.nodes))
    assert all(map(int.__le__, map(len, sample.rows), bound.edges))


def test_hops_multiply_until_the_graph_ends() -> None:
    reach = Reach(expands=0, finds=0, num_edges=100, fanouts=(2, 3))
    assert Hops((1000,), (reach,), 2).bound([5]) == Sizes((5 + 10 + 30,), (10 + 30,))
    assert Hops((1000,), (reach,), 2).bound([50]) == Sizes((50 + 100 + 100,), (100 + 100,))
    assert Hops((20,), (reach,), 2).bound([5]) == Sizes((25,), (10 + 30,))


def test_with_replacement_draws_are_not_bounded_by_the_edges() -> None:
    reach = Reach(expands=0, finds=0, num_edges=1, fanouts=(4, 4))
    assert Hops((3,), (reach,), 2, replace=True).bound([1]) == Sizes((4,), (4 + 12,))


def test_caps_on_nodes_bound_the_hops_behind_them() -> None:
    reach = Reach(expands=0, finds=0, num_edges=1000, fanouts=(10, 10))
    assert Hops((999,), (reach,), 2, node_caps=(3,)).bound([1]) == Sizes((1 + 3 + 30,), (10 + 30,))
