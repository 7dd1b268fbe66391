"""Specs: what to sample, as plain data that goes over the wire and that any process can act on.

A spec, a `Feed` (which inputs, in which order) and a graph determine everything that a batch
depends on but its epoch and index. This module knows nothing about processes. The meaning of a spec
is in its kind, a class of `sampling.kinds`, which the spec's class names. A new kind is a class
here, in the union `BuiltInSpec`, and a module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from penstock.graph.handles import ArrayHandle
from penstock.graph.schema import EdgeType
from penstock.options import BatchOptions

Direction: TypeAlias = Literal["in", "out"]
SubgraphType: TypeAlias = Literal["directional", "bidirectional", "induced"]


class SamplingSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all specs.

    `kind` names the class that acts on it, as "module:Class" in `penstock.sampling`. It is text
    because the class is imported at first use: a worker that samples neighbourhoods does not wait
    for other kinds. `expected` describes fields in errors, where the description of a field of this
    name in other specs does not fit.
    """

    kind: ClassVar[str]
    expected: ClassVar[Mapping[str, str]] = {}


class WithAttributes(SamplingSpec, frozen=True, kw_only=True):
    """Attributes of the nodes and edges of a batch, by name; None takes all that the graph has."""

    node_attributes: tuple[str, ...] | None = None
    edge_attributes: tuple[str, ...] | None = None


class Taking(WithAttributes, frozen=True, kw_only=True):
    """What is added to the nodes and edges of a batch, for any kind."""

    with_edge_ids: bool = True


class NeighborSpec(Taking, frozen=True, kw_only=True, tag="neighbor"):
    """k-hop neighbourhoods, with the options of `NeighborSampler`.

    `num_neighbors` has one fan-out per hop, for all edge types; or `by_type` has a list for each.
    `weight_attr` names an edge attribute to draw by; `time_attr` an attribute of nodes or of edges:
    then nothing later than the seed is taken.
    """

    kind: ClassVar[str] = "neighbor:NeighborKind"

    num_neighbors: tuple[int, ...] = ()
    by_type: tuple[tuple[EdgeType, tuple[int, ...]], ...] | None = None
    replace: bool = False
    direction: Direction = "in"
    node_caps: tuple[int, ...] = ()
    disjoint: bool = False
    subgraph_type: SubgraphType = "directional"
    weight_attr: str | None = None
    time_attr: str | None = None
    temporal_strategy: Literal["uniform", "last"] = "uniform"


class LinkSpec(SamplingSpec, frozen=True, kw_only=True, tag="link"):
    """Edges, their negatives, and the neighbourhoods of all ends.

    `negatives`: none; "binary", `amount` (a ratio) times as many pairs that are no edges; or
    "triplet", `amount` destinations for each edge that are no neighbours. `strict` checks negatives
    against the whole graph. Weights of sources and destinations come with the feed.
    """

    kind: ClassVar[str] = "links:LinkKind"

    neighbors: NeighborSpec
    negatives: Literal["none", "binary", "triplet"] = "none"
    amount: float = 1.0
    strict: bool = False


class SubgraphSpec(Taking, frozen=True, kw_only=True, tag="subgraph"):
    """All edges among the seeds and the nodes within `num_hops` of them (0: the seeds alone)."""

    kind: ClassVar[str] = "subgraph:SubgraphKind"

    num_hops: int = 0
    direction: Direction = "in"


class ABLPSpec(SamplingSpec, frozen=True, kw_only=True, tag="ablp"):
    """Anchors with positive and negative labels, and the neighbourhoods of all of these.

    `supervision` has the edge types to predict; `positive` and `negative` the edge types that their
    labels are read from (found by name if None; not needed if labels come in a feed's padded
    arrays). Label edge types are never sampled. `max_labels` keeps the first labels of each anchor.
    """

    kind: ClassVar[str] = "ablp:ABLPKind"

    neighbors: NeighborSpec
    supervision: tuple[EdgeType, ...]
    positive: tuple[EdgeType | None, ...] | None = None
    negative: tuple[EdgeType | None, ...] | None = None
    max_labels: int | None = None


class PPRSpec(Taking, frozen=True, kw_only=True, tag="ppr"):
    """The nodes most relevant to each seed, by personalised PageRank (forward push).

    Each of `channels` is (name, the edge types it follows, its share of the nodes).
    """

    kind: ClassVar[str] = "ppr:PPRKind"

    alpha: float = 0.5
    eps: float = 1e-4
    max_ppr_nodes: int = 50
    num_neighbors_per_hop: int = 1000
    max_fetch_iterations: int | None = None
    residual_topup: bool = True
    channels: tuple[tuple[str, tuple[EdgeType, ...], float], ...] = ()
    include_sampled_edges: bool = False
    direction: Direction = "in"


class WalkSpec(Taking, frozen=True, kw_only=True, tag="walk"):
    """Random walks from each seed: uniform, or node2vec's with `p` and `q` other than 1.

    For a heterogeneous graph `path` has the edge types to follow, step by step.
    """

    kind: ClassVar[str] = "walks:WalkKind"

    walk_length: int = 20
    walks_per_node: int = 1
    p: float = 1.0
    q: float = 1.0
    path: tuple[EdgeType, ...] | None = None
    direction: Direction = "out"


class HGTSpec(Taking, frozen=True, kw_only=True, tag="hgt"):
    """Layers with a budget for each node type: as many nodes of every type, however rare it is.

    `num_samples` has one number per layer, for all node types; or `by_type` has a list for each.
    """

    kind: ClassVar[str] = "hgt:HGTKind"
    expected: ClassVar[Mapping[str, str]] = {
        "by_type": "numbers for each node type, such as {'user': (512, 256)}"
    }

    num_samples: tuple[int, ...] = ()
    by_type: tuple[tuple[str, tuple[int, ...]], ...] | None = None


class CustomSpec(WithAttributes, frozen=True, kw_only=True, tag="custom"):
    """A user's own sampler, by name: "module:Class", or "/path/to/file.py:Class".

    `options` are passed to the sampler. `input_kind` says what its seeds are: nodes, or links [2,
    n]. `columns` names what must come with the inputs, a row for each, and is passed to it.
    Attributes are gathered for the `n_id` and the `e_id` that it returns; by default none. All of
    this is known without running the user's code.
    """

    kind: ClassVar[str] = "custom:CustomKind"

    sampler: str
    options: dict[str, Any] = {}
    input_kind: Literal["node", "link", "subgraph"] = "node"
    columns: tuple[str, ...] = ()
    node_attributes: tuple[str, ...] | None = ()
    edge_attributes: tuple[str, ...] | None = ()


BuiltInSpec: TypeAlias = (
    NeighborSpec | LinkSpec | SubgraphSpec | ABLPSpec | PPRSpec | WalkSpec | HGTSpec
)
Spec: TypeAlias = BuiltInSpec | CustomSpec


class Feed(BatchOptions, frozen=True, kw_only=True):
    """The inputs of an epoch and how they are divided: batch i has the same seeds everywhere.

    `ids` are the inputs: nodes of a type [n], or edges of a type [2, n], sources above destinations
    (None: all that exist, in order). With `shuffle` they are taken in the order of
    `permutation(seed, epoch, num_inputs)`. `columns` are arrays with a row for each input (times,
    labels), by name; `tables` belong to the feed as a whole (weights of nodes). All of them are in
    one segment.
    """

    num_inputs: int
    node_type: str | None = None
    edge_type: EdgeType | None = None
    ids: ArrayHandle | None = None
    columns: dict[str, ArrayHandle] = msgspec.field(default_factory=dict)
    tables: dict[str, ArrayHandle] = msgspec.field(default_factory=dict)
