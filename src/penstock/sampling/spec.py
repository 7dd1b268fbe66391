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
Exclude: TypeAlias = Literal["self", "reverse"]


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

    Attributes:
        num_neighbors: One fan-out per hop (-1: all), for all edge types but those of labels.
        by_type: Instead of `num_neighbors`, such a list for each edge type. Types of labels may be
            left out, and are not walked then.
        replace: Whether a neighbour may be taken more than once.
        direction: Follow in-edges ("in") or out-edges ("out").
        node_caps: How many nodes of a type each hop may add, at most. Empty: no limit.
        disjoint: Whether each seed has a tree of its own, which shares no node with the others.
        subgraph_type: Which edges come: those sampled ("directional"), their reverse as well
            ("bidirectional"), or all among the sampled nodes ("induced").
        weight_attr: An attribute of edges to draw by.
        time_attr: An attribute of nodes or of edges: nothing later than the seed is taken.
        temporal_strategy: Take any edge that is not too late ("uniform"), or the latest ("last").
        node_attributes: The attributes of nodes that come with a batch. None: all of the graph.
        edge_attributes: The attributes of edges that come with a batch. None: all of the graph.
        with_edge_ids: Whether the ids of edges come with a batch, as `e_id`.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3)
        >>> spec = ps.NeighborSpec(num_neighbors=(2,))
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        ...     backend.register_input("mine", [0], batch_size=3)
        ...     backend.start_new_epoch_sampling("mine", epoch=0)
        ...     batch = backend.next_batch("mine")
        >>> batch["n_id"].tolist(), batch["edge_index"].tolist()
        ([0, 2], [[1], [0]])
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

    Attributes:
        neighbors: How the neighbourhoods are sampled.
        negatives: "none"; "binary": pairs that are no edges; or "triplet": destinations for each
            edge that are no neighbours. Weights of sources and destinations come with the inputs.
        amount: How many negatives for each edge: a ratio if "binary", a number if "triplet".
        strict: Whether negatives are checked against the whole graph.
        exclude: Which edges are not sampled, because they are to be predicted: between the ends of
            the batch's links ("self"), and their reverses ("reverse"). If disjoint, those of a
            tree's own link. None: all edges may be sampled.
        rev_edge_types: The edge type that has the reverses of the inputs' type, as a tuple. None:
            the one named "rev_…" with swapped ends.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3)
        >>> spec = ps.LinkSpec(neighbors=ps.NeighborSpec(num_neighbors=(2,)))
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        ...     backend.register_input("mine", None, batch_size=3)
        ...     backend.start_new_epoch_sampling("mine", epoch=0)
        ...     batch = backend.next_batch("mine")
        >>> batch["edge_label_index"].tolist()
        [[0, 1, 2], [1, 2, 0]]
    """

    kind: ClassVar[str] = "links:LinkKind"

    neighbors: NeighborSpec
    negatives: Literal["none", "binary", "triplet"] = "none"
    amount: float = 1.0
    strict: bool = False
    exclude: Exclude | None = None
    rev_edge_types: tuple[EdgeType, ...] | None = None


class SubgraphSpec(Taking, frozen=True, kw_only=True, tag="subgraph"):
    """All edges among the seeds and the nodes within `num_hops` of them.

    Attributes:
        num_hops: How far from the seeds. 0: the seeds alone.
        direction: Follow in-edges ("in") or out-edges ("out").
        walk_labels: Whether edges of label types count as edges.
        node_attributes: The attributes of nodes that come with a batch. None: all of the graph.
        edge_attributes: The attributes of edges that come with a batch. None: all of the graph.
        with_edge_ids: Whether the ids of edges come with a batch, as `e_id`.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3)
        >>> spec = ps.SubgraphSpec(num_hops=1)
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        ...     backend.register_input("mine", [0], batch_size=3)
        ...     backend.start_new_epoch_sampling("mine", epoch=0)
        ...     batch = backend.next_batch("mine")
        >>> batch["n_id"].tolist(), batch["e_id"].tolist()
        ([0, 2], [2])
    """

    kind: ClassVar[str] = "subgraph:SubgraphKind"

    num_hops: int = 0
    direction: Direction = "in"
    walk_labels: bool = False


class ABLPSpec(SamplingSpec, frozen=True, kw_only=True, tag="ablp"):
    """Anchors with positive and negative labels, and the neighbourhoods of all of these.

    Edge types that labels are read from are never sampled.

    Attributes:
        neighbors: How the neighbourhoods are sampled: by hops, or by PageRank with a `PPRSpec`.
        supervision: The edge types to predict.
        positive: The edge types that positive labels are read from. None: found by name, with
            "_positive" after the relation. Not needed if labels come with the inputs.
        negative: Likewise, with "_negative".
        max_labels: How many labels of each anchor are kept, the first ones. None: all.
        exclude: Which edges are not sampled, because they are to be predicted: supervision edges
            from anchors to their positive labels ("self"), and their reverses ("reverse"). None:
            all edges but those of label types may be sampled.
        rev_edge_types: For each supervision edge type, the one that has its reverses. None: the one
            named "rev_…" with swapped ends.

    Examples:
        >>> import penstock as ps
        >>> buys, liked = ("user", "buys", "item"), ("user", "buys_positive", "item")
        >>> edges = {buys: [[0, 1], [1, 0]], liked: [[0, 1], [0, 1]]}
        >>> graph = ps.Graph.from_coo(edges, num_nodes={"user": 2, "item": 2})
        >>> spec = ps.ABLPSpec(neighbors=ps.NeighborSpec(num_neighbors=(2,)), supervision=(buys,))
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        ...     backend.register_input("mine", ("user", None), batch_size=2)
        ...     backend.start_new_epoch_sampling("mine", epoch=0)
        ...     batch = backend.next_batch("mine")
        >>> batch["user,buys,item/y_positive"].tolist()
        [[0, 1], [0, 1]]
    """

    kind: ClassVar[str] = "ablp:ABLPKind"

    neighbors: NeighborSpec | PPRSpec
    supervision: tuple[EdgeType, ...]
    positive: tuple[EdgeType | None, ...] | None = None
    negative: tuple[EdgeType | None, ...] | None = None
    max_labels: int | None = None
    exclude: Exclude | None = "self"
    rev_edge_types: tuple[EdgeType | None, ...] | None = None


class PPRSpec(Taking, frozen=True, kw_only=True, tag="ppr"):
    """The nodes most relevant to each seed, by personalised PageRank (forward push).

    Attributes:
        alpha: The probability that a walk stops at each step: higher keeps closer to the seed.
        eps: Residuals below `alpha * eps * degree` are not pushed: smaller is finer and slower.
        max_ppr_nodes: How many nodes of each type a seed gets, at most.
        num_neighbors_per_hop: How many neighbours of a node are looked at for each edge type, at
            most.
        max_fetch_iterations: How many rounds may look at nodes not looked at before. None: no
            limit.
        residual_topup: Whether residuals count as well, so that nodes without a score can fill
            places that are left.
        channels: Several walks: (name, the edge types it follows, its share of the nodes) each.
            Empty: one walk along all edge types but those of labels.
        include_sampled_edges: Whether to add the edges of the graph that were looked at.
        direction: Follow in-edges ("in") or out-edges ("out").
        node_attributes: The attributes of nodes that come with a batch. None: all of the graph.
        edge_attributes: The attributes of edges that come with a batch. None: all of the graph.
        with_edge_ids: Whether the ids of edges come with a batch, as `e_id`.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3)
        >>> spec = ps.PPRSpec(max_ppr_nodes=2)
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        ...     backend.register_input("mine", [0], batch_size=3)
        ...     backend.start_new_epoch_sampling("mine", epoch=0)
        ...     batch = backend.next_batch("mine")
        >>> batch["n_id"].tolist(), batch["edge_index"].tolist()
        ([0, 2], [[0, 0], [0, 1]])
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

    Attributes:
        walk_length: How many steps a walk has.
        walks_per_node: How many walks start from each seed.
        p: node2vec's return parameter: a large one makes going back unlikely.
        q: node2vec's in-out parameter: a large one keeps the walk near its start.
        path: For a heterogeneous graph, the edge types to follow, step by step.
        direction: Follow in-edges ("in") or out-edges ("out").
        node_attributes: The attributes of nodes that come with a batch. None: all of the graph.
        edge_attributes: None, or empty: `walk_edges` has the ids to look attributes up by.
        with_edge_ids: Whether the edge id of each step comes with a batch, as `walk_edges`.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3)
        >>> spec = ps.WalkSpec(walk_length=3)
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        ...     backend.register_input("mine", [0], batch_size=3)
        ...     backend.start_new_epoch_sampling("mine", epoch=0)
        ...     batch = backend.next_batch("mine")
        >>> batch["walk"].tolist()
        [[0, 1, 2, 0]]
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

    Attributes:
        num_samples: One number per layer, for all node types.
        by_type: Instead of `num_samples`, such a list for each node type.
        walk_labels: Whether edges of label types count as edges.
        node_attributes: The attributes of nodes that come with a batch. None: all of the graph.
        edge_attributes: The attributes of edges that come with a batch. None: all of the graph.
        with_edge_ids: Whether the ids of edges come with a batch, as `e_id`.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3)
        >>> spec = ps.HGTSpec(num_samples=(2,))
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        ...     backend.register_input("mine", [0], batch_size=3)
        ...     backend.start_new_epoch_sampling("mine", epoch=0)
        ...     batch = backend.next_batch("mine")
        >>> batch["n_id"].tolist(), batch["e_id"].tolist()
        ([0, 2], [2])
    """

    kind: ClassVar[str] = "hgt:HGTKind"
    expected: ClassVar[Mapping[str, str]] = {
        "by_type": "numbers for each node type, such as {'user': (512, 256)}"
    }

    num_samples: tuple[int, ...] = ()
    by_type: tuple[tuple[str, tuple[int, ...]], ...] | None = None
    walk_labels: bool = False


class CustomSpec(WithAttributes, frozen=True, kw_only=True, tag="custom"):
    """A user's own sampler, by name: "module:Class", or "/path/to/file.py:Class".

    All of this is known without running the user's code.

    Attributes:
        sampler: The name of the class.
        options: What the class is made with, beside the graph: numbers, text, lists, mappings, and
            arrays, which come to it read-only, in shared memory.
        input_kind: What its seeds are: nodes ("node", "subgraph"), or links [2, n] ("link").
        columns: What must come with the inputs, a row for each; it is passed to the sampler.
        node_attributes: The attributes that are gathered for the `n_id` that it returns. None: all.
        edge_attributes: The attributes that are gathered for the `e_id` that it returns. None: all.
        arrays: The arrays among the options, in shared memory; set where they are put there.
        from_state: The options are the attributes of an instance, and no arguments: an instance is
            made without a call of its constructor. It gets the graph as its attribute `graph`.

    Examples:
        >>> from pathlib import Path
        >>> import penstock as ps
        >>> _ = Path("loops.py").write_text('''
        ... class Loops:
        ...     def __init__(self, graph, times=1):
        ...         self.times = times
        ...     def sample(self, seeds, *, seed, epoch, index):
        ...         return {"n_id": seeds, "loops": seeds * self.times}
        ... ''')
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3)
        >>> name = f"{Path('loops.py').resolve()}:Loops"
        >>> spec = ps.CustomSpec(sampler=name, options={"times": 3})
        >>> with ps.SharedDistSamplingBackend(graph, spec, num_workers=0) as backend:
        ...     backend.register_input("mine", batch_size=3)
        ...     backend.start_new_epoch_sampling("mine", epoch=0)
        ...     batch = backend.next_batch("mine")
        >>> batch["loops"].tolist()
        [0, 3, 6]
    """

    kind: ClassVar[str] = "custom:CustomKind"

    sampler: str
    options: dict[str, Any] = {}
    input_kind: Literal["node", "link", "subgraph"] = "node"
    columns: tuple[str, ...] = ()
    node_attributes: tuple[str, ...] | None = ()
    edge_attributes: tuple[str, ...] | None = ()
    arrays: tuple[ArrayHandle, ...] = ()
    from_state: bool = False


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
    one segment. If the inputs are in groups of sizes `groups`, one after the other, no batch has
    inputs of two groups (`sampling.inputs.positions_of`).
    """

    num_inputs: int
    node_type: str | None = None
    edge_type: EdgeType | None = None
    ids: ArrayHandle | None = None
    columns: dict[str, ArrayHandle] = msgspec.field(default_factory=dict)
    tables: dict[str, ArrayHandle] = msgspec.field(default_factory=dict)
    groups: tuple[int, ...] = ()
