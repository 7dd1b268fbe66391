"""The kinds of sampling there are: which module acts on which spec.

A kind is loaded when a spec asks for it, so that a worker that samples neighbourhoods does not wait
for the rest. A user's own sampler is none of these: see `sampling.custom`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, assert_never

from penstock.graph import Graph
from penstock.graph.derived import DerivedArrays, keys_of
from penstock.graph.inventory import key_text, repeated
from penstock.kernels.arrays import check_integer
from penstock.sampling.buffered import BufferedBatches
from penstock.sampling.collate import NeighborBatches
from penstock.sampling.names import Owner
from penstock.sampling.neighbor import check_neighbor, cost_neighbor, needs_neighbor
from penstock.sampling.normalize import settled
from penstock.sampling.seeds import NodeSeedBuilder, SeedBuilder
from penstock.sampling.shape import BatchShape
from penstock.sampling.spec import (
    ABLPSpec,
    BuiltInSpec,
    HGTSpec,
    LinkSpec,
    NeighborSpec,
    PPRSpec,
    Spec,
    SubgraphSpec,
    WalkSpec,
)

Batches = NeighborBatches | BufferedBatches
# What one uniform draw takes, with the row of attributes that comes of it.
_SECONDS_A_DRAW: Final = 5e-8
# A guess must not keep a channel waiting for long.
_MOST_SECONDS: Final = 1.0
# Every hop is looked at by whoever reserves memory, which is the hub: for each edge type, and once
# for every channel. No use has so many.
_MOST_HOPS: Final = 2**10
_MOST_DRAWS: Final = 2**24


class InputKind(Enum):
    """What an input is, on which sampling depends."""

    NODE = "node"
    LINK = "link"
    SUBGRAPH = "subgraph"

    @classmethod
    def named(cls, kind: str | InputKind) -> InputKind:
        """The kind that is meant."""
        name = kind.value if isinstance(kind, cls) else str(kind).lower()
        if name not in (there := [member.value for member in cls]):
            raise ValueError(f"input_kind is {kind!r}; expected one of {', '.join(there)}")
        return cls(name)

    @classmethod
    def of(cls, spec: Spec) -> InputKind:
        """What a spec samples from."""
        match spec:
            case LinkSpec():
                return cls.LINK
            case SubgraphSpec():
                return cls.SUBGRAPH
            case _:
                return cls.NODE


def batches_of(spec: BuiltInSpec, graph: Graph) -> Batches:
    """What makes the batches of a spec. ValueError if it makes no sense for this graph."""
    match spec:
        case NeighborSpec():
            return _hops(graph, spec, NodeSeedBuilder(graph, spec))
        case LinkSpec():
            from penstock.sampling.links import LinkSeedBuilder

            return _hops(graph, spec.neighbors, LinkSeedBuilder(graph, spec))
        case ABLPSpec():
            from penstock.sampling.ablp import AnchorSeedBuilder, walked

            return _hops(graph, walked(spec, graph), AnchorSeedBuilder(graph, spec))
        case SubgraphSpec():
            from penstock.sampling.subgraph import SubgraphSampler

            return BufferedBatches(graph, spec, SubgraphSampler(graph, spec))
        case PPRSpec():
            from penstock.sampling.ppr import PPRSampler

            return BufferedBatches(graph, spec, PPRSampler(graph, spec))
        case WalkSpec():
            from penstock.sampling.walks import WalkSampler

            return BufferedBatches(graph, spec, WalkSampler(graph, spec))
        case HGTSpec():
            from penstock.sampling.hgt import HGTSampler

            return BufferedBatches(graph, spec, HGTSampler(graph, spec))
        case _:
            assert_never(spec)


def _hops(graph: Graph, spec: NeighborSpec, seed_builder: SeedBuilder) -> Batches:
    if spec.subgraph_type == "directional":
        return NeighborBatches(graph, spec, seed_builder)
    from penstock.sampling.induced import InducedSampler

    return BufferedBatches(graph, spec, InducedSampler(graph, spec, seed_builder))


def likely_bytes(spec: BuiltInSpec, graph: Graph, inputs: int, of: Owner) -> int:
    """Room that will do for any batch of so many inputs, or for nearly any. Looks at sizes only."""
    match spec:
        case NeighborSpec(subgraph_type="directional"):
            shape = BatchShape(graph, spec)
        case LinkSpec(neighbors=NeighborSpec(subgraph_type="directional") as neighbors):
            from penstock.sampling.links import LinkSeedBuilder

            shape = BatchShape(graph, neighbors, LinkSeedBuilder(graph, spec))
        case ABLPSpec(neighbors=NeighborSpec(subgraph_type="directional")):
            from penstock.sampling.ablp import AnchorSeedBuilder, walked

            shape = BatchShape(graph, walked(spec, graph), AnchorSeedBuilder(graph, spec))
        case _:
            batches = batches_of(spec, graph)
            assert isinstance(batches, BufferedBatches)
            return batches.likely_bytes(inputs, of)
    return shape.likely_bytes(inputs, of)


def seconds_of(spec: Spec, graph: Graph, inputs: int, of: Owner) -> float:
    """What a batch of so many inputs is likely to cost, roughly; 0 where nobody knows.

    Good enough for the first one: after that, what batches have cost is known.
    """
    # In this order, which also holds against what is no number.
    return min(_MOST_SECONDS, _draws_of(spec, graph, inputs, of) * _SECONDS_A_DRAW)


def _draws_of(spec: Spec, graph: Graph, inputs: int, of: Owner) -> float:
    match spec:
        case NeighborSpec():
            return cost_neighbor(spec, graph, inputs)
        case LinkSpec():
            return cost_neighbor(spec.neighbors, graph, 2 * inputs * (1 + bool(spec.amount)))
        case ABLPSpec():
            from penstock.sampling.ablp import cost_ablp

            return cost_ablp(spec, graph, inputs)
        case SubgraphSpec():
            from penstock.sampling.subgraph import cost_subgraph

            return cost_subgraph(spec, graph, inputs, of)
        case PPRSpec():
            from penstock.sampling.ppr import cost_ppr

            return cost_ppr(spec, graph, inputs)
        case WalkSpec():
            from penstock.sampling.walks import cost_walk

            return cost_walk(spec, graph, inputs, of)
        case HGTSpec():
            from penstock.sampling.hgt import cost_hgt

            return cost_hgt(spec, graph, inputs, of)
        case _:
            return 0.0


def needs_of(spec: Spec, graph: Graph) -> Sequence[DerivedArrays]:
    """What must be made of a graph, once, before a spec can be acted on."""
    match spec:
        case NeighborSpec():
            return needs_neighbor(spec, graph)
        case LinkSpec():
            from penstock.sampling.links import needs_link

            return [*needs_neighbor(spec.neighbors, graph), *needs_link(spec, graph)]
        case ABLPSpec():
            from penstock.sampling.ablp import needs_ablp, walked

            return [*needs_neighbor(walked(spec, graph), graph), *needs_ablp(spec, graph)]
        case SubgraphSpec():
            from penstock.sampling.subgraph import needs_subgraph

            return needs_subgraph(spec, graph)
        case PPRSpec():
            from penstock.sampling.ppr import needs_ppr

            return needs_ppr(spec, graph)
        case WalkSpec():
            from penstock.sampling.walks import needs_walk

            return needs_walk(spec, graph)
        case HGTSpec():
            from penstock.sampling.hgt import needs_hgt

            return needs_hgt(spec, graph)
        case _:
            return ()


def prepare(spec: Spec, graph: Graph) -> None:
    """Makes what a spec needs, where it is not there yet."""
    for derived in needs_of(spec, graph):
        graph.derived(derived)


def missing(spec: Spec, graph: Graph) -> list[str]:
    """In words, what a spec needs and nobody has made."""
    keys = keys_of(needs_of(spec, graph))
    return [key_text(key) for key in keys if key not in graph.arrays]


def check(spec: BuiltInSpec, graph: Graph) -> None:
    """ValueError unless this graph can be sampled so: names the type, the hop and the value."""
    spec = settled(spec)
    match spec:
        case NeighborSpec():
            _check_neighbor(spec, graph)
        case LinkSpec():
            from penstock.sampling.links import check_link

            _check_neighbor(spec.neighbors, graph)
            check_link(spec, graph)
        case ABLPSpec():
            from penstock.sampling.ablp import check_ablp, walked

            check_ablp(spec, graph)
            _check_said_once(spec.neighbors)
            _check_neighbor(walked(spec, graph), graph)
        case SubgraphSpec():
            from penstock.sampling.subgraph import check_subgraph

            check_subgraph(spec, graph)
        case PPRSpec():
            from penstock.sampling.ppr import check_ppr

            check_ppr(spec, graph)
        case WalkSpec():
            from penstock.sampling.walks import check_walk

            check_walk(spec, graph)
        case HGTSpec():
            from penstock.sampling.hgt import check_hgt

            check_hgt(spec, graph)
        case _:
            assert_never(spec)


def _check_neighbor(spec: NeighborSpec, graph: Graph) -> None:
    _check_said_once(spec)
    BatchShape(graph, spec)  # complains of fan-outs and attributes that the graph knows nothing of
    _check_extent(spec)
    for hop, cap in enumerate(spec.node_caps):
        check_integer(cap, f"node_caps[{hop}]", -1, 2**63)
    check_neighbor(spec, graph)
    if spec.time_attr is None and spec.temporal_strategy != "uniform":
        raise ValueError(
            f"temporal_strategy is {spec.temporal_strategy!r}, and there is no time to go by: "
            "time_attr is None"
        )
    if spec.subgraph_type != "directional":
        from penstock.sampling.induced import check_whole

        check_whole(spec, graph)


def _check_said_once(spec: NeighborSpec) -> None:
    if spec.by_type is None:
        return
    if spec.num_neighbors:
        raise ValueError("num_neighbors and by_type are both given: one of them says all")
    for kind in repeated(kind for kind, _ in spec.by_type):
        raise ValueError(f"by_type has {kind!r} twice: fan-outs are given once for each edge type")


def _check_extent(spec: NeighborSpec) -> None:
    """There is no end to what can be asked for, but to memory and patience there is."""
    lists = [spec.num_neighbors] if spec.by_type is None else [each for _, each in spec.by_type]
    if (hops := max(map(len, lists), default=0)) > _MOST_HOPS:
        raise ValueError(f"num_neighbors has {hops} hops; expected {_MOST_HOPS} at most")
    if len(spec.node_caps) > hops:
        raise ValueError(f"node_caps has {len(spec.node_caps)} numbers; there are {hops} hops")
    most = max((fanout for fanouts in lists for fanout in fanouts), default=0)
    if spec.replace and most > _MOST_DRAWS:
        raise ValueError(
            f"num_neighbors has a fan-out of {most}; with replacement, which draws so many of any "
            f"node, expected {_MOST_DRAWS} at most"
        )
