"""Backends: equal specs share one, and what cannot be sampled is refused when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from penstock.graph import Graph
from penstock.hub.backends import BUILT_IN, HubBackends, check_spec, group_of
from penstock.sampling.spec import CustomSpec, NeighborSpec

WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")


@pytest.fixture
def plain() -> Iterator[Graph]:
    with Graph.from_coo([[0, 1], [1, 2]], 3, x=np.ones((3, 2)), edge_attr=np.ones((2, 1))) as graph:
        yield graph


@pytest.fixture
def typed() -> Iterator[Graph]:
    with Graph.from_coo(
        {WRITES: [[0, 1], [0, 0]], CITES: [[0], [1]]},
        {"author": 2, "paper": 2},
        x={"paper": np.ones((2, 2))},
    ) as graph:
        yield graph


def test_equal_specs_share_a_backend() -> None:
    backends = HubBackends()
    made = backends.create(NeighborSpec(num_neighbors=(3, 2)))
    assert backends.find(NeighborSpec(num_neighbors=(3, 2))) is made
    assert backends.find(NeighborSpec(num_neighbors=(3, 3))) is None


def test_options_are_equal_in_any_order() -> None:
    backends = HubBackends()
    made = backends.create(CustomSpec(sampler="a:B", options={"p": 1, "q": 2}))
    assert backends.find(CustomSpec(sampler="a:B", options={"q": 2, "p": 1})) is made


def test_options_that_only_compare_equal_are_different() -> None:
    backends = HubBackends()
    backends.create(CustomSpec(sampler="a:B", options={"p": 1}))
    assert backends.find(CustomSpec(sampler="a:B", options={"p": True})) is None
    assert backends.find(CustomSpec(sampler="a:B", options={"p": 1.0})) is None


def test_numbers_are_never_used_again() -> None:
    backends = HubBackends()
    first = backends.create(NeighborSpec(num_neighbors=(3,)))
    backends.remove(first)
    assert backends.create(NeighborSpec(num_neighbors=(3,))).number > first.number
    assert backends.get(first.number) is None


def test_built_in_samplers_have_one_group_and_every_other_its_own() -> None:
    specs = [
        CustomSpec(sampler="a:B"),
        CustomSpec(sampler="a:C"),
        CustomSpec(sampler="a:B", options={"p": 1}),
        CustomSpec(sampler="a:B", options={"p": 2}),
    ]
    assert group_of(NeighborSpec(num_neighbors=(1,))) == BUILT_IN
    assert len({BUILT_IN, *map(group_of, specs)}) == 5
    assert all(group_of(spec).startswith(spec.sampler) for spec in specs)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (NeighborSpec(num_neighbors=(3, -2)), r"num_neighbors\[1\] is -2"),
        (NeighborSpec(by_type=((CITES, (1,)),)), "which the graph has not"),
        (NeighborSpec(num_neighbors=(1,), by_type=()), "both given"),
        (NeighborSpec(num_neighbors=(1,), node_attributes=("z",)), "'z', which the graph has not"),
        (NeighborSpec(num_neighbors=(1,), edge_attributes=("x",)), "it has: 'edge_attr'"),
        (NeighborSpec(num_neighbors=(1,), node_caps=(-2,)), r"node_caps\[0\] is -2"),
        (NeighborSpec(num_neighbors=(1,), direction="out"), "the hub has no csr"),
        (CustomSpec(sampler="nothing"), "expected 'module:Class'"),
        (CustomSpec(sampler=":Class"), "expected 'module:Class'"),
        (CustomSpec(sampler="module:Class()"), "expected 'module:Class'"),
        (CustomSpec(sampler="module:Outer.Inner"), "expected 'module:Class'"),
        (CustomSpec(sampler="a:B", options={"table": "x" * (2 << 20)}), "at most 1048576"),
    ],
)
def test_what_this_graph_cannot_give_is_refused(
    plain: Graph, spec: NeighborSpec | CustomSpec, complaint: str
) -> None:
    """CONTRACT 61: refused when the backend is made, not when the first batch fails."""
    with pytest.raises(ValueError, match=complaint):
        check_spec(spec, plain)


@pytest.mark.parametrize(
    "spec",
    [
        NeighborSpec(num_neighbors=(3, -1, 0), node_caps=(5,)),
        NeighborSpec(num_neighbors=(3,), node_attributes=("x",), edge_attributes=("edge_attr",)),
        NeighborSpec(num_neighbors=(3,), node_attributes=(), edge_attributes=()),
        CustomSpec(sampler="package.module:Class"),
        CustomSpec(sampler="/a/file.py:Class"),
    ],
)
def test_what_this_graph_can_give_is_taken(plain: Graph, spec: NeighborSpec | CustomSpec) -> None:
    check_spec(spec, plain)


def test_out_edges_that_are_there_can_be_followed(plain: Graph) -> None:
    plain.csr()
    check_spec(NeighborSpec(num_neighbors=(1,), direction="out"), plain)


def test_fan_outs_by_type_must_name_every_edge_type(typed: Graph) -> None:
    """CONTRACT 61."""
    check_spec(NeighborSpec(by_type=((CITES, (1,)), (WRITES, (2,)))), typed)
    with pytest.raises(ValueError, match="Not all edge types specified"):
        check_spec(NeighborSpec(by_type=((CITES, (1,)),)), typed)


def test_an_attribute_of_one_type_is_enough(typed: Graph) -> None:
    check_spec(NeighborSpec(num_neighbors=(1,), node_attributes=("x",)), typed)
