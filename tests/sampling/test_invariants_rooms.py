"""Whatever the memory, the process and the company: a batch is the same bytes, of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.graph.schema import EDGE
from penstock.sampling.buffer import SlotTooSmall
from penstock.sampling.names import qualified
from penstock.sampling.spec import (
    ABLPSpec,
    BuiltInSpec,
    LinkSpec,
    NeighborSpec,
    PPRSpec,
    SubgraphSpec,
)
from penstock.wire.frames import private_memory, read
from penstock.workers.batch_maker import BatchMaker
from tests.sampling import invariants as inv
from tests.sampling.graphs import Array, made
from tests.sampling.test_invariants_hops import neighbor_specs
from tests.sampling.test_invariants_kinds import hgt_specs, walk_specs
from tests.sampling.test_invariants_links import link_specs, links_in
from tests.sampling.worlds import SOME, Inputs, World, hub, maker_of, ring, seeds_in, worlds

Case = tuple[BuiltInSpec, Inputs]
Batch = tuple[dict[str, Any], dict[str, Array]]
ROOM = 1 << 20  # more than any batch here needs


@st.composite
def hop_cases(draw: st.DrawFn, world: World) -> Case:
    fixed = draw(
        st.sampled_from(
            [
                {},
                {"disjoint": True},
                {"weight_attr": "w"},
                {"time_attr": "time"},
                {"node_caps": (2, 1)},
                {"subgraph_type": "induced"},
                {"subgraph_type": "bidirectional"},
            ]
        )
    )
    if world.is_hetero and fixed.get("subgraph_type") == "bidirectional":
        fixed = {}  # which would warn of types without a reverse
    inputs = draw(seeds_in(world))
    if "time_attr" in fixed:
        inputs.columns["time"] = np.arange(inputs.count)
    return draw(neighbor_specs(world, **fixed)), inputs


@st.composite
def link_cases(draw: st.DrawFn, world: World) -> Case:
    inputs = draw(links_in(world))
    fixed = draw(st.sampled_from([{}, {"disjoint": True}, {"time_attr": "time"}, {"induced": 1}]))
    if "time_attr" in fixed:
        inputs.columns["time"] = np.arange(inputs.count)
    if "induced" in fixed:
        fixed = {"subgraph_type": "induced"}
    return draw(link_specs(world, **fixed)), inputs


@st.composite
def label_cases(draw: st.DrawFn, world: World) -> Case:
    inputs = draw(seeds_in(world))
    kind = (inputs.node_type, "likes", inputs.node_type) if world.is_hetero else EDGE
    inputs.columns["positive/0"] = inputs.ids[::-1, None].copy()
    neighbors = draw(neighbor_specs(world) | ppr_specs(world))
    return ABLPSpec(neighbors=neighbors, supervision=(kind,)), inputs


@st.composite
def walk_cases(draw: st.DrawFn, world: World) -> Case:
    spec = draw(walk_specs(world))
    begins = spec.path[0][0 if spec.direction == "out" else 2] if spec.path else ""
    return spec, draw(seeds_in(world, begins))


def ppr_specs(world: World) -> st.SearchStrategy[PPRSpec]:
    return st.builds(
        PPRSpec,
        eps=st.just(1e-3),
        max_ppr_nodes=st.integers(0, 4),
        num_neighbors_per_hop=st.integers(1, 3),
        residual_topup=st.booleans(),
        include_sampled_edges=st.just(world.is_hetero),
        direction=st.sampled_from(["in", "out"]),
    )


@st.composite
def other_cases(draw: st.DrawFn, world: World) -> Case:
    direction: Any = draw(st.sampled_from(["in", "out"]))
    subgraph = SubgraphSpec(num_hops=draw(st.integers(0, 2)), direction=direction)
    others = st.just(subgraph) | ppr_specs(world) | hgt_specs(world)
    return draw(others), draw(seeds_in(world))


CASES: dict[str, Callable[[World], st.SearchStrategy[Case]]] = {
    "hops": hop_cases,
    "links": link_cases,
    "labels": label_cases,
    "walks": walk_cases,
    "others": other_cases,
}
every_kind = pytest.mark.parametrize("kind", CASES)


def drawn(data: st.DataObject, world: World, kind: str) -> Case:
    spec, inputs = data.draw(CASES[kind](world))
    assert inputs.count
    return spec, inputs


def sampled(maker: BatchMaker, epoch: int = 0, index: int = 0, room: int = ROOM) -> Batch:
    written, arrays = made(maker, epoch, index, room)
    return written.facts, arrays


@SOME
@every_kind
@given(st.data(), worlds())
def test_a_batch_that_did_not_fit_is_the_same_in_the_memory_it_asked_for(
    kind: str, data: st.DataObject, world: World
) -> None:
    """CONTRACT 21: in one byte, in exactly what it takes, and in everything between."""
    spec, inputs = drawn(data, world, kind)
    maker = maker_of(world, spec, inputs)
    written, arrays = made(maker, 0, 0, ROOM)
    expected = written.facts, {name: array.copy() for name, array in arrays.items()}
    some = data.draw(st.integers(0, written.nbytes))
    for room in (1, some, written.nbytes):
        inv.same_batches(sampled(maker, room=room), expected)
        fresh = maker_of(world, spec, inputs)
        inv.same_batches(sampled(fresh, room=room), expected)


@SOME
@every_kind
@given(st.data(), worlds())
def test_what_a_batch_asks_for_is_enough_and_nothing_is_written_beyond(
    kind: str, data: st.DataObject, world: World
) -> None:
    """CONTRACT 21: the second attempt fits, and memory behind the slot is not touched."""
    spec, inputs = drawn(data, world, kind)
    maker = maker_of(world, spec, inputs)
    with pytest.raises(SlotTooSmall) as small:
        maker.sample(1, 0, 0, private_memory(1))
    memory = private_memory(small.value.needed + 256)
    memory.fill(0xAA)
    written = maker.sample(1, 0, 0, memory[: small.value.needed])
    assert written.nbytes <= small.value.needed
    assert np.all(memory[small.value.needed :] == 0xAA)
    assert set(read(memory, written.layouts))


@SOME
@every_kind
@given(st.data(), worlds())
def test_a_batch_is_the_same_whoever_makes_it_and_whatever_was_made_before(
    kind: str, data: st.DataObject, world: World
) -> None:
    """CONTRACT 5: a pure function of graph, spec, seed, epoch and index."""
    spec, inputs = drawn(data, world, kind)
    inputs.batch_size = data.draw(st.integers(1, inputs.count))
    maker = maker_of(world, spec, inputs)
    batches = -(-inputs.count // inputs.batch_size)
    index, epoch = data.draw(st.integers(0, batches - 1)), data.draw(st.integers(0, 2))
    alone = sampled(maker_of(world, spec, inputs), epoch, index)
    for other in data.draw(st.lists(st.integers(0, batches - 1), max_size=3)):
        sampled(maker, epoch, other)
        with pytest.raises(SlotTooSmall):
            maker.sample(1, epoch + 1, other, private_memory(1))
    inv.same_batches(sampled(maker, epoch, index), alone)
    inv.same_batches(sampled(maker, epoch, index), alone)


@SOME
@every_kind
@given(st.data(), worlds(least=0))
def test_a_feed_without_inputs_is_opened_and_has_no_batches(
    kind: str, data: st.DataObject, world: World
) -> None:
    """CONTRACT 11: nothing to sample is no error, and asking for a batch is one."""
    spec, inputs = data.draw(CASES[kind](world))
    inputs.ids = inputs.ids[..., :0]
    inputs.columns = {name: column[:0] for name, column in inputs.columns.items()}
    maker = maker_of(world, spec, inputs)
    with pytest.raises((ValueError, IndexError)):
        maker.sample(1, 0, 0, private_memory(1024))


@SOME
@every_kind
@given(st.data(), worlds())
def test_channels_of_one_backend_do_not_see_each_other(
    kind: str, data: st.DataObject, world: World
) -> None:
    """CONTRACT 5: what is kept of a batch that did not fit is kept for that batch alone.

    Both channels have the same inputs, seed and indices, and differ in what was given with them.
    """
    spec, inputs = drawn(data, world, kind)
    other = Inputs(**vars(inputs) | {"columns": _others(inputs.columns)})
    both = maker_of(world, spec, inputs)
    both.open_channel(2, 1, other.feed(world), other.given)
    expected = sampled(maker_of(world, spec, other))
    with pytest.raises(SlotTooSmall):
        both.sample(1, 0, 0, private_memory(1))
    memory = private_memory(ROOM)
    written = both.sample(2, 0, 0, memory)
    inv.same_batches((written.facts, read(memory, written.layouts)), expected)


def _others(columns: dict[str, Array]) -> dict[str, Array]:
    """Other times, other labels."""
    return {name: column[::-1].copy() for name, column in columns.items()}


def test_links_made_whole_keep_their_own_labels_when_another_channel_did_not_fit() -> None:
    """CONTRACT 5: two channels of a backend with the same edges and other labels."""
    world = ring()
    spec = LinkSpec(neighbors=NeighborSpec(num_neighbors=(1,), subgraph_type="induced"))
    first = Inputs(np.array([[0, 1], [1, 2]]), edge_type=EDGE)
    first.columns["label"] = np.array([5, 6])
    second = Inputs(first.ids, edge_type=EDGE, columns={"label": np.array([7, 8])})
    maker = maker_of(world, spec, first)
    maker.open_channel(2, 1, second.feed(world), second.given)
    with pytest.raises(SlotTooSmall):
        maker.sample(1, 0, 0, private_memory(1))
    memory = private_memory(ROOM)
    written = maker.sample(2, 0, 0, memory)
    assert read(memory, written.layouts)["edge_label"].tolist() == [7, 8]


@pytest.mark.parametrize(
    "spec",
    [
        NeighborSpec(num_neighbors=(5,)),
        NeighborSpec(num_neighbors=(5,), replace=True),
        NeighborSpec(num_neighbors=(5,), disjoint=True),
        NeighborSpec(num_neighbors=(5,), weight_attr="w"),
        NeighborSpec(num_neighbors=(5,), weight_attr="w", replace=True),
        NeighborSpec(num_neighbors=(5,), time_attr="time"),
        NeighborSpec(num_neighbors=(5,), subgraph_type="induced"),
        NeighborSpec(num_neighbors=(5,), subgraph_type="bidirectional"),
        PPRSpec(num_neighbors_per_hop=5),
    ],
)
def test_other_seeds_epochs_and_indices_give_other_batches(spec: BuiltInSpec) -> None:
    """CONTRACT 5: all three are part of the batch's name, and of nothing else."""
    world, ids = hub(400), np.zeros(4, np.int64)
    found = set()
    for seed, epoch, index in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**64 - 1, 0, 3)]:
        inputs = Inputs(ids, batch_size=1, seed=seed)
        inputs.columns["time"] = np.full(4, 9)
        maker = maker_of(world, spec, _without_time(spec, inputs))
        found.add(tuple(sampled(maker, epoch, index)[1]["n_id"].tolist()))
    assert len(found) == 5


def _without_time(spec: BuiltInSpec, inputs: Inputs) -> Inputs:
    if not isinstance(spec, NeighborSpec) or spec.time_attr is None:
        inputs.columns.clear()
    return inputs


@SOME
@given(st.data(), worlds())
def test_a_tree_does_not_depend_on_the_trees_beside_it(data: st.DataObject, world: World) -> None:
    """PYG `disjoint`: trees share nothing; other seeds behind it change nothing in a tree."""
    inputs = data.draw(seeds_in(world))
    assume(inputs.count > 1)
    spec = data.draw(neighbor_specs(world, disjoint=True))
    fewer = replace_ids(inputs, inputs.ids[:1])
    (_, many), (_, one) = (sampled(maker_of(world, spec, given_)) for given_ in (inputs, fewer))
    for name in world.sizes:
        first = many[qualified(name, "n_id")][many[qualified(name, "batch")] == 0]
        np.testing.assert_array_equal(first, one[qualified(name, "n_id")])


def replace_ids(inputs: Inputs, ids: Array) -> Inputs:
    return Inputs(**vars(inputs) | {"ids": ids})


@SOME
@given(st.data(), worlds())
def test_attributes_and_edge_ids_left_out_change_nothing_else(
    data: st.DataObject, world: World
) -> None:
    """CONTRACT 42: what goes along is chosen by name, and what is sampled does not depend on it."""
    spec, inputs = drawn(data, world, data.draw(st.sampled_from(["hops", "walks", "others"])))
    _, whole = sampled(maker_of(world, spec, inputs))
    assert not isinstance(spec, LinkSpec | ABLPSpec)
    bare_spec = replace(spec, with_edge_ids=False, node_attributes=(), edge_attributes=())
    _, bare = sampled(maker_of(world, bare_spec, inputs))
    ids = {name for name in whole if name.rpartition("/")[2] in ("e_id", "walk_edges")}
    attributes = inv.names_of(world) - {qualified(name, "n_id") for name in world.sizes}
    attributes -= {qualified(kind, "edge_index") for kind in world.edges}
    assert set(bare) == set(whole) - ids - attributes
    for name, array in bare.items():
        inv.same_bits(array, whole[name], name)
