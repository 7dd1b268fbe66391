"""Anchors and labels over any graph: who belongs to whom, and that no label is ever walked."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.graph import EdgeType
from penstock.graph.schema import EDGE
from penstock.sampling.names import qualified
from penstock.sampling.spec import ABLPSpec, NeighborSpec
from tests.sampling import invariants as inv
from tests.sampling.graphs import Array
from tests.sampling.test_invariants_hops import neighbor_specs
from tests.sampling.worlds import SOME, Inputs, World, batch, seeds_in, worlds

CITES: EdgeType = ("p", "cites", "p")
BUYS: EdgeType = ("p", "buys", "a/b")  # which no graph here has: it is to be predicted
KINDS: tuple[EdgeType, ...] = (
    CITES,
    ("p", "cites_positive", "p"),
    ("p", "cites_negative", "p"),
    ("p", "buys_positive", "a/b"),
    ("a/b", "w,r", "p"),
    ("p", "saw", "a/b"),
)
Pairs = list[tuple[int, int]]


@st.composite
def padded(draw: st.DrawFn, anchors: int, labels: int) -> Array:
    """A row of labels for each anchor, with -1 wherever."""
    width = draw(st.integers(0, 3))
    row = st.lists(st.integers(-1, labels - 1), min_size=width, max_size=width)
    rows = draw(st.lists(row, min_size=anchors, max_size=anchors))
    return np.array(rows, draw(st.sampled_from([np.int64, np.int32]))).reshape(anchors, width)


def labels_of(
    world: World, spec: ABLPSpec, inputs: Inputs, number: int, sign: str
) -> tuple[EdgeType | None, Pairs | None]:
    """The edge type that labels are read from, if any, and the labels: (anchor's place, node)."""
    source, relation, destination = spec.supervision[number]
    named = spec.positive if sign == "positive" else spec.negative
    kind = named[number] if named is not None else (source, f"{relation}_{sign}", destination)
    known = kind if kind in world.edges else None
    rows = inputs.columns.get(f"{sign}/{number}")
    if rows is not None:
        pairs = [
            (i, int(label))
            for i, row in enumerate(rows)
            for label in row[row >= 0][: spec.max_labels]
        ]
        return known, pairs
    if known is None:
        return None, None
    edges = world.edges[known]
    return known, [
        (i, int(label))
        for i, anchor in enumerate(inputs.ids)
        for label in edges[1, edges[0] == anchor][: spec.max_labels]
    ]


def check_labels(world: World, spec: ABLPSpec, inputs: Inputs) -> None:
    """CONTRACT 47: the labels, where they stand, and the neighbourhoods of all."""
    facts, arrays = batch(world, spec, inputs)
    seeds: dict[str, list[int]] = {name: [] for name in world.sizes}
    seeds[inputs.node_type] = inputs.ids.tolist()
    names, labels = {qualified(inputs.node_type, "input_id")}, set()
    positives: list[tuple[EdgeType, Pairs]] = []
    for number, kind in enumerate(spec.supervision):
        for sign in ("positive", "negative"):
            read, pairs = labels_of(world, spec, inputs, number, sign)
            labels.add(read)
            if pairs is None:
                continue
            names.add(name := qualified(kind, f"y_{sign}"))
            there = seeds[kind[2]]
            there += [
                node for node in dict.fromkeys(label for _, label in pairs) if node not in there
            ]
            expected = [(anchor, there.index(label)) for anchor, label in pairs]
            if sign == "positive":
                positives.append((kind, pairs))
            found = arrays[name]
            assert (found.dtype, found.shape) == (np.int64, (2, len(pairs)))
            assert list(map(tuple, found.T.tolist())) == expected
    per_node = ["batch"] if spec.neighbors.disjoint else []
    assert set(arrays) == inv.names_of(world, per_node=per_node) | names
    inv.check_nodes(world, arrays)
    inv.check_edges(world, arrays, spec.neighbors.direction)
    inv.check_inputs(world, inputs, facts, arrays)
    check_neighborhoods(world, spec, seeds, facts, arrays, labels, positives)


def check_neighborhoods(
    world: World,
    spec: ABLPSpec,
    seeds: dict[str, list[int]],
    facts: Any,
    arrays: dict[str, Array],
    labels: set[EdgeType | None],
    positives: list[tuple[EdgeType, Pairs]],
) -> None:
    """Those of anchors and labels alike, along no label edge, nor to a positive label."""
    given_ = dict(spec.neighbors.by_type or ())
    fanouts = {kind: given_.get(kind, spec.neighbors.num_neighbors) for kind in world.edges}
    if CITES in world.edges:  # what labels it is walked only where it is named
        labels |= {("p", f"cites_{sign}", "p") for sign in ("positive", "negative")} - given_.keys()
    walked = {kind: (0,) * len(hops) if kind in labels else hops for kind, hops in fanouts.items()}
    neighbors = NeighborSpec(
        by_type=tuple(walked.items()),
        replace=spec.neighbors.replace,
        direction=spec.neighbors.direction,
        weight_attr=spec.neighbors.weight_attr,
    )
    counts = np.cumsum([0, *map(len, seeds.values())])
    trees = {name: np.arange(counts[n], counts[n + 1]) for n, name in enumerate(seeds)}
    firsts = {name: int(counts[n]) for n, name in enumerate(seeds)}
    excluded: dict[EdgeType, set[inv.Excluded]] = {}
    for kind, pairs in positives if spec.exclude is not None else ():
        for anchor, label in pairs:
            node = seeds[kind[0]][anchor]
            ends = {firsts[kind[0]] + anchor, firsts[kind[2]] + seeds[kind[2]].index(label)}
            within = ends if spec.neighbors.disjoint else {0}
            excluded.setdefault(kind, set()).update((node, label, tree) for tree in within)
    hops = inv.Hops(
        world, neighbors, facts, arrays, trees if spec.neighbors.disjoint else None, excluded
    )
    for name, ids in seeds.items():
        assert hops.nodes(name)[: len(ids)].tolist() == ids
    inv.check_hops(hops, {name: len(ids) for name, ids in seeds.items()})
    inv.check_fanouts(hops)


@SOME
@given(st.data(), worlds(hetero=True, kinds_of=KINDS), st.sampled_from([None, 0, 1, 2]))
def test_labels_belong_to_their_anchors_and_are_never_walked(
    data: st.DataObject, world: World, most: int | None
) -> None:
    """CONTRACT 37, 47, 63: by name, by edge type or by column; several kinds at once; capped."""
    inputs = data.draw(seeds_in(world, "p"))
    fixed = {"disjoint": data.draw(st.booleans())}
    spec = ABLPSpec(
        neighbors=data.draw(neighbor_specs(world, **fixed)),
        supervision=tuple(data.draw(st.permutations([CITES, BUYS]))),
        max_labels=most,
    )
    for number, (_, relation, destination) in enumerate(spec.supervision):
        for sign in ("positive", "negative"):
            by_name = ("p", f"{relation}_{sign}", destination) in world.edges
            if (not by_name and sign == "positive") or data.draw(st.booleans()):
                rows = data.draw(padded(inputs.count, world.sizes[destination]))
                inputs.columns[f"{sign}/{number}"] = rows
    check_labels(world, spec, inputs)


@SOME
@given(st.data(), worlds(hetero=True, kinds_of=KINDS), st.sampled_from([None, 1]))
def test_labels_may_be_read_from_any_edge_type_of_the_same_ends(
    data: st.DataObject, world: World, most: int | None
) -> None:
    """CONTRACT 63: given instead of found by name."""
    kinds = [kind for kind in world.edges if kind[0] == "p"]
    assume(kinds)  # most have one
    inputs = data.draw(seeds_in(world, "p"))
    positive, negative = (data.draw(st.sampled_from(kinds)) for _ in range(2))
    same_ends = positive[2] == negative[2]
    spec = ABLPSpec(
        neighbors=data.draw(neighbor_specs(world)),
        supervision=(("p", "likes", positive[2]),),
        positive=(positive,),
        negative=(negative,) if same_ends else None,
        max_labels=most,
    )
    check_labels(world, spec, inputs)


@SOME
@given(st.data(), worlds(hetero=False), st.booleans())
def test_a_graph_without_types_has_labels_as_well(
    data: st.DataObject, world: World, by_edges: bool
) -> None:
    """CONTRACT 47: from a column, or from its edges, which are then not walked."""
    inputs = data.draw(seeds_in(world))
    if not by_edges:
        inputs.columns["positive/0"] = data.draw(padded(inputs.count, world.sizes[""]))
    spec = ABLPSpec(
        neighbors=data.draw(neighbor_specs(world)),
        supervision=(EDGE,),
        positive=(EDGE,) if by_edges else None,
        exclude=data.draw(st.sampled_from([None, "self"])),
    )
    check_labels(world, spec, inputs)
