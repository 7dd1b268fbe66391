"""k hops over any graph, with every option: every batch, edge by edge, against plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.graph import EdgeType
from penstock.sampling.names import qualified
from penstock.sampling.spec import NeighborSpec
from tests.sampling import invariants as inv
from tests.sampling.graphs import Array
from tests.sampling.worlds import (
    MOST_TIME,
    SOME,
    WEIGHTS,
    Inputs,
    World,
    batch,
    hub,
    seeds_in,
    worlds,
)

fanouts = st.integers(-1, 4)


@st.composite
def neighbor_specs(draw: st.DrawFn, world: World, **fixed: Any) -> NeighborSpec:
    """Fan-outs of all edge types or of each, and any options beside those that are fixed."""
    hops = draw(st.integers(0, 3))
    lists = st.lists(fanouts, min_size=hops, max_size=hops).map(tuple)
    options: dict[str, Any] = {
        "replace": draw(st.booleans()),
        "direction": draw(st.sampled_from(["in", "out"])),
    }
    if draw(st.booleans()):
        options["num_neighbors"] = draw(lists)
    else:
        options["by_type"] = tuple((kind, draw(lists)) for kind in world.edges)
        hops = hops if world.edges else 0
    options |= fixed
    options["node_caps"] = options.get("node_caps", ())[:hops]
    return NeighborSpec(**options)


def checked(
    world: World, spec: NeighborSpec, inputs: Inputs, times: Array | None = None
) -> tuple[dict[str, Any], dict[str, Array]]:
    """A batch, after everything that is true of all of them was found to be."""
    facts, arrays = batch(world, spec, inputs)
    disjoint = spec.disjoint or spec.time_attr is not None
    names = inv.names_of(world, per_node=["batch"] if disjoint else [])
    of_inputs = ["input_id", *(["seed_time"] if "time" in inputs.columns else [])]
    assert set(arrays) == names | {qualified(inputs.node_type, word) for word in of_inputs}
    inv.check_nodes(world, arrays)
    inv.check_edges(world, arrays, spec.direction)
    inv.check_inputs(world, inputs, facts, arrays)
    trees = {inputs.node_type: np.arange(inputs.count)} if disjoint else None
    hops = inv.Hops(world, spec, facts, arrays, trees)
    if disjoint:
        inv.check_trees(hops, np.arange(inputs.count))
    inv.check_hops(hops, {inputs.node_type: inputs.count})
    inv.check_fanouts(hops, None if times is None else times.tolist())
    inv.check_caps(hops)
    return facts, arrays


@SOME
@given(st.data(), worlds())
def test_neighbourhoods_are_of_the_graph_and_of_the_size_asked_for(
    data: st.DataObject, world: World
) -> None:
    """CONTRACT 42, 43, 44, 45: shared trees or disjoint ones, with replacement or without."""
    inputs = data.draw(seeds_in(world))
    disjoint = data.draw(st.booleans())
    checked(world, data.draw(neighbor_specs(world, disjoint=disjoint)), inputs)


@SOME
@given(st.data(), worlds())
def test_an_edge_without_weight_is_never_taken_and_all_others_can_be(
    data: st.DataObject, world: World
) -> None:
    """CONTRACT 45: fan-outs count what has weight; types without weights are drawn evenly."""
    inputs = data.draw(seeds_in(world))
    disjoint = data.draw(st.booleans())
    checked(world, data.draw(neighbor_specs(world, weight_attr="w", disjoint=disjoint)), inputs)


@SOME
@given(st.data(), worlds(), st.sampled_from(["time", "when"]))
def test_nothing_in_a_tree_is_later_than_its_seed(
    data: st.DataObject, world: World, attr: str
) -> None:
    """PYG `time_attr`: of what is in time as many as asked for, any of them or the latest."""
    inputs = data.draw(seeds_in(world))
    given_times = st.lists(st.integers(-1, MOST_TIME), min_size=inputs.count, max_size=inputs.count)
    times = np.array(data.draw(given_times), data.draw(st.sampled_from([np.int64, np.int32])))
    inputs.columns["time"] = times
    strategy = data.draw(st.sampled_from(["uniform", "last"]))
    spec = data.draw(neighbor_specs(world, time_attr=attr, temporal_strategy=strategy))
    _, arrays = checked(world, spec, inputs, times)
    inv.same_bits(
        arrays[qualified(inputs.node_type, "seed_time")], times.astype(np.int64), "seed_time"
    )


@SOME
@given(st.data(), worlds())
def test_nodes_with_times_are_seeds_of_their_own_time(data: st.DataObject, world: World) -> None:
    """PYG `time_attr`: without `input_time` the seeds' own times count."""
    inputs = data.draw(seeds_in(world))
    of = inputs.node_type
    assume("time" in world.nodes_have[of])
    times = world.nodes_have[of]["time"][inputs.ids]
    checked(world, data.draw(neighbor_specs(world, time_attr="time")), inputs, times)


@SOME
@given(st.data(), worlds(), st.lists(st.integers(-1, 3), max_size=4))
def test_caps_limit_the_nodes_that_a_hop_adds(
    data: st.DataObject, world: World, caps: list[int]
) -> None:
    inputs = data.draw(seeds_in(world))
    spec = data.draw(
        neighbor_specs(world, disjoint=data.draw(st.booleans()), node_caps=tuple(caps))
    )
    checked(world, spec, inputs)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [1, 5, 64, 300, 400, -1])
def test_few_of_many_neighbours_are_drawn_by_weights_of_any_dtype(
    weight: str, replace: bool, fanout: int
) -> None:
    """CONTRACT 45: exactly as many as asked for, none twice, none without weight."""
    spec = NeighborSpec(num_neighbors=(fanout,), weight_attr="w", replace=replace)
    checked(hub(400, weight), spec, Inputs(np.zeros(2, np.int64)))


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("attr", ["time", "when"])
@pytest.mark.parametrize("replace", [False, True])
def test_few_of_many_neighbours_in_time_are_drawn(strategy: Any, attr: str, replace: bool) -> None:
    """PYG `temporal_strategy`: for seeds before, among and after all times."""
    spec = NeighborSpec(
        num_neighbors=(9,), time_attr=attr, temporal_strategy=strategy, replace=replace
    )
    times = np.array([-(2**63), -1, 0, 4, MOST_TIME, 2**63 - 1])
    checked(hub(400), spec, Inputs(np.zeros(6, np.int64), columns={"time": times}), times)


# --- made whole ----------------------------------------------------------------------------------


def as_directional(spec: NeighborSpec) -> NeighborSpec:
    from msgspec.structs import replace

    return replace(spec, subgraph_type="directional")


@SOME
@given(st.data(), worlds())
def test_an_induced_batch_has_all_edges_among_its_nodes(data: st.DataObject, world: World) -> None:
    """PYG `subgraph_type`: the nodes of the directional batch, every edge among them once."""
    inputs = data.draw(seeds_in(world))
    weight = data.draw(st.sampled_from([None, "w"]))
    spec = data.draw(neighbor_specs(world, subgraph_type="induced", weight_attr=weight))
    facts, arrays = batch(world, spec, inputs)
    _, before = batch(world, as_directional(spec), inputs)
    assert not {"num_sampled_nodes", "num_sampled_edges"} & set(facts)
    assert set(arrays) == set(before)
    inv.check_inputs(world, inputs, facts, arrays)
    inv.check_nodes(world, arrays)
    inv.check_edges(world, arrays, spec.direction)
    for name in world.sizes:
        inv.same_bits(arrays[qualified(name, "n_id")], before[qualified(name, "n_id")], name)
    idle = {kind for kind, hops in spec.by_type or () if hops and not any(hops)}
    for kind, edges in world.edges.items():
        among = np.isin(edges[0], arrays[qualified(kind[0], "n_id")])
        among &= np.isin(edges[1], arrays[qualified(kind[2], "n_id")])
        expected = [] if kind in idle else np.flatnonzero(among).tolist()
        assert sorted(arrays[qualified(kind, "e_id")].tolist()) == expected
        _check_first_places(world, arrays, kind, spec.direction)


def _check_first_places(
    world: World, arrays: dict[str, Array], kind: EdgeType, direction: str
) -> None:
    index = arrays[qualified(kind, "edge_index")]
    for local, name in zip(index, world.ends(kind, direction), strict=True):
        nodes = arrays[qualified(name, "n_id")].tolist()
        assert all(nodes.index(nodes[place]) == place for place in local)


@SOME
@given(st.data(), worlds(hetero=False))
def test_a_bidirectional_batch_has_every_edge_and_its_reverse_once(
    data: st.DataObject, world: World
) -> None:
    """PYG `subgraph_type`: coalesced, sorted, with the id of the edge that each comes from."""
    inputs = data.draw(seeds_in(world))
    criterion = data.draw(st.sampled_from([{}, {"weight_attr": "w"}, {"time_attr": "time"}]))
    disjoint = data.draw(st.booleans())
    spec = data.draw(
        neighbor_specs(world, subgraph_type="bidirectional", disjoint=disjoint, **criterion)
    )
    facts, arrays = batch(world, spec, inputs)
    _, before = batch(world, as_directional(spec), inputs)
    assert not {"num_sampled_nodes", "num_sampled_edges"} & set(facts)
    assert set(arrays) == set(before)
    inv.check_inputs(world, inputs, facts, arrays)
    inv.check_nodes(world, arrays)
    inv.check_edge_attributes(world, arrays, next(iter(world.edges)), arrays["e_id"])
    inv.same_bits(arrays["n_id"], before["n_id"], "n_id")
    rows, cols = before["edge_index"].tolist()
    edges = before["e_id"].tolist()
    # Of several edges of a pair the last has its id, and the reverses come after all edges.
    both = dict(zip(zip(rows, cols, strict=True), edges, strict=True))
    both |= dict(zip(zip(cols, rows, strict=True), edges, strict=True))
    pairs = [tuple(pair) for pair in arrays["edge_index"].T.tolist()]
    assert pairs == sorted(both, key=lambda pair: (pair[1], pair[0]))
    assert arrays["e_id"].tolist() == [both[pair] for pair in pairs]


@SOME
@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional")
@given(st.data(), worlds(hetero=True))
def test_a_bidirectional_batch_of_types_joins_each_type_with_its_reverse(
    data: st.DataObject, world: World
) -> None:
    """PYG `subgraph_type`: (a, r, b) with (b, rev_r, a), or the only one from b to a."""
    inputs = data.draw(seeds_in(world))
    disjoint = data.draw(st.booleans())
    spec = data.draw(neighbor_specs(world, subgraph_type="bidirectional", disjoint=disjoint))
    facts, arrays = batch(world, spec, inputs)
    _, before = batch(world, as_directional(spec), inputs)
    inv.check_inputs(world, inputs, facts, arrays)
    inv.check_nodes(world, arrays)
    for kind in world.edges:
        name = qualified(kind, "edge_index")
        back = reverse_of(kind, list(world.edges))
        if back is None:
            same = [
                qualified(kind, word) for word in ("edge_index", "e_id", *world.edges_have[kind])
            ]
            for word in same:
                inv.same_bits(arrays[word], before[word], word)
            continue
        assert qualified(kind, "e_id") not in arrays
        own = set(map(tuple, before[name].T.tolist()))
        own |= set(map(tuple, before[qualified(back, "edge_index")][::-1].T.tolist()))
        pairs = [tuple(pair) for pair in arrays[name].T.tolist()]
        assert pairs == sorted(own, key=lambda pair: (pair[1], pair[0]))


def reverse_of(kind: EdgeType, kinds: list[EdgeType]) -> EdgeType | None:
    """By PyG's rule: by name, then a type among nodes of one kind is its own, then the only one."""
    source, relation, destination = kind
    if relation.startswith("rev_"):
        named = (destination, relation.removeprefix("rev_"), source)
        return named if named in kinds else None
    named = (destination, f"rev_{relation}", source)
    if named in kinds:
        return named
    if source == destination:
        return kind
    back = [other for other in kinds if (other[0], other[2]) == (destination, source)]
    return back[0] if len(back) == 1 else None
