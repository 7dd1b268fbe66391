"""HGT sampling, layers with a budget for each node type: from types and numbers to a batch.

The Heterogeneous Graph Transformer's sampling, as in PyG's `HGTLoader`. A batch is a pure function
of (graph, spec, seed, epoch, index, seeds). This module knows types, and nothing about processes or
torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from penstock.errors import suggestion
from penstock.graph import EdgeType, Graph
from penstock.graph.inventory import repeated
from penstock.graph.layout import layout
from penstock.graph.view import GraphView
from penstock.kernels.arrays import MOST_NEIGHBORS, check_integer
from penstock.kernels.hgt import HGT, MAX_NEIGHBORS
from penstock.kernels.subgraph import Edges
from penstock.sampling.attributes import columns_of
from penstock.sampling.batches import Batches
from penstock.sampling.bounds import Sizes
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.kinds import SamplingKind
from penstock.sampling.labels import label_edge_types
from penstock.sampling.names import Owner, qualified
from penstock.sampling.request import Request
from penstock.sampling.rows import Rows
from penstock.sampling.seeds import IDS, ArraySpec
from penstock.sampling.spec import HGTSpec
from penstock.sampling.subgraph import (
    arrays_of,
    relations_of,
    sizes_of,
    spread,
    walked_types,
)

# Each layer has its own numbers, so their count must be limited; no use comes near this.
_MOST_LAYERS: Final = 2**16


class HGTKind(SamplingKind[HGTSpec]):
    """Layers with a budget for each node type."""

    def check(self, spec: HGTSpec, graph: GraphView) -> None:
        """Raise `ValueError` unless this graph can be sampled by the spec."""
        check_hgt(spec, graph)

    def left_out(self, spec: HGTSpec, graph: GraphView) -> tuple[EdgeType, ...]:
        """Return the label types, unless they are to be walked."""
        return () if spec.walk_labels else label_edge_types(graph.edge_types)

    def draws(self, spec: HGTSpec, graph: GraphView, inputs: int, of: Owner) -> float:
        """Return roughly how many edges a batch reads: those of all of its nodes, twice."""
        counts = _most_nodes(graph, samples_by_type(spec, graph), inputs, of)
        nodes = dict(zip(graph.node_types, counts, strict=True))
        looked_at = (
            nodes[kind[2]]
            * min(graph.num_edges(kind) / max(graph.num_nodes(kind[2]), 1), MAX_NEIGHBORS)
            for kind in graph.edge_types
        )
        return inputs + 2 * sum(looked_at)

    def batches(self, spec: HGTSpec, graph: Graph) -> Batches:
        """Return batches that are sampled first and written afterwards."""
        return BufferedBatches(graph, spec, HGTSampler(graph, spec))


class HGTSampler:
    """Samples layers around the seeds of a batch; for one thread at a time.

    Each sampled node (first the seeds) distributes one unit among its in-neighbours along each edge
    type; the sum of what a node was given is its budget. Each layer draws `num_samples` nodes of
    every type, or all if there are not more, with probabilities proportional to the squares of the
    budgets. `n_id` has them in the order they were drawn, seeds first; `edge_index` has the edges
    among them, in the order of the nodes they lead to. A node with more than 50 in-edges of a type
    uses 50 of them, chosen at random, once for the whole batch.
    """

    own: frozenset[str] = frozenset()

    def __init__(self, graph: Graph, spec: HGTSpec) -> None:
        check_hgt(spec, graph)
        self._graph = graph
        self._with_edge_ids = spec.with_edge_ids
        self._samples = samples_by_type(spec, graph)
        self._walked = walked_types(graph, walk_labels=spec.walk_labels)
        self._rows = Rows(graph)
        relations = relations_of(graph, self._rows, "in")
        self._hgt = HGT(
            [graph.num_nodes(name) for name in graph.node_types],
            [relations[number] for number in self._walked],
            list(self._samples.values()),
            names=graph.node_types,
        )

    def cut(self, request: Request) -> Sampled:
        """Sample the layers around the seeds of a batch."""
        seeds = [np.empty(0, np.int64)] * len(self._graph.node_types)
        seeds[self._graph.node_types.index(request.node_type)] = request.seeds
        sampled = self._rows.complete(partial(self._hgt.sample, request.key, seeds))
        found = map(Edges, sampled.rows, sampled.cols, sampled.edge_ids)
        every = spread(found, self._walked, len(self._graph.edge_types))
        edges = every if self._with_edge_ids else [edges._replace(edge_ids=None) for edges in every]
        facts: dict[str, Any] = {"batch_size": len(request.seeds)}
        if self._graph.is_hetero:
            facts["input_type"] = request.node_type
        arrays = {
            **arrays_of(self._graph, sampled.nodes, edges),
            qualified(request.node_type, "input_id"): request.positions,
        }
        return Sampled(arrays, [*sampled.nodes], [edges.edge_ids for edges in every], facts)

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room in which the arrays of any batch fit, without attributes."""
        return layout(self._likely_arrays(inputs, of)).nbytes

    def likely_nodes(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by node type, how many nodes a batch has at most."""
        return _most_nodes(self._graph, self._samples, inputs, of)

    def likely_edges(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by edge type, how many edges a batch has at most."""
        nodes = dict(zip(self._graph.node_types, self.likely_nodes(inputs, of), strict=True))
        return [
            min(nodes[kind[2]] * MAX_NEIGHBORS, self._graph.num_edges(kind))
            for kind in self._graph.edge_types
        ]

    def _likely_arrays(self, inputs: int, of: Owner) -> Iterator[ArraySpec]:
        sizes = Sizes(
            tuple(self.likely_nodes(inputs, of)),
            tuple(self.likely_edges(inputs, of)),
        )
        yield from sizes_of(sizes, with_edge_ids=self._with_edge_ids)
        yield IDS, (inputs,)


def check_hgt(spec: HGTSpec, graph: GraphView) -> None:
    """Raise `ValueError` unless this graph can be sampled by the spec."""
    if spec.by_type is not None and spec.num_samples:
        raise ValueError("num_samples and by_type are both given: one of them says all")
    samples_by_type(spec, graph)
    columns_of(graph, spec, HGTSampler.own)


def samples_by_type(spec: HGTSpec, graph: GraphView) -> dict[str, tuple[int, ...]]:
    """Return one tuple of numbers per node type, all of the same length."""
    if spec.by_type is None:
        return dict.fromkeys(graph.node_types, _checked(spec.num_samples, "num_samples"))
    given = dict(spec.by_type)
    if len(given) < len(spec.by_type):
        twice = next(repeated(name for name, _ in spec.by_type))
        raise ValueError(f"by_type names node type {twice!r} twice")
    unknown = [name for name in given if name not in graph.node_types]
    if unknown:
        raise ValueError(
            f"by_type names node type {unknown[0]!r}, which the graph has not; it has: "
            f"{', '.join(map(repr, graph.node_types))}{suggestion(unknown[0], graph.node_types)}"
        )
    missing = [name for name in graph.node_types if name not in given]
    if missing:
        raise ValueError(f"Not all node types specified: by_type lacks {missing[0]!r}")
    if len({len(layers) for layers in given.values()}) > 1:
        raise ValueError("Number of layers must be the same across all node types")
    return {name: _checked(given[name], f"num_samples[{name!r}]") for name in graph.node_types}


def _checked(layers: Sequence[int], name: str) -> tuple[int, ...]:
    if len(layers) > _MOST_LAYERS:
        raise ValueError(f"{name} has {len(layers)} layers; there can be {_MOST_LAYERS}")
    return tuple(
        check_integer(count, f"{name}[{layer}]", 0, MOST_NEIGHBORS + 1)
        for layer, count in enumerate(layers)
    )


def _most_nodes(
    graph: GraphView, samples: dict[str, tuple[int, ...]], inputs: int, of: Owner
) -> list[int]:
    """Return, by node type, the seeds plus what all layers draw, or the whole graph."""
    return [
        (inputs if name == of else 0) + min(sum(layers), graph.num_nodes(name))
        for name, layers in samples.items()
    ]
