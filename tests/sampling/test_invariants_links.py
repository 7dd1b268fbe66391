"""Links of any graph: their ends, labels and negatives, held against every pair there is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import EdgeType
from penstock.sampling.names import qualified, type_name
from penstock.sampling.spec import LinkSpec
from tests.sampling import invariants as inv
from tests.sampling.graphs import Array
from tests.sampling.test_invariants_hops import neighbor_specs
from tests.sampling.worlds import MOST_TIME, SOME, Inputs, World, array_of, batch, worlds

LABELS = ("float32", "float64", "int64", "int32", "int8", "uint8")


@st.composite
def links_in(draw: st.DrawFn, world: World, most: int = 5) -> Inputs:
    """Pairs of which some are edges, of a type whose ends there are."""
    kinds = [kind for kind in world.edges if world.sizes[kind[0]] and world.sizes[kind[2]]]
    if not kinds:
        return Inputs(np.empty((2, 0), np.int64), edge_type=next(iter(world.edges)))
    kind = draw(st.sampled_from(kinds))
    ends = [st.integers(0, world.sizes[end] - 1) for end in (kind[0], kind[2])]
    pairs = st.tuples(*ends)
    if world.edges[kind].shape[1]:
        pairs |= st.sampled_from(list(map(tuple, world.edges[kind].T.tolist())))
    ids = draw(st.lists(pairs, min_size=1, max_size=most))
    seed = draw(st.integers(0, 3))
    return Inputs(np.array(ids, np.int64).T.copy(), edge_type=kind, seed=seed)


@st.composite
def times_of(draw: st.DrawFn, count: int) -> Array:
    given_times = draw(st.lists(st.integers(-1, MOST_TIME), min_size=count, max_size=count))
    return np.array(given_times, np.int64)


@st.composite
def sums_of(draw: st.DrawFn, count: int) -> Array:
    """Running sums of weights, one of them at least positive."""
    weights = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    weights[draw(st.integers(0, count - 1))] = 3
    return np.cumsum(np.array(weights, np.int64))


@dataclass
class Links:
    """A batch of links in global ids: those given, then the negatives."""

    world: World
    spec: LinkSpec
    inputs: Inputs
    facts: dict[str, Any]
    arrays: dict[str, Array]

    @property
    def kind(self) -> EdgeType:
        assert self.inputs.edge_type is not None
        return self.inputs.edge_type

    @property
    def num_given(self) -> int:
        return self.inputs.count

    @property
    def num_negatives(self) -> int:
        if self.spec.negatives == "none":
            return 0
        return math.ceil(self.num_given * self.spec.amount)

    @property
    def is_disjoint(self) -> bool:
        return self.spec.neighbors.disjoint or self.spec.neighbors.time_attr is not None

    def places(self) -> tuple[Array, Array]:
        """Of every source and destination, given then negative, the place in `n_id`."""
        if self.spec.negatives != "triplet":
            index = self.arrays[qualified(self.kind, "edge_label_index")]
            assert index.dtype == np.int64
            assert index.shape == (2, self.num_given + self.num_negatives)
            return index[0], index[1]
        negative = self.arrays[qualified(self.kind[2], "dst_neg_index")]
        amount = int(self.spec.amount)
        assert negative.shape == ((self.num_given, amount) if amount > 1 else (self.num_given,))
        positive = self.arrays[qualified(self.kind[2], "dst_pos_index")]
        columns = negative.reshape(self.num_given, amount).T.reshape(-1)
        return self.arrays[qualified(self.kind[0], "src_index")], np.concatenate(
            [positive, columns]
        )

    def ends(self) -> tuple[Array, Array]:
        """The same in global ids."""
        sources, destinations = self.places()
        above, below = (self.arrays[qualified(self.kind[end], "n_id")] for end in (0, 2))
        return above[sources], below[destinations]

    def negatives(self) -> list[tuple[int, int, int]]:
        """Each negative with the number of the edge that it stands against."""
        sources, destinations = self.ends()
        against = np.arange(self.num_negatives) % self.num_given
        heads = sources[
            against if self.spec.negatives == "triplet" else slice(self.num_given, None)
        ]
        return list(
            zip(
                heads.tolist(),
                destinations[self.num_given :].tolist(),
                against.tolist(),
                strict=True,
            )
        )


def linked(world: World, spec: LinkSpec, inputs: Inputs) -> Links:
    """A batch of links, after what is true of all of them was found to be."""
    links = Links(world, spec, inputs, *batch(world, spec, inputs))
    assert links.facts["batch_size"] == inputs.count
    told = type_name(links.kind) if world.is_hetero else None
    assert links.facts.get("input_type") == told
    assert links.arrays[qualified(links.kind, "input_id")].tolist() == list(range(inputs.count))
    sources, destinations = links.ends()
    np.testing.assert_array_equal(sources[: inputs.count], inputs.ids[0])
    np.testing.assert_array_equal(destinations[: inputs.count], inputs.ids[1])
    inv.check_nodes(world, links.arrays)
    inv.check_edges(world, links.arrays, spec.neighbors.direction)
    check_names(links)
    check_neighborhoods(links)
    check_negatives(links)
    return links


def check_names(links: Links) -> None:
    disjoint, timed = links.is_disjoint, "time" in links.inputs.columns
    names = inv.names_of(links.world, per_node=["batch"] if disjoint else [])
    names.add(qualified(links.kind, "input_id"))
    source, _, destination = links.kind
    if links.spec.negatives == "triplet":
        names |= {qualified(source, "src_index"), qualified(destination, "dst_pos_index")}
        names |= {qualified(destination, "dst_neg_index")}
        names |= {qualified(end, "seed_time") for end in (source, destination) if timed}
    else:
        has_label = links.spec.negatives == "binary" or "label" in links.inputs.columns
        words = ["edge_label_index", *["edge_label"][: int(has_label)]]
        words += ["edge_label_time"] if timed else []
        names |= {qualified(links.kind, word) for word in words}
    assert set(links.arrays) == names


def check_neighborhoods(links: Links) -> None:
    """CONTRACT 42, 45: all ends are seeds, and all that holds of seeds holds of them."""
    seeds, trees, inputs_of = seeds_of(links)
    hops = inv.Hops(
        links.world,
        links.spec.neighbors,
        links.facts,
        links.arrays,
        trees if links.is_disjoint else None,
        excluded_of(links, inputs_of),
    )
    for name, ids in seeds.items():
        np.testing.assert_array_equal(hops.nodes(name)[: len(ids)], ids)
    times = links.inputs.columns.get("time")
    inv.check_hops(hops, {name: len(ids) for name, ids in seeds.items()})
    inv.check_fanouts(hops, None if times is None else times[inputs_of].tolist())
    if links.is_disjoint:
        inv.check_trees(hops, inputs_of)


def excluded_of(links: Links, inputs_of: Array) -> dict[EdgeType, set[inv.Excluded]]:
    """What must not be sampled: of trees, the link that each of them belongs to."""
    if links.spec.exclude is None:
        return {}
    trees = list(enumerate(inputs_of.tolist()))
    if not links.is_disjoint:
        trees = [(0, number) for number in range(links.num_given)]
    pairs = [(*links.inputs.ids[:, number].tolist(), tree) for tree, number in trees]
    found: dict[EdgeType, set[inv.Excluded]] = {links.kind: {(u, v, tree) for u, v, tree in pairs}}
    if links.spec.exclude == "reverse":
        back = reverse_of(links.world, links.kind)
        found.setdefault(back, set()).update((v, u, tree) for u, v, tree in pairs)
    return found


def reverse_of(world: World, kind: EdgeType) -> EdgeType:
    """By name, of the types that are in these graphs."""
    named = {
        ("a/b", "w,r", "p"): ("p", "rev_w,r", "a/b"),
        ("p", "rev_w,r", "a/b"): ("a/b", "w,r", "p"),
    }
    return named[kind] if named.get(kind) in world.edges else kind


def seeds_of(links: Links) -> tuple[dict[str, Array], dict[str, Array], Array]:
    """Seeds by type, their trees, and the input that each tree belongs to."""
    sources, destinations = links.ends()
    given = links.num_given
    if not links.is_disjoint:
        order = (sources[:given], destinations[:given], sources[given:], destinations[given:])
        seeds: dict[str, list[int]] = {}
        for part, end in zip(order, (0, 2, 0, 2), strict=True):
            seeds.setdefault(links.kind[end], []).extend(part.tolist())
        once = {name: np.array([*dict.fromkeys(ids)]) for name, ids in seeds.items()}
        return once, {}, np.zeros(1, np.int64)
    parts: dict[str, list[Array]] = {}
    of: dict[str, list[Array]] = {}
    for ids, end in ((sources, 0), (destinations, 2)):
        parts.setdefault(links.kind[end], []).append(ids)
        of.setdefault(links.kind[end], []).append(np.arange(len(ids)) % given)
    by_type = {name: np.concatenate(found) for name, found in parts.items()}
    ordered = [name for name in links.world.sizes if name in by_type]
    inputs_of = np.concatenate([part for name in ordered for part in of[name]])
    numbers = iter(
        np.split(np.arange(len(inputs_of)), np.cumsum([len(by_type[n]) for n in ordered]))
    )
    return by_type, {name: next(numbers) for name in ordered}, inputs_of


def candidates(links: Links, end: int, against: int) -> tuple[set[int], set[int]]:
    """The nodes that a negative's end may be, and those of them that are in time."""
    name = links.kind[end]
    nodes = set(range(links.world.sizes[name]))
    table = links.inputs.tables.get(("src_weight", "", "dst_weight")[end])
    if table is not None:
        nodes &= set(np.flatnonzero(np.diff(table, prepend=0)).tolist())
    times = links.world.nodes_have[name].get("time")
    if links.spec.neighbors.time_attr != "time" or times is None:
        return nodes, nodes
    limit = links.inputs.columns["time"][against]
    return nodes, {node for node in nodes if times[node] <= limit}


def check_negatives(links: Links) -> None:
    """CONTRACT 46: in time, with weight and, where strict, no edges, wherever that can be."""
    edges = set(map(tuple, links.world.edges[links.kind].T.tolist()))
    pairs = links.spec.negatives == "binary"
    false = late = 0
    assert len(links.negatives()) == links.num_negatives
    for source, destination, against in links.negatives():
        known = edges | {tuple(links.inputs.ids[:, against].tolist())}
        is_late = False
        for end, node in ((0, source), (2, destination)) if pairs else ((2, destination),):
            nodes, in_time = candidates(links, end, against)
            assert node in nodes
            is_late |= node not in in_time
            assert node in in_time or not in_time, "somebody would have been in time"
        late += is_late
        if (source, destination) in known:
            false += 1
            _, in_time = candidates(links, 2, against)
            left = {node for node in in_time if (source, node) not in known}
            assert not (links.spec.strict and left), "somebody would have been no neighbour"
    if links.spec.strict:
        assert links.facts["num_false_negatives"] == false
    assert links.facts.get("num_late_negatives", 0) == late


@st.composite
def link_specs(
    draw: st.DrawFn,
    world: World,
    modes: tuple[Any, ...] = ("none", "binary", "triplet"),
    exclude: Any = None,
    **fixed: Any,
) -> LinkSpec:
    negatives = draw(st.sampled_from(modes))
    amounts = {"none": [1.0], "binary": [0.3, 1.0, 1.5], "triplet": [1.0, 2.0, 3.0]}
    return LinkSpec(
        neighbors=draw(neighbor_specs(world, **fixed)),
        negatives=negatives,
        amount=draw(st.sampled_from(amounts[negatives])),
        strict=draw(st.booleans()) and negatives != "none",
        exclude=exclude,
    )


@st.composite
def any_exclusion(draw: st.DrawFn, world: World, kind: EdgeType | None) -> Any:
    """Reverses only of types that have some."""
    assert kind is not None
    has_reverse = kind[0] == kind[2] or reverse_of(world, kind) != kind
    return draw(st.sampled_from([None, "self", *["reverse"][: int(has_reverse)]]))


@SOME
@given(st.data(), worlds())
def test_links_stand_where_they_are_said_to_with_negatives_that_are_none(
    data: st.DataObject, world: World
) -> None:
    """CONTRACT 46: binary, triplet or none, strict or not, by weight or evenly."""
    inputs = data.draw(links_in(world))
    assert inputs.edge_type is not None
    weight = data.draw(st.sampled_from([None, "w"]))
    exclude = data.draw(any_exclusion(world, inputs.edge_type))
    spec = data.draw(
        link_specs(world, exclude=exclude, disjoint=data.draw(st.booleans()), weight_attr=weight)
    )
    for end, table in ((0, "src_weight"), (2, "dst_weight")):
        drawn = ("binary",) if table == "src_weight" else ("binary", "triplet")
        if spec.negatives in drawn and data.draw(st.booleans()):
            inputs.tables[table] = data.draw(sums_of(world.sizes[inputs.edge_type[end]]))
    linked(world, spec, inputs)


@SOME
@given(st.data(), worlds(), st.sampled_from(["time", "when"]))
def test_negatives_and_neighbours_are_not_later_than_their_link(
    data: st.DataObject, world: World, attr: str
) -> None:
    """CONTRACT 46, PYG link rows: both ends have the link's time, and its negatives as well."""
    inputs = data.draw(links_in(world))
    inputs.columns["time"] = times = data.draw(times_of(inputs.count))
    strategy = data.draw(st.sampled_from(["uniform", "last"]))
    exclude = data.draw(any_exclusion(world, inputs.edge_type))
    spec = data.draw(link_specs(world, exclude=exclude, time_attr=attr, temporal_strategy=strategy))
    links = linked(world, spec, inputs)
    repeated = np.resize(times, links.num_given + links.num_negatives)
    if spec.negatives == "triplet":
        for end in (0, 2):
            inv.same_bits(links.arrays[qualified(links.kind[end], "seed_time")], times, "time")
    else:
        told = links.arrays[qualified(links.kind, "edge_label_time")]
        inv.same_bits(told, repeated, "time")


@SOME
@given(
    st.data(), worlds(), st.sampled_from(LABELS), st.sampled_from([(), (2,), (0,)]), st.booleans()
)
def test_labels_are_as_given_shifted_if_told_and_negatives_have_zeros(
    data: st.DataObject, world: World, dtype: str, shape: tuple[int, ...], shifted: bool
) -> None:
    """CONTRACT 46: `edge_label`, with its dtype and its shape."""
    inputs = data.draw(links_in(world))
    rng = np.random.default_rng(0)
    label = array_of(rng, dtype, (inputs.count, *shape))
    if label.dtype.kind == "f":
        label = np.nan_to_num(label, posinf=1, neginf=1)
    inputs.columns["label"] = label
    spec = data.draw(link_specs(world, modes=("none", "binary")))
    if shifted:
        inputs.tables["label_shift"] = np.array([1])
    links = linked(world, spec, inputs)
    shift = label.dtype.type(shifted and spec.negatives == "binary")
    nothing = np.zeros((links.num_negatives, *shape), label.dtype)
    expected = np.concatenate([label + shift, nothing])
    inv.same_bits(links.arrays[qualified(links.kind, "edge_label")], expected, "edge_label")


@SOME
@given(st.data(), worlds())
def test_labels_of_our_own_are_ones_and_zeros(data: st.DataObject, world: World) -> None:
    """CONTRACT 46: float, where nobody gave any."""
    inputs = data.draw(links_in(world))
    spec = data.draw(link_specs(world, modes=("binary",)))
    links = linked(world, spec, inputs)
    expected = np.repeat(np.array([1, 0], np.float32), [links.num_given, links.num_negatives])
    inv.same_bits(links.arrays[qualified(links.kind, "edge_label")], expected, "edge_label")


@SOME
@given(st.data(), worlds(hetero=False), st.sampled_from(["bidirectional", "induced"]))
def test_links_made_whole_have_the_nodes_and_links_of_the_directional_batch(
    data: st.DataObject, world: World, subgraph_type: str
) -> None:
    """PYG `subgraph_type`, of links."""
    from msgspec.structs import replace

    inputs = data.draw(links_in(world))
    exclude = data.draw(st.sampled_from([None, "self", "reverse"]))
    spec = data.draw(link_specs(world, exclude=exclude))
    other = replace(spec, neighbors=replace(spec.neighbors, subgraph_type=subgraph_type))
    plain, whole = linked(world, spec, inputs), batch(world, other, inputs)
    assert set(plain.arrays) == set(whole[1])
    for name in set(plain.arrays) - {"edge_index", "e_id", *world.edges_have[("", "", "")]}:
        inv.same_bits(whole[1][name], plain.arrays[name], name)
    inv.check_edge_attributes(world, whole[1], ("", "", ""), whole[1]["e_id"])
    shown = whole[1]["n_id"][whole[1]["edge_index"]]
    if spec.neighbors.direction == "out":
        shown = shown[::-1]
    if not plain.is_disjoint:
        hidden = excluded_of(plain, np.zeros(1, np.int64)).get(("", "", ""), set())
        assert not {(int(u), int(v), 0) for u, v in shown.T} & hidden
