"""k-hop neighbourhoods as a kind, and the base of other kinds that sample them.

Those kinds differ in how inputs become seeds (`SeedBuilder`): nodes are seeds; edges have two ends
(`links`); anchors have labels (`ablp`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from penstock.graph import Graph
from penstock.graph.derived import DerivedArrays
from penstock.graph.inventory import repeated
from penstock.graph.schema import EdgeType
from penstock.graph.view import GraphView
from penstock.kernels.arrays import Array, check_integer
from penstock.sampling.batches import Batches
from penstock.sampling.collate import NeighborBatches
from penstock.sampling.columns import check_time_form
from penstock.sampling.criteria import Criteria
from penstock.sampling.khop import fanouts_by_type
from penstock.sampling.kinds import SamplingKind
from penstock.sampling.names import Owner
from penstock.sampling.seeds import NodeSeedBuilder, SeedBuilder
from penstock.sampling.shape import BatchShape, fanouts_of, unnamed_labels
from penstock.sampling.spec import Feed, NeighborSpec, SamplingSpec

# The cost of a draw by weight, or among edges that are not too late, relative to a uniform one.
_WEIGHTED, _TEMPORAL = 3.0, 2.0
# The hub, which reserves memory, computes with every hop, for each edge type and each channel. No
# use has so many.
_MOST_HOPS: Final = 2**10
_MOST_DRAWS: Final = 2**24

_Spec = TypeVar("_Spec", bound=SamplingSpec)


class HopsKind(SamplingKind[_Spec]):
    """Kinds whose batches are the neighbourhoods of seeds made from their inputs."""

    @abstractmethod
    def hops(self, spec: _Spec, graph: GraphView) -> NeighborSpec:
        """Return how neighbourhoods are sampled."""

    @abstractmethod
    def seed_builder(self, spec: _Spec, graph: Graph) -> SeedBuilder:
        """Return what turns inputs into seeds."""

    def needs(self, spec: _Spec, graph: GraphView) -> Sequence[DerivedArrays]:
        """Return the derived arrays by which edges are chosen."""
        return _criteria_of(self.hops(spec, graph), graph).derived_arrays(graph)

    def left_out(self, spec: _Spec, graph: GraphView) -> tuple[EdgeType, ...]:
        """Return the label types that have no fan-outs of their own."""
        return unnamed_labels(self.hops(spec, graph), graph)

    def batches(self, spec: _Spec, graph: Graph) -> Batches:
        """Return batches: directional ones are sampled in place, others are buffered."""
        hops, seed_builder = self.hops(spec, graph), self.seed_builder(spec, graph)
        if hops.subgraph_type == "directional":
            return NeighborBatches(graph, hops, seed_builder)
        from penstock.sampling.buffered import BufferedBatches
        from penstock.sampling.induced import InducedSampler

        return BufferedBatches(graph, hops, InducedSampler(graph, hops, seed_builder))

    def likely_bytes(self, spec: _Spec, graph: Graph, inputs: int, of: Owner) -> int:
        """Return room for nearly any batch; for directional ones without reading the topology."""
        hops = self.hops(spec, graph)
        if hops.subgraph_type != "directional":
            return super().likely_bytes(spec, graph, inputs, of)
        return BatchShape(graph, hops, self.seed_builder(spec, graph)).likely_bytes(inputs, of)


class NeighborKind(HopsKind[NeighborSpec]):
    """Neighbourhoods of nodes."""

    def hops(self, spec: NeighborSpec, graph: GraphView) -> NeighborSpec:
        """Return the spec itself."""
        return spec

    def seed_builder(self, spec: NeighborSpec, graph: Graph) -> SeedBuilder:
        """Return what uses nodes as seeds."""
        return NodeSeedBuilder(graph, spec)

    def columns(self, spec: NeighborSpec) -> tuple[str, ...]:
        """Return the name of a time for each seed."""
        return ("time",)

    def is_disjoint(self, spec: NeighborSpec) -> bool:
        """Return whether seeds have separate trees; with times always, as each has its own time."""
        return spec.disjoint or spec.time_attr is not None

    def check(self, spec: NeighborSpec, graph: GraphView) -> None:
        """Raise `ValueError` unless this graph can be sampled by the spec."""
        check_hops(spec, graph)

    def check_inputs(
        self,
        spec: NeighborSpec,
        graph: GraphView,
        feed: Feed,
        columns: Mapping[str, Array],
        tables: Mapping[str, Array],
    ) -> None:
        """Raise `ValueError` unless seeds have times if and only if the spec restricts by time."""
        check_time_form(columns)
        _check_times(spec, columns, feed.node_type, graph)

    def draws(self, spec: NeighborSpec, graph: GraphView, inputs: int, of: Owner) -> float:
        """Return one draw for each edge that is taken, roughly."""
        return draws_of_hops(spec, graph, inputs)


def draws_of_hops(spec: NeighborSpec, graph: GraphView, seeds: int) -> float:
    """Return the work of the neighbourhoods of so many seeds, in uniform draws, roughly."""
    fanouts = fanouts_by_type(fanouts_of(spec), graph.edge_types)
    degree = graph.num_edges() / max(graph.num_nodes(), 1)
    frontier = total = float(seeds)
    for hop in zip(*fanouts.values(), strict=True):
        taken = sum(degree if fanout < 0 else float(fanout) for fanout in hop) / max(len(hop), 1)
        frontier *= taken if spec.replace else min(taken, degree)
        total += frontier
    return total * (_WEIGHTED if spec.weight_attr else _TEMPORAL if spec.time_attr else 1.0)


def check_hops(spec: NeighborSpec, graph: GraphView) -> None:
    """Raise `ValueError` unless this graph's neighbourhoods can be sampled so. Reads no array."""
    check_said_once(spec)
    # Raises for fan-outs and attributes that do not exist in the graph.
    BatchShape(graph, spec)
    _check_extent(spec)
    for hop, cap in enumerate(spec.node_caps):
        check_integer(cap, f"node_caps[{hop}]", -1, 2**63)
    _criteria_of(spec, graph)
    if spec.time_attr is None and spec.temporal_strategy != "uniform":
        raise ValueError(
            f"temporal_strategy is {spec.temporal_strategy!r}, and there is no time to go by: "
            "time_attr is None"
        )
    if spec.subgraph_type != "directional":
        from penstock.sampling.induced import check_whole

        check_whole(spec, graph)


def check_said_once(spec: NeighborSpec) -> None:
    """Raise `ValueError` for fan-outs that are given in two ways."""
    if spec.by_type is None:
        return
    if spec.num_neighbors:
        raise ValueError("num_neighbors and by_type are both given: one of them says all")
    for kind in repeated(kind for kind, _ in spec.by_type):
        raise ValueError(f"by_type has {kind!r} twice: fan-outs are given once for each edge type")


def _check_extent(spec: NeighborSpec) -> None:
    """Check limits on hops and fan-outs, because memory and time are limited."""
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


def _check_times(
    spec: NeighborSpec, columns: Mapping[str, Array], node_type: str | None, graph: GraphView
) -> None:
    if spec.time_attr is None:
        if "time" in columns:
            raise ValueError(
                "Received conflicting 'input_time' and 'time_attr' arguments: 'input_time' is set "
                "while 'time_attr' is not set. ('input_time' is columns['time'] here.)"
            )
        return
    if "time" not in columns and spec.time_attr not in graph.node_attributes(node_type):
        of = f" of {node_type!r}" if node_type else ""
        raise ValueError(
            f"Seed time needs to be specified: nodes{of} have no {spec.time_attr!r} themselves, "
            "and there is no columns['time']"
        )


def _criteria_of(spec: NeighborSpec, graph: GraphView) -> Criteria:
    return Criteria.of(
        graph, spec.direction, spec.weight_attr, spec.time_attr, spec.temporal_strategy
    )
