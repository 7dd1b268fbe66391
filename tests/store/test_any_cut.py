"""Any graph, any cut, any way of sampling: the batches of the parts are those of the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.graph import EdgeType
from penstock.graph.schema import EDGE
from penstock.sampling.kinds import check
from penstock.sampling.spec import (
    ABLPSpec,
    HGTSpec,
    NeighborSpec,
    PPRSpec,
    SubgraphSpec,
    WalkSpec,
)
from penstock.store.graph import StoreGraph
from penstock.workers.batch_maker import slot_bytes_for
from tests.sampling import invariants as inv
from tests.sampling.graphs import made
from tests.sampling.test_invariants_ablp import BUYS, CITES, padded
from tests.sampling.test_invariants_ablp import KINDS as LABELLED
from tests.sampling.test_invariants_hops import neighbor_specs
from tests.sampling.test_invariants_links import (
    any_exclusion,
    link_specs,
    links_in,
    sums_of,
    times_of,
)
from tests.sampling.test_invariants_rooms import CASES, Case
from tests.sampling.worlds import SOME, Inputs, World, hub, maker_of, seeds_in, worlds
from tests.store.cuts import Cut, cuts, far_parts, sides_for, world_in_parts

pytestmark = pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional:UserWarning")


@st.composite
def weighted_cases(draw: st.DrawFn, world: World) -> Case:
    """Hops by weight, by times of edges or of nodes, the latest ones, of trees and made whole."""
    inputs = draw(seeds_in(world))
    options: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"weight_attr": "w", "disjoint": True},
                {"weight_attr": "w", "subgraph_type": "bidirectional"},
                {"time_attr": "when"},
                {"time_attr": "when", "temporal_strategy": "last"},
                {"time_attr": "time", "temporal_strategy": "last"},
                {"time_attr": "time", "subgraph_type": "bidirectional"},
                {"disjoint": True, "node_caps": (3, 2, 1)},
                {"subgraph_type": "bidirectional", "disjoint": True},
                {"subgraph_type": "induced", "weight_attr": "w"},
            ]
        )
    )
    if "time_attr" in options:
        inputs.columns["time"] = draw(times_of(inputs.count))
    return draw(neighbor_specs(world, **options)), inputs


@st.composite
def excluded_cases(draw: st.DrawFn, world: World) -> Case:
    """Links that are left out of their own neighbourhoods, with strict and weighted negatives."""
    inputs = draw(links_in(world))
    assume(inputs.count)
    assert inputs.edge_type is not None
    fixed: dict[str, Any] = draw(
        st.sampled_from(
            [
                {},
                {"weight_attr": "w"},
                {"time_attr": "when"},
                {"time_attr": "time"},
                {"subgraph_type": "induced"},
                {"disjoint": True, "weight_attr": "w"},
            ]
        )
    )
    if "time_attr" in fixed:
        inputs.columns["time"] = draw(times_of(inputs.count))
    exclude = draw(any_exclusion(world, inputs.edge_type))
    spec = draw(link_specs(world, exclude=exclude, **fixed))
    for end, table in ((0, "src_weight"), (2, "dst_weight")):
        drawn = ("binary",) if table == "src_weight" else ("binary", "triplet")
        if spec.negatives in drawn and draw(st.booleans()):
            inputs.tables[table] = draw(sums_of(world.sizes[inputs.edge_type[end]]))
    return spec, inputs


@st.composite
def scored_cases(draw: st.DrawFn, world: World) -> Case:
    """PPR to the last node, with typed channels, with what was looked at, in both directions."""
    inputs = draw(seeds_in(world))
    channels: tuple[Any, ...] = ()
    if world.is_hetero and draw(st.booleans()):
        kinds = st.lists(st.sampled_from(list(world.edges)), min_size=1, max_size=3, unique=True)
        channels = (("near", tuple(draw(kinds)), 0.25), ("far", tuple(draw(kinds)), 0.75))
    spec = PPRSpec(
        alpha=draw(st.sampled_from([0.15, 0.5])),
        eps=draw(st.sampled_from([1e-8, 1e-3, 0.1])),
        max_ppr_nodes=draw(st.sampled_from([1, 3, 50])),
        num_neighbors_per_hop=draw(st.sampled_from([1, 2, 1000])),
        max_fetch_iterations=draw(st.sampled_from([None, 0, 1, 2])),
        residual_topup=draw(st.booleans()),
        channels=channels,
        include_sampled_edges=world.is_hetero and draw(st.booleans()),
        direction=draw(st.sampled_from(["in", "out"])),
    )
    return spec, inputs


KINDS: dict[str, Callable[[World], st.SearchStrategy[Case]]] = {
    **CASES,
    "chosen": weighted_cases,
    "excluded": excluded_cases,
    "scores": scored_cases,
}


def check_same(world: World, parts: World, case: Case, room: int | None = None) -> None:
    """All batches of two epochs, one after the other by the same maker: what it kept counts too."""
    spec, inputs = case
    whole, store = maker_of(world, spec, inputs), maker_of(parts, spec, inputs)
    if room is None:
        room = slot_bytes_for(spec, parts.graph, inputs.feed(parts))
    for epoch in (0, 1):
        for index in range(-(-inputs.count // (inputs.batch_size or inputs.count))):
            expected, arrays = made(whole, epoch, index, 1 << 20)
            found, others = made(store, epoch, index, room)
            inv.same_batches((found.facts, others), (expected.facts, arrays))


@pytest.mark.parametrize("kind", KINDS)
@given(st.data(), worlds())
def test_parts_give_the_batches_of_the_whole(kind: str, data: st.DataObject, world: World) -> None:
    """CONTRACT 65: any assignment of nodes to parts, both layouts, every kind of sampling."""
    spec, inputs = data.draw(KINDS[kind](world))
    inputs.batch_size = data.draw(st.integers(1, inputs.count))
    cut = data.draw(cuts(world, *sides_for(spec)))
    with world_in_parts(world, cut) as parts:
        assert isinstance(parts.graph, StoreGraph)
        check_same(world, parts, (spec, inputs))


@pytest.mark.parametrize("kind", KINDS)
@SOME
@given(st.data(), worlds(), st.sampled_from([1, 64, 100, 1 << 20]), st.sampled_from([1, 700]))
def test_answers_in_bytes_and_in_pieces_change_nothing(
    kind: str, data: st.DataObject, world: World, most_bytes: int, room: int
) -> None:
    """CONTRACT 65: as they travel; rows of topology in pieces, down to one edge; any slot."""
    spec, inputs = data.draw(KINDS[kind](world))
    inputs.batch_size = data.draw(st.integers(1, inputs.count))
    cut = data.draw(cuts(world, *sides_for(spec)))
    with world_in_parts(world, cut, far_parts(most_bytes)) as parts:
        check_same(world, parts, (spec, inputs), room)


@pytest.mark.parametrize("kind", KINDS)
@SOME
@given(st.data(), worlds())
def test_a_cut_by_the_wrong_side_is_refused_at_once_or_changes_nothing(
    kind: str, data: st.DataObject, world: World
) -> None:
    """CONTRACT 61, 65: in words, and before the first batch; what is not refused is right."""
    spec, inputs = data.draw(KINDS[kind](world))
    wrong = "destination" if "source" in sides_for(spec) else "source"
    cut = data.draw(cuts(world, wrong, "both"))
    with world_in_parts(world, cut) as parts:
        try:
            check(spec, parts.graph)
        except ValueError as refusal:
            told = str(refusal)
        else:
            told = ""
            check_same(world, parts, (spec, inputs))
    assert not told or "was cut by" in told
    assert not told or f"edges='{cut.edges}'" not in told


@SOME
@given(st.data(), worlds(hetero=True, kinds_of=LABELLED), st.sampled_from([None, 0, 1, 2]))
def test_labels_by_name_are_all_there(data: st.DataObject, world: World, most: int | None) -> None:
    """CONTRACT 65: ABLP, all labels, by edge type or by column; several kinds at once."""
    inputs = data.draw(seeds_in(world, "p"))
    spec = ABLPSpec(
        neighbors=data.draw(neighbor_specs(world, disjoint=data.draw(st.booleans()))),
        supervision=tuple(data.draw(st.permutations([CITES, BUYS]))),
        max_labels=most,
    )
    for number, (_, relation, destination) in enumerate(spec.supervision):
        for sign in ("positive", "negative"):
            by_name = ("p", f"{relation}_{sign}", destination) in world.edges
            if (not by_name and sign == "positive") or data.draw(st.booleans()):
                rows = data.draw(padded(inputs.count, world.sizes[destination]))
                inputs.columns[f"{sign}/{number}"] = rows
    cut = data.draw(cuts(world, *sides_for(spec)))
    with world_in_parts(world, cut) as parts:
        check_same(world, parts, (spec, inputs))


@SOME
@given(st.data(), worlds(hetero=True, kinds_of=LABELLED))
def test_labels_may_be_read_from_given_edge_types(data: st.DataObject, world: World) -> None:
    """CONTRACT 65: whichever side the graph was cut by, labels are out-edges of their anchors."""
    kinds = [kind for kind in world.edges if kind[0] == "p"]
    assume(kinds)
    inputs = data.draw(seeds_in(world, "p"))
    positive: EdgeType = data.draw(st.sampled_from(kinds))
    spec = ABLPSpec(
        neighbors=data.draw(neighbor_specs(world)),
        supervision=(("p", "likes", positive[2]),),
        positive=(positive,),
    )
    cut = data.draw(cuts(world, *sides_for(spec)))
    with world_in_parts(world, cut) as parts:
        check_same(world, parts, (spec, inputs))


@SOME
@given(st.data(), worlds(hetero=False))
def test_labels_of_a_graph_without_types_are_its_edges(data: st.DataObject, world: World) -> None:
    """CONTRACT 65: ABLP in a homogeneous graph, where positive labels are left out of hops."""
    inputs = data.draw(seeds_in(world))
    spec = ABLPSpec(
        neighbors=data.draw(neighbor_specs(world)),
        supervision=(EDGE,),
        positive=(EDGE,),
        exclude=data.draw(st.sampled_from([None, "self"])),
    )
    cut = data.draw(cuts(world, *sides_for(spec)))
    with world_in_parts(world, cut) as parts:
        check_same(world, parts, (spec, inputs))


@SOME
@given(st.data(), worlds())
def test_only_the_attributes_asked_for_come_along(data: st.DataObject, world: World) -> None:
    """CONTRACT 65: and their rows are those of the whole, of nodes and of edges."""
    inputs = data.draw(seeds_in(world))
    names = st.none() | st.sampled_from([(), ("x",)])
    of_edges = st.none() | st.sampled_from([(), ("a",)])
    spec = replace(
        data.draw(neighbor_specs(world)),
        node_attributes=data.draw(names),
        edge_attributes=data.draw(of_edges),
        with_edge_ids=data.draw(st.booleans()),
    )
    cut = data.draw(cuts(world, *sides_for(spec)))
    with world_in_parts(world, cut) as parts:
        check_same(world, parts, (spec, inputs))


@pytest.mark.parametrize("topology", ["parts", "whole"])
@pytest.mark.parametrize("parts", [1, 2, 4, 7])
def test_a_part_that_is_empty_changes_nothing(parts: int, topology: str) -> None:
    """CONTRACT 65: all nodes in the last part, the others have none."""
    world, seeds = hub(60), Inputs(np.array([0, 5, 0, 60]))
    cases: list[Case] = [
        (NeighborSpec(num_neighbors=(7, 3)), seeds),
        (NeighborSpec(num_neighbors=(-1,), weight_attr="w", replace=True), seeds),
        (SubgraphSpec(num_hops=2, direction="out"), seeds),
        (HGTSpec(num_samples=(9, 9)), seeds),
        (WalkSpec(walk_length=4, p=0.5, q=3.0), seeds),
        (PPRSpec(max_ppr_nodes=20), seeds),
    ]
    cut = Cut(parts, np.full(61, parts - 1), "both", topology)
    with world_in_parts(world, cut) as found:
        for case in cases:
            check_same(world, found, case)
