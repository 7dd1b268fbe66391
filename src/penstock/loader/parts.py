"""A sampled batch in parts, on its way to PyG's objects: between arrays, outputs and stores.

PyG has two shapes of a batch: what a sampler puts out (`SamplerOutput`), and what a loader makes of
it. Both are made of these parts, and parts of an output that a user has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from penstock.graph import EdgeType
from penstock.graph.schema import EDGE, NODE
from penstock.sampling.names import Owner

# Whose it is, and its name; of a homogeneous batch nobody's in particular.
Place: TypeAlias = tuple[Owner, str]
Hops: TypeAlias = Mapping[Any, list[int]]


class Kind(Enum):
    """What a batch says of its inputs, by PyG's names."""

    NODES = "nodes"
    LINKS = "links"
    TRIPLETS = "triplets"


@dataclass(slots=True, eq=False)
class Parts:
    """By type: ids of nodes, ends and ids of edges (None: unknown), trees, numbers of each hop.

    `said` is all else, by its place: what is None does not belong in a batch.
    """

    nodes: dict[str, Tensor] = field(default_factory=dict)
    ends: dict[EdgeType, Tensor] = field(default_factory=dict)
    edges: dict[EdgeType, Tensor | None] = field(default_factory=dict)
    trees: dict[str, Tensor] | None = None
    node_hops: Hops | None = None
    edge_hops: Hops | None = None
    said: dict[Place, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wording:
    """Where a kind of batch says what of its inputs, which are of type `of`."""

    kind: Kind
    of: Owner

    @property
    def metadata(self) -> list[tuple[Place, ...]]:
        """The places of what PyG's samplers hand on as `metadata`, in that order."""
        of = self.of
        source, destination = (of[0], of[-1]) if any(of) else (NODE, NODE)
        match self.kind:
            case Kind.NODES:
                return [((of, "input_id"),), ((of, "seed_time"),)]
            case Kind.LINKS:
                names = ("input_id", "edge_label_index", "edge_label", "edge_label_time")
                return [((of, name),) for name in names]
            case Kind.TRIPLETS:
                return [
                    ((of, "input_id"),),
                    ((source, "src_index"),),
                    ((destination, "dst_pos_index"),),
                    ((destination, "dst_neg_index"),),
                    ((source, "seed_time"), (destination, "seed_time")),
                ]

    def complete(self, said: dict[Place, Any]) -> dict[Place, Any]:
        """With None for all that could be said and is not, so that nothing else is taken for it."""
        said = dict.fromkeys(place for places in self.metadata for place in places) | said
        if self.kind is Kind.NODES and said[self.of, "input_id"] is not None:
            said[self.of, "batch_size"] = len(said[self.of, "input_id"])
        if self.kind is Kind.TRIPLETS:
            said |= {(self.of, "edge_label_index"): None, (self.of, "edge_label_time"): None}
        return said


def output_of(parts: Parts, wording: Wording, *, is_hetero: bool) -> Any:
    """As a sampler of PyG's would put it out."""
    said = wording.complete(parts.said)
    metadata = tuple(said[places[0]] for places in wording.metadata)
    if is_hetero:
        return HeteroSamplerOutput(
            node=dict(parts.nodes),
            row={kind: ends[0] for kind, ends in parts.ends.items()},
            col={kind: ends[1] for kind, ends in parts.ends.items()},
            edge=dict(parts.edges),
            batch=parts.trees,
            num_sampled_nodes=parts.node_hops,
            num_sampled_edges=parts.edge_hops,
            metadata=metadata,
        )
    return SamplerOutput(
        node=parts.nodes[NODE],
        row=parts.ends[EDGE][0],
        col=parts.ends[EDGE][1],
        edge=parts.edges.get(EDGE),
        batch=None if parts.trees is None else parts.trees[NODE],
        num_sampled_nodes=None if parts.node_hops is None else parts.node_hops[NODE],
        num_sampled_edges=None if parts.edge_hops is None else parts.edge_hops[EDGE],
        metadata=metadata,
    )


def parts_of(out: Any, wording: Wording) -> Parts:
    """The parts of what a sampler put out, and a user may have changed."""
    if isinstance(out, HeteroSamplerOutput):
        parts = Parts(
            dict(out.node),
            {kind: torch.stack([out.row[kind], out.col[kind]]) for kind in out.row},
            dict(out.edge or {}),
            out.batch,
            out.num_sampled_nodes,
            out.num_sampled_edges,
        )
    elif isinstance(out, SamplerOutput):
        parts = Parts(
            {NODE: out.node},
            {EDGE: torch.stack([out.row, out.col])},
            {EDGE: out.edge},
            None if out.batch is None else {NODE: out.batch},
            None if out.num_sampled_nodes is None else {NODE: out.num_sampled_nodes},
            None if out.num_sampled_edges is None else {EDGE: out.num_sampled_edges},
        )
    else:
        raise TypeError(f"found invalid type: '{type(out)}'; expected what a sampler puts out")
    for places, value in zip(wording.metadata, out.metadata, strict=True):
        parts.said |= dict.fromkeys(places, value)
    return parts
