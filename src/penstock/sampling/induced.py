"""k-hop neighbourhoods with all edges among their nodes, or with the reverse of every edge.

The nodes are those of the directional batch of the same key, in the same order; only the edges
differ, so there are no counts of edges, or of nodes, per hop. This module knows nothing about how
inputs become seeds (`SeedBuilder`), or about processes or torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TypeAlias

from penstock.graph import EdgeType, Graph
from penstock.graph.layout import layout
from penstock.graph.view import GraphView
from penstock.kernels import Exclusion, Sample
from penstock.kernels.subgraph import Edges, bidirectional
from penstock.sampling.bounds import Sizes
from penstock.sampling.buffered import Sampled
from penstock.sampling.collate import sampler_of
from penstock.sampling.exclusion import without
from penstock.sampling.names import Owner
from penstock.sampling.request import Request
from penstock.sampling.seeds import SeedBuilder
from penstock.sampling.shape import BatchShape, hops_of, unnamed_labels
from penstock.sampling.spec import NeighborSpec
from penstock.sampling.subgraph import (
    among_nodes,
    arrays_of,
    likely_among,
    sizes_of,
    spread,
)

Completing: TypeAlias = Callable[[Sample], list[Edges]]


class InducedSampler:
    """Samples with `subgraph_type` "bidirectional" or "induced"; for one thread at a time.

    "induced": every edge of the graph between two nodes of the batch, at their first positions; if
    disjoint, within a tree. An edge type whose fan-outs are 0 for every hop is left out, and so is
    a label type without fan-outs of its own.

    "bidirectional": every sampled edge and its reverse, each once, with the `e_id` that PyG gives
    it: that of the last sampled edge it is the reverse of, or else its own. In a heterogeneous
    graph the reverses of a type are edges of another (see `reverse_types`), whose ids have no
    meaning here: such types have no `e_id` and no attributes, as in PyG.
    """

    def __init__(self, graph: Graph, spec: NeighborSpec, seed_builder: SeedBuilder) -> None:
        self._graph = graph
        self._shape = BatchShape(graph, spec, seed_builder)
        self._hops = hops_of(graph, spec)
        self._sampler = sampler_of(graph, spec)
        self._is_induced = spec.subgraph_type == "induced"
        self._reverses = _reverses(graph, spec)
        self._complete: Completing = (
            _induced(graph, spec, self._shape.with_edge_ids)
            if self._is_induced
            else self._both_ways
        )
        self.own = seed_builder.own | ({"batch"} if self._shape.disjoint else set())

    def cut(self, request: Request) -> Sampled:
        """Sample a batch, and add the missing edges."""
        start = self._shape.seed_builder.start(request)
        sample = self._sampler.sample_by_type(
            start.seeds,
            seed=request.seed,
            epoch=request.epoch,
            index=request.index,
            with_edge_ids=self._shape.with_edge_ids,
            times=start.times,
            excluded=start.excluded,
        )
        edges = self._left(self._complete(sample), sample, start.excluded)
        start.tell_trees(sample.trees or ())
        arrays = arrays_of(self._graph, sample.nodes, edges, sample.trees)
        return Sampled(
            arrays | start.arrays,
            [*sample.nodes],
            [found.edge_ids for found in edges],
            dict(start.facts),
        )

    def _left(
        self, edges: list[Edges], sample: Sample, excluded: Sequence[Exclusion]
    ) -> list[Edges]:
        """Take out excluded edges, which completing adds again."""
        for number in {each.relation for each in excluded}:
            reach = self._hops.reaches[number]
            edges[number] = without(
                edges[number],
                [each for each in excluded if each.relation == number],
                sample.nodes[reach.finds],
                sample.nodes[reach.expands],
                None if sample.trees is None else sample.trees[reach.expands],
            )
        return edges

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room in which the arrays of nearly any batch fit, without attributes."""
        sizes = Sizes((*self.likely_nodes(inputs, of),), (*self.likely_edges(inputs, of),))
        arrays = sizes_of(
            sizes, with_edge_ids=self._shape.with_edge_ids, with_trees=self._shape.disjoint
        )
        return layout([*arrays, *self._shape.seed_builder.most_arrays(inputs, of)]).nbytes

    def likely_nodes(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by node type, how many nodes nearly any batch has at most."""
        return self._bound(inputs, of).nodes

    def likely_edges(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by edge type, how many edges nearly any batch has at most."""
        bound = self._bound(inputs, of)
        if self._is_induced:
            return likely_among(self._hops, bound)
        reverses = zip(bound.edges, self._reverses, strict=True)
        return [own if back is None else own + bound.edges[back] for own, back in reverses]

    def _bound(self, inputs: int, of: Owner) -> Sizes:
        return self._shape.bound(self._shape.seed_builder.most_seeds(inputs, of))

    def _both_ways(self, sample: Sample) -> list[Edges]:
        sampled = [
            Edges(rows, cols, None if sample.edge_ids is None else sample.edge_ids[number])
            for number, (rows, cols) in enumerate(zip(sample.rows, sample.cols, strict=True))
        ]
        if not self._graph.is_hetero:
            return [_undirected(sampled[0])]
        return [
            edges if back is None else _joined(edges, sampled[back])
            for edges, back in zip(sampled, self._reverses, strict=True)
        ]


def _undirected(edges: Edges) -> Edges:
    """Add the reverses. Of the ids that an edge then has, PyG keeps the last: a reverse's, if any.

    The kernel keeps the first, and an edge's own before a reverse's, so it is given the reverses,
    the last one first.
    """
    ids = None if edges.edge_ids is None else edges.edge_ids[::-1]
    return bidirectional(edges.cols[::-1], edges.rows[::-1], ids)


def _joined(edges: Edges, back: Edges) -> Edges:
    """Add the reverses of another type, without ids, which belong to that type."""
    return bidirectional(edges.rows, edges.cols, None, back.rows, back.cols)


def _induced(graph: Graph, spec: NeighborSpec, with_edge_ids: bool) -> Completing:
    idle = {kind for kind, fanouts in spec.by_type or () if fanouts and not any(fanouts)}
    idle.update(unnamed_labels(spec, graph))
    walked = [number for number, kind in enumerate(graph.edge_types) if kind not in idle]
    induced, count = among_nodes(graph, spec.direction, walked), len(graph.edge_types)

    def complete(sample: Sample) -> list[Edges]:
        found = induced.cut(sample.nodes, sample.trees, with_edge_ids=with_edge_ids)
        return spread(found, walked, count, with_edge_ids=with_edge_ids)

    return complete


def _reverses(graph: GraphView, spec: NeighborSpec) -> list[int | None]:
    """Return the reverse types; label types that are not walked are nobody's reverse."""
    walked = [kind for kind in graph.edge_types if kind not in unnamed_labels(spec, graph)]
    numbers = [graph.edge_types.index(kind) for kind in walked]
    found: list[int | None] = [None] * len(graph.edge_types)
    for number, back in zip(numbers, reverse_types(walked), strict=True):
        found[number] = None if back is None else numbers[back]
    return found


def reverse_types(edge_types: Sequence[EdgeType]) -> list[int | None]:
    """Return, for each edge type, the number of the type that has its reverses, by PyG's rule.

    (a, r, b) is paired with (b, rev_r, a), and the other way round. If that does not exist, a type
    among nodes of one type is paired with itself, and any other with the only type from b to a.
    None if there are several or none, and for a rev_ type without a counterpart.
    """
    numbers = {kind: number for number, kind in enumerate(edge_types)}
    found: list[int | None] = [None] * len(edge_types)
    for kind, number in numbers.items():
        if kind[1].startswith("rev_"):
            continue
        named = numbers.get((kind[2], f"rev_{kind[1]}", kind[0]))
        if named is not None:
            found[number], found[named] = named, number
        else:
            found[number] = _only_reverse(kind, numbers)
    return found


def _only_reverse(kind: EdgeType, numbers: dict[EdgeType, int]) -> int | None:
    source, _, destination = kind
    if source == destination:
        return numbers[kind]
    back = [
        number for other, number in numbers.items() if (other[0], other[2]) == (destination, source)
    ]
    return back[0] if len(back) == 1 else None


def check_whole(spec: NeighborSpec, graph: GraphView) -> None:
    """Raise `ValueError` where PyG has no such batches; warn, as PyG does, where edges stay as is.

    Weights choose the nodes of an induced batch; edges of weight 0 among these are still edges.
    """
    match spec.subgraph_type:
        case "directional":
            return
        case "induced":
            if spec.disjoint or spec.time_attr is not None:
                raise ValueError(
                    "'disjoint' sampling not supported for neighbor sampling with "
                    "`subgraph_type='induced'`"
                )
        case "bidirectional":
            if graph.is_hetero:
                labels = unnamed_labels(spec, graph)
                _warn_of_lone_types([kind for kind in graph.edge_types if kind not in labels])
        case other:
            raise ValueError(
                f"subgraph_type is {other!r}; expected 'directional', 'bidirectional' or 'induced'"
            )


def _warn_of_lone_types(edge_types: Sequence[EdgeType]) -> None:
    for kind, back in zip(edge_types, reverse_types(edge_types), strict=True):
        if back is None and not kind[1].startswith("rev_"):
            warnings.warn(
                f"Cannot convert to bidirectional graph since the edge type {kind} does not seem "
                "to have a reverse edge type",
                stacklevel=2,
            )
