"""The kinds beside hops and links, over any graph, against what plain sets and matrices say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import EdgeType
from penstock.graph.schema import EDGE
from penstock.sampling.names import qualified
from penstock.sampling.spec import HGTSpec, SubgraphSpec, WalkSpec
from tests.sampling import invariants as inv
from tests.sampling.graphs import Array
from tests.sampling.worlds import SOME, Inputs, World, batch, hub, seeds_in, worlds

Nodes = dict[str, set[int]]


def one_step(world: World, nodes: Nodes, direction: str) -> Nodes:
    """What edges lead to from these nodes."""
    found: Nodes = {name: set() for name in world.sizes}
    for kind in world.edges:
        above, below = world.ends(kind, direction)
        for a, b in world.directed(kind, direction).T.tolist():
            if b in nodes.get(below, ()):
                found[above].add(a)
    return found


def check_all_edges_among(
    world: World, arrays: dict[str, Array], kinds: Iterable[EdgeType], direction: str
) -> None:
    """Every edge between two nodes of the batch is there, once, at the first places of both."""
    for kind in kinds:
        edges = world.edges[kind]
        among = np.isin(edges[0], arrays[qualified(kind[0], "n_id")])
        among &= np.isin(edges[1], arrays[qualified(kind[2], "n_id")])
        ids = arrays[qualified(kind, "e_id")].tolist()
        assert sorted(ids) == np.flatnonzero(among).tolist()
        index = arrays[qualified(kind, "edge_index")]
        assert np.all(np.diff(index[1]) >= 0)
        for local, name in zip(index, world.ends(kind, direction), strict=True):
            nodes = arrays[qualified(name, "n_id")].tolist()
            assert all(nodes.index(nodes[place]) == place for place in local)


# --- subgraphs -----------------------------------------------------------------------------------


@SOME
@given(st.data(), worlds(), st.integers(0, 3), st.sampled_from(["in", "out"]))
def test_a_subgraph_has_all_that_is_near_its_seeds_and_nothing_else(
    data: st.DataObject, world: World, num_hops: int, direction: Any
) -> None:
    """CONTRACT 43, 61: seeds as given, others once, all edges among them; `mapping` as said."""
    inputs = data.draw(seeds_in(world))
    facts, arrays = batch(world, SubgraphSpec(num_hops=num_hops, direction=direction), inputs)
    of = inputs.node_type
    own = {qualified(of, word) for word in ("input_id", "mapping")}
    assert set(arrays) == inv.names_of(world) | own
    inv.check_nodes(world, arrays)
    inv.check_edges(world, arrays, direction)
    check_all_edges_among(world, arrays, world.edges, direction)
    seeds = inputs.ids.tolist()
    assert facts == {"batch_size": len(seeds)} | ({"input_type": of} if world.is_hetero else {})
    assert arrays[qualified(of, "n_id")][: len(seeds)].tolist() == seeds
    firsts = [seeds.index(seed) for seed in seeds]
    assert arrays[qualified(of, "mapping")].tolist() == firsts
    near: Nodes = {name: set() for name in world.sizes} | {of: set(seeds)}
    for _ in range(num_hops):
        further = one_step(world, near, direction)
        near = {name: near[name] | further[name] for name in near}
    found = {name: arrays[qualified(name, "n_id")].tolist() for name in near}
    found[of] = list(dict.fromkeys(seeds)) + found[of][len(seeds) :]
    assert {name: sorted(nodes) for name, nodes in found.items()} == {
        name: sorted(nodes) for name, nodes in near.items()
    }


# --- walks ---------------------------------------------------------------------------------------


def check_walks(world: World, spec: WalkSpec, inputs: Any, arrays: dict[str, Array]) -> None:
    """Every step is along the edge that is named, from where the walk is."""
    path = spec.path or (EDGE,)
    begins, leads = (0, 2) if spec.direction == "out" else (2, 0)
    walks = arrays[qualified(inputs.node_type, "walk")]
    edges = arrays[qualified(inputs.node_type, "walk_edges")]
    count = inputs.count * spec.walks_per_node
    assert (walks.shape, walks.dtype) == ((count, spec.walk_length + 1), np.int64)
    assert (edges.shape, edges.dtype) == ((count, spec.walk_length), np.int64)
    nodes = {name: arrays[qualified(name, "n_id")].tolist() for name in world.sizes}
    for row in range(count):
        at = nodes[path[0][begins]][walks[row, 0]]
        assert at == inputs.ids[row % inputs.count]
        for step in range(spec.walk_length):
            kind = path[step % len(path)]
            place, edge = walks[row, step + 1], edges[row, step]
            ends = world.edges[kind] if spec.direction == "out" else world.edges[kind][::-1]
            there = np.flatnonzero(ends[0] == at) if at is not None else []
            if len(there) == 0:
                assert edge == -1
                assert place == (walks[row, step] if spec.path is None else -1)
                at = at if spec.path is None else None
                continue
            assert edge in there
            at = nodes[kind[leads]][place]
            assert at == ends[1, edge]
            assert nodes[kind[leads]].index(at) == place, "a node is told by its first place"


@st.composite
def walk_specs(draw: st.DrawFn, world: World) -> WalkSpec:
    options: dict[str, Any] = {
        "walk_length": draw(st.integers(1, 5)),
        "walks_per_node": draw(st.integers(1, 3)),
        "direction": draw(st.sampled_from(["in", "out"])),
    }
    if not world.is_hetero:
        bias = st.sampled_from([1.0, 0.25, 4.0, 1e-9, 1e9, 1e-300, 1e300])
        return WalkSpec(p=draw(bias), q=draw(bias), **options)
    begins, leads = (0, 2) if options["direction"] == "out" else (2, 0)
    there = [kind for kind in world.edges if world.sizes[kind[begins]]]
    path = [draw(st.sampled_from(there or list(world.edges)))]
    while len(path) < options["walk_length"]:
        on = [kind for kind in world.edges if kind[begins] == path[-1][leads]]
        if not on or (path[-1][leads] == path[0][begins] and draw(st.booleans())):
            break
        path.append(draw(st.sampled_from(on)))
    if path[-1][leads] != path[0][begins]:
        options["walk_length"] = len(path)
    return WalkSpec(path=tuple(path), **options)


@SOME
@given(st.data(), worlds())
def test_walks_go_along_edges_step_by_step(data: st.DataObject, world: World) -> None:
    """CONTRACT 42, 43: uniform, biased to any degree, or along a path of edge types."""
    spec = data.draw(walk_specs(world))
    begins = spec.path[0][0 if spec.direction == "out" else 2] if spec.path else ""
    inputs = data.draw(seeds_in(world, begins))
    facts, arrays = batch(world, spec, inputs)
    own = {qualified(inputs.node_type, word) for word in ("input_id", "walk", "walk_edges")}
    assert set(arrays) == inv.names_of(world, with_edges=False) | own
    inv.check_nodes(world, arrays)
    inv.check_inputs(world, inputs, facts, arrays)
    check_walks(world, spec, inputs, arrays)
    for name in world.sizes:
        nodes = arrays[qualified(name, "n_id")].tolist()
        others = nodes[inputs.count :] if name == inputs.node_type else nodes
        assert len(set(others)) == len(others)


# --- budgets -------------------------------------------------------------------------------------


@st.composite
def hgt_specs(draw: st.DrawFn, world: World) -> HGTSpec:
    layers = draw(st.integers(0, 3))
    lists = st.lists(st.integers(0, 3), min_size=layers, max_size=layers).map(tuple)
    if draw(st.booleans()):
        return HGTSpec(num_samples=draw(lists))
    return HGTSpec(by_type=tuple((name, draw(lists)) for name in world.sizes))


@SOME
@given(st.data(), worlds())
def test_every_layer_draws_its_budget_of_every_type(data: st.DataObject, world: World) -> None:
    """CONTRACT 42, 43: from what the nodes so far lead to; and all edges among them are there."""
    spec = data.draw(hgt_specs(world))
    inputs = data.draw(seeds_in(world))
    facts, arrays = batch(world, spec, inputs)
    of = inputs.node_type
    assert set(arrays) == inv.names_of(world) | {qualified(of, "input_id")}
    inv.check_nodes(world, arrays)
    inv.check_inputs(world, inputs, facts, arrays)
    inv.check_edges(world, arrays, "in")
    check_all_edges_among(world, arrays, world.edges, "in")
    budgets = dict(spec.by_type or [(name, spec.num_samples) for name in world.sizes])
    left = {name: arrays[qualified(name, "n_id")].tolist() for name in world.sizes}
    left[of] = left[of][inputs.count :]
    so_far: Nodes = {name: set() for name in world.sizes} | {of: set(inputs.ids.tolist())}
    for layer in range(len(budgets[of])):
        near = one_step(world, so_far, "in")
        for name, budget in budgets.items():
            waiting = near[name] - so_far[name]
            count = min(budget[layer], len(waiting))
            drawn, left[name] = left[name][:count], left[name][count:]
            assert len(set(drawn)) == count
            assert set(drawn) <= waiting
            so_far[name] |= set(drawn)
    assert not any(left.values())


@pytest.mark.parametrize("budget", [0, 7, 400])
def test_a_node_with_many_neighbours_counts_with_fifty_of_them(budget: int) -> None:
    """CONTRACT 43: of more in-edges, fifty are looked at, and are the only ones in the batch."""
    world = hub(400)
    _, arrays = batch(world, HGTSpec(num_samples=(budget,)), Inputs(np.zeros(1, np.int64)))
    assert len(arrays["n_id"]) == 1 + min(budget, 50)
    assert len(set(arrays["n_id"].tolist())) == len(arrays["n_id"])
    inv.check_nodes(world, arrays)
    inv.check_edges(world, arrays, "in")
    assert sorted(arrays["edge_index"][0].tolist()) == list(range(1, len(arrays["n_id"])))
