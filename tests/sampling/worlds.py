"""Random graphs with everything that can be in one, kept in plain NumPy beside the real one.

What a batch says of nodes and edges is held against these arrays, never against the graph itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from penstock.graph import EdgeType, Graph
from penstock.graph.dtypes import SUPPORTED, storage_dtype
from penstock.graph.schema import EDGE, NODE, ArrayKey
from penstock.graph.shared import SharedArray
from penstock.sampling.inputs import ChannelInputs
from penstock.sampling.kinds import check
from penstock.sampling.names import Owner
from penstock.sampling.spec import BuiltInSpec, Feed
from penstock.workers.batch_maker import BatchMaker, slot_bytes_for
from tests.sampling.graphs import Array, made, maker_for

# A share of what the profile asks for: many tests go through whole batches.
SOME = settings(max_examples=max(settings().max_examples // 3, 1))
FEW = settings(max_examples=max(settings().max_examples // 8, 1))

# Names that mean something to whoever joins or splits them.
NODE_TYPES = ("p", "a/b", "c,%2F")
KINDS: tuple[EdgeType, ...] = (
    ("p", "to", "p"),
    ("a/b", "w,r", "p"),
    ("p", "rev_w,r", "a/b"),
    ("p", "to", "a/b"),
    ("c,%2F", "to", "a/b"),
    ("a/b", "self/", "a/b"),
)
WEIGHTS = ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8")
TIMES = ("int32", "int64")
SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (2, 2), (0,))
MOST_TIME = 9


@dataclass
class World:
    """A graph, and what it was made of: edges [2, E] by type, attributes by owner and name.

    Attributes: nodes have "x" and, some types, "time"; edges have "a" and, some, "w" and "when".
    """

    graph: Graph
    sizes: dict[str, int]
    edges: dict[EdgeType, Array]
    nodes_have: dict[str, dict[str, Array]] = field(default_factory=dict)
    edges_have: dict[EdgeType, dict[str, Array]] = field(default_factory=dict)

    @property
    def is_hetero(self) -> bool:
        return self.graph.is_hetero

    def ends(self, kind: EdgeType, direction: str) -> tuple[str, str]:
        """The node types above and below in an edge_index: found, and expanded."""
        return (kind[0], kind[2]) if direction == "in" else (kind[2], kind[0])

    def directed(self, kind: EdgeType, direction: str) -> Array:
        """The edges, found above expanded."""
        return self.edges[kind] if direction == "in" else self.edges[kind][::-1]

    def weights(self, kind: EdgeType) -> Array | None:
        """As numbers."""
        given = self.edges_have[kind].get("w")
        if given is None or given.dtype != np.uint16:
            return given
        return (given.astype(np.uint32) << 16).view(np.float32)

    def times(self, kind: EdgeType, attr: str, direction: str) -> Array | None:
        """The time of each edge, or of the node that it leads to."""
        if attr == "when":
            return self.edges_have[kind].get("when")
        found, _ = self.ends(kind, direction)
        of_nodes = self.nodes_have[found].get("time")
        return None if of_nodes is None else of_nodes[self.directed(kind, direction)[0]]


def array_of(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Any bits there are, but NaN may not be compared, so the bits are what is kept."""
    bits = rng.integers(0, 256, (*shape, storage_dtype(dtype).itemsize), np.uint8)
    if dtype == "bool":
        return bits[..., 0] > 127
    return bits.view(storage_dtype(dtype)).reshape(shape)


def weights_of(rng: np.random.Generator, dtype: str, count: int) -> Array:
    """Weights of which a third are 0, in a range that all dtypes have."""
    values = rng.integers(1, 100, count) * (rng.random(count) < 2 / 3)
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(storage_dtype(dtype))


@st.composite
def worlds(
    draw: st.DrawFn,
    hetero: bool | None = None,
    kinds_of: tuple[EdgeType, ...] = KINDS,
    least: int = 1,
) -> World:
    """Multi-edges, self-loops, isolated nodes, types and relations that are empty.

    The ends of the first edge type have `least` nodes, so that there is something to begin with.
    """
    is_hetero = draw(st.booleans()) if hetero is None else hetero
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if is_hetero:
        kinds = draw(st.lists(st.sampled_from(kinds_of), min_size=1, max_size=5, unique=True))
        first = kinds[0][0], kinds[0][2]
        sizes = {name: draw(st.integers(least * (name in first), 9)) for name in NODE_TYPES}
    else:
        kinds, sizes = [EDGE], {NODE: draw(st.integers(least, 9))}
    edges = {
        kind: _edges(rng, sizes[kind[0]], sizes[kind[2]], draw(st.integers(0, 24)))
        for kind in kinds
    }
    dtypes = {
        owner: (draw(st.sampled_from(SUPPORTED)), draw(st.sampled_from(SHAPES)))
        for owner in (*sizes, *kinds)
    }
    weight, time = draw(st.sampled_from(WEIGHTS)), draw(st.sampled_from(TIMES))
    # The first edge type has all; others may lack what is sampled by.
    lacking = {kind for kind in kinds[1:] if draw(st.booleans())}
    timeless = {name for name in list(sizes)[1:] if draw(st.booleans())}
    return build(rng, sizes, edges, dtypes, (weight, time), (lacking, timeless))


def _edges(rng: np.random.Generator, sources: int, destinations: int, count: int) -> Array:
    if not sources or not destinations:
        return np.empty((2, 0), np.int64)
    ends = np.stack([rng.integers(0, sources, count), rng.integers(0, destinations, count)])
    # Edges that come sorted by destination are stored without their ids.
    return ends if rng.random() < 2 / 3 else ends[:, np.argsort(ends[1], kind="stable")]


def build(
    rng: np.random.Generator,
    sizes: dict[str, int],
    edges: dict[EdgeType, Array],
    dtypes: Mapping[Owner, tuple[str, tuple[int, ...]]],
    criteria: tuple[str, str],
    lacking: tuple[set[EdgeType], set[str]],
) -> World:
    """Puts a world together: bfloat16 has no other way in than arrays of a graph."""
    weight, time = criteria
    plain = Graph.from_coo(
        edges if any(sizes) else edges[EDGE], sizes if any(sizes) else sizes[NODE]
    )
    world = World(plain, sizes, edges)
    arrays = dict(plain.arrays)
    for name, size in sizes.items():
        dtype, shape = dtypes[name]
        given = {"x": (dtype, array_of(rng, dtype, (size, *shape)))}
        if name not in lacking[1]:
            times = rng.integers(0, MOST_TIME, size).astype(time)
            given["time"] = (time, times)
        world.nodes_have[name] = {word: array for word, (_, array) in given.items()}
        arrays |= _shared("node", (name,), given)
    for kind, index in edges.items():
        dtype, shape = dtypes[kind]
        count = index.shape[1]
        given = {"a": (dtype, array_of(rng, dtype, (count, *shape)))}
        if kind not in lacking[0]:
            given["w"] = (weight, weights_of(rng, weight, count))
            given["when"] = (time, rng.integers(0, MOST_TIME, count).astype(time))
        world.edges_have[kind] = {word: array for word, (_, array) in given.items()}
        arrays |= _shared("edge", kind, given)
    world.graph = Graph(plain.schema, arrays)
    return world


def _shared(
    group: Any, owner: tuple[str, ...], given: Mapping[str, tuple[str, Array]]
) -> dict[ArrayKey, SharedArray]:
    kind: Any = owner if len(owner) == 3 else owner[0]
    return {
        ArrayKey(group, kind, name): SharedArray.from_array(array, dtype)
        for name, (dtype, array) in given.items()
    }


@dataclass
class Inputs:
    """What a channel is fed with, in one batch or several."""

    ids: Array
    node_type: str = NODE
    edge_type: EdgeType | None = None
    columns: dict[str, Array] = field(default_factory=dict)
    tables: dict[str, Array] = field(default_factory=dict)
    batch_size: int = 0
    seed: int = 0

    @property
    def count(self) -> int:
        return int(self.ids.shape[-1])

    def feed(self, world: World) -> Feed:
        return Feed(
            num_inputs=self.count,
            batch_size=self.batch_size or max(self.count, 1),
            node_type=self.node_type if world.is_hetero and self.edge_type is None else None,
            edge_type=self.edge_type,
            seed=self.seed,
        )

    @property
    def given(self) -> ChannelInputs:
        return ChannelInputs(self.ids, self.columns, self.tables)


@st.composite
def seeds_in(draw: st.DrawFn, world: World, name: str | None = None, most: int = 6) -> Inputs:
    """Seeds of a type that has nodes, or of the one named: in any order, any of them twice."""
    there = [kind for kind, size in world.sizes.items() if size and name in (None, kind)]
    if not there:
        return Inputs(np.empty(0, np.int64), name or next(iter(world.sizes)))
    of = draw(st.sampled_from(there))
    most = draw(st.sampled_from([1, most, 3 * most]))
    ids = draw(st.lists(st.integers(0, world.sizes[of] - 1), min_size=1, max_size=most))
    return Inputs(np.array(ids, np.int64), of, seed=draw(st.integers(0, 3)))


def maker_of(world: World, spec: BuiltInSpec, inputs: Inputs) -> BatchMaker:
    """A station that makes these batches, of a spec that was looked at first."""
    check(spec, world.graph)
    feed = inputs.feed(world)
    return maker_for(world.graph, spec, feed, inputs.ids, inputs.columns, inputs.tables)


def batch(
    world: World,
    spec: BuiltInSpec,
    inputs: Inputs,
    *,
    epoch: int = 0,
    index: int = 0,
    room: int | None = None,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Facts and arrays of a batch, in a slot of the size that a channel has, or in `room` bytes."""
    maker = maker_of(world, spec, inputs)
    if room is None:
        room = slot_bytes_for(spec, world.graph, inputs.feed(world))
    written, arrays = made(maker, epoch, index, room)
    return written.facts, arrays


def homogeneous(num_nodes: int, index: Array, weight: str = "float32") -> World:
    """A graph without types, with these edges and everything else."""
    dtypes: Any = {NODE: ("float32", (2,)), EDGE: ("int8", ())}
    rng = np.random.default_rng(0)
    return build(rng, {NODE: num_nodes}, {EDGE: index}, dtypes, (weight, "int64"), (set(), set()))


def ring() -> World:
    """Four nodes, each leading to the next."""
    return homogeneous(4, np.array([[0, 1, 2, 3], [1, 2, 3, 0]]))


def hub(degree: int, weight: str = "float32") -> World:
    """Node 0, to which all others lead: of many neighbours any draw takes few."""
    index = np.stack([np.arange(degree) + 1, np.zeros(degree, np.int64)])
    return homogeneous(degree + 1, index, weight)
