"""The shape of neighbour batches: which arrays they have, and how many bytes these take.

Computed from a graph and a spec alone, before anything is sampled. Only sizes are read, so that
whoever reserves memory can ask. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from penstock.graph import EdgeType
from penstock.graph.layout import ALIGNMENT, layout
from penstock.graph.view import GraphView
from penstock.sampling.attributes import columns_of
from penstock.sampling.bounds import Hops, Reach, Sizes
from penstock.sampling.khop import fanouts_by_type
from penstock.sampling.labels import label_edge_types
from penstock.sampling.names import Owner
from penstock.sampling.seeds import IDS, ArraySpec, NodeSeedBuilder, SeedBuilder
from penstock.sampling.spec import NeighborSpec


class BatchShape:
    """The arrays of every batch of a spec.

    Edge attributes are found by edge ids, so edge ids are included with them, wanted or not.
    """

    def __init__(
        self, graph: GraphView, spec: NeighborSpec, seed_builder: SeedBuilder | None = None
    ) -> None:
        self.node_types = graph.node_types
        self.edge_types = graph.edge_types
        self.seed_builder = NodeSeedBuilder(graph, spec) if seed_builder is None else seed_builder
        # With times each seed has its own tree, because each has its own time.
        self.disjoint = spec.disjoint or spec.time_attr is not None
        own = self.seed_builder.own | ({"batch"} if self.disjoint else set())
        self.node_columns, self.edge_columns = columns_of(graph, spec, own)
        self.with_edge_ids = spec.with_edge_ids or bool(self.edge_columns)
        self._hops = hops_of(graph, spec)

    def likely_bytes(self, inputs: int, of: Owner = "") -> int:
        """Return room for any batch of so many inputs of a type, or for nearly any."""
        bound = self.bound(self.seed_builder.most_seeds(inputs, of))
        return self.nbytes(bound, self.seed_builder.most_arrays(inputs, of))

    def bound(self, seeds: Sequence[int]) -> Sizes:
        """Return sizes that are enough for any batch of so many seeds of each type."""
        return self._hops.bound(seeds).with_spare()

    def nbytes(self, sizes: Sizes, others: Iterable[ArraySpec]) -> int:
        """Return the bytes of a batch whose lists have these sizes, with its other arrays."""
        return layout(self._arrays(sizes, others)).nbytes

    def divided(self, room: int, likely: Sizes, others: Sequence[ArraySpec]) -> Sizes:
        """Divide `room` bytes in proportion to `likely` sizes."""
        nothing = likely.scaled(0)
        least = self.nbytes(nothing, others)
        # Alignment may cost each array some bytes.
        lost = ALIGNMENT * sum(1 for _ in self._arrays(nothing, others))
        factor = (room - least - lost) / max(self.nbytes(likely, others) - least, 1)
        return likely.scaled(max(factor, 0.0))

    def _arrays(self, sizes: Sizes, others: Iterable[ArraySpec]) -> Iterator[ArraySpec]:
        """Yield dtype and shape of all arrays, in the order they are written."""
        for count in sizes.nodes:
            yield IDS, (count,)
            if self.disjoint:
                yield IDS, (count,)
        for count in sizes.edges:
            yield IDS, (2, count)
            if self.with_edge_ids:
                yield IDS, (count,)
        yield from others
        for column in self.node_columns:
            yield column.dtype, column.shape(sizes.nodes[column.owner])
        for column in self.edge_columns:
            yield column.dtype, column.shape(sizes.edges[column.owner])


def fanouts_of(spec: NeighborSpec) -> Sequence[int] | Mapping[EdgeType, Sequence[int]]:
    """Return the fan-outs in the form that `NeighborSampler` takes."""
    return spec.num_neighbors if spec.by_type is None else dict(spec.by_type)


def unnamed_labels(spec: NeighborSpec, graph: GraphView) -> tuple[EdgeType, ...]:
    """Return the label types that the spec gives no fan-outs, and so are not walked."""
    named = dict(spec.by_type or ())
    return tuple(kind for kind in label_edge_types(graph.edge_types) if kind not in named)


def hops_of(graph: GraphView, spec: NeighborSpec) -> Hops:
    """Return what the size of a batch depends on."""
    numbers = {name: number for number, name in enumerate(graph.node_types)}
    fanouts = fanouts_by_type(fanouts_of(spec), graph.edge_types)
    expands, finds = (2, 0) if spec.direction == "in" else (0, 2)
    reaches = tuple(
        Reach(numbers[kind[expands]], numbers[kind[finds]], graph.num_edges(kind), fanouts[kind])
        for kind in graph.edge_types
    )
    return Hops(
        tuple(graph.num_nodes(name) for name in graph.node_types),
        reaches,
        max((len(reach.fanouts) for reach in reaches), default=0),
        spec.replace,
        spec.node_caps,
        spec.disjoint or spec.time_attr is not None,
    )
