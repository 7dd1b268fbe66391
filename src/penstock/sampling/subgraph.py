"""Subgraphs: seeds, the nodes within some hops of them, and all edges among these.

Nothing is drawn: a batch is a pure function of (graph, spec, seeds). Sizes are known only after the
edges are read, so a batch is sampled first and written afterwards. This module knows nothing about
processes or torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.graph import EdgeType, Graph
from penstock.graph.derived import DerivedArrays, OutEdges
from penstock.graph.layout import layout
from penstock.graph.view import GraphView
from penstock.kernels import Relation, first_outside
from penstock.kernels.arrays import Array, Ids, as_ids, check_integer
from penstock.kernels.subgraph import Edges, InducedEdges
from penstock.sampling.attributes import columns_of
from penstock.sampling.batches import Batches
from penstock.sampling.bounds import Hops, Reach, Sizes
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.khop import NeighborSampler
from penstock.sampling.kinds import InputKind, SamplingKind
from penstock.sampling.labels import label_edge_types
from penstock.sampling.names import Owner, qualified
from penstock.sampling.request import Request
from penstock.sampling.rows import Rows
from penstock.sampling.seeds import IDS, ArraySpec
from penstock.sampling.spec import Direction, SubgraphSpec

if TYPE_CHECKING:
    from penstock.sampling.parted import PartedInduced

# The hub, which reserves memory, computes with every hop; no use has so many.
_MOST_HOPS: Final = 2**10
# How far degrees may exceed the average in a batch that should still fit.
_SLACK: Final = 4


class SubgraphKind(SamplingKind[SubgraphSpec]):
    """Subgraphs that seeds induce."""

    def input_kind(self, spec: SubgraphSpec) -> InputKind:
        """Return that the inputs are nodes, which form a subgraph."""
        return InputKind.SUBGRAPH

    def left_out(self, spec: SubgraphSpec, graph: GraphView) -> tuple[EdgeType, ...]:
        """Return the label types, unless they are to be walked."""
        return () if spec.walk_labels else label_edge_types(graph.edge_types)

    def check(self, spec: SubgraphSpec, graph: GraphView) -> None:
        """Raise `ValueError` unless this graph can be sampled by the spec."""
        check_integer(spec.num_hops, "num_hops", 0, _MOST_HOPS)
        if spec.direction not in ("in", "out"):
            raise ValueError(f"direction is {spec.direction!r}; expected 'in' or 'out'")
        columns_of(graph, spec, SubgraphSampler.own)

    def needs(self, spec: SubgraphSpec, graph: GraphView) -> Sequence[DerivedArrays]:
        """Return out-edges, if they are followed."""
        return [OutEdges(kind) for kind in graph.edge_types] if spec.direction == "out" else []

    def draws(self, spec: SubgraphSpec, graph: GraphView, inputs: int, of: Owner) -> float:
        """Return roughly how many edges a batch reads: all those of all of its nodes."""
        hops = _likely_hops(graph, spec)
        nodes = hops.bound([inputs if name == of else 0 for name in graph.node_types]).nodes
        looked_at = (
            reach.num_edges * nodes[reach.expands] / max(hops.num_nodes[reach.expands], 1)
            for reach in hops.reaches
        )
        return inputs + sum(looked_at)

    def batches(self, spec: SubgraphSpec, graph: Graph) -> Batches:
        """Return batches that are sampled first and written afterwards."""
        return BufferedBatches(graph, spec, SubgraphSampler(graph, spec))


class SubgraphSampler:
    """Samples the subgraphs that seeds induce; for one thread at a time.

    A batch is all nodes that lead to a seed within `num_hops` (along out-edges: that a seed leads
    to), and every edge of the graph between two of them. `n_id` has the seeds in the order given,
    then each other node once, hop by hop. A repeated seed has two rows, as in all kinds, and edges
    at the first; `mapping` has, for each seed as given, the position that has its edges. In
    `edge_index`, as in all kinds, the node found is above the node expanded, in the order of the
    positions of the latter.
    """

    own = frozenset({"mapping"})

    def __init__(self, graph: Graph, spec: SubgraphSpec) -> None:
        self._graph = graph
        _, edge_columns = columns_of(graph, spec, self.own)
        self._with_edge_ids = spec.with_edge_ids or bool(edge_columns)
        self._hops = _likely_hops(graph, spec)
        self._walked = walked_types(graph, walk_labels=spec.walk_labels)
        fanouts: dict[EdgeType, tuple[int, ...]] = dict.fromkeys(
            graph.edge_types, (0,) * spec.num_hops
        )
        for number in self._walked:
            fanouts[graph.edge_types[number]] = (-1,) * spec.num_hops
        self._sampler = NeighborSampler(graph, fanouts, direction=spec.direction)
        self._induced = among_nodes(graph, spec.direction, self._walked)

    def cut(self, request: Request) -> Sampled:
        """Sample the subgraph of the seeds of a batch."""
        number = self._graph.node_types.index(request.node_type)
        given = self._checked(request.seeds, request.node_type)
        seeds = [np.empty(0, np.int64)] * len(self._graph.node_types)
        seeds[number] = given
        nodes = self._sampler.sample_by_type(seeds, with_edge_ids=False).nodes
        found = self._induced.cut(nodes, with_edge_ids=self._with_edge_ids)
        edges = spread(
            found, self._walked, len(self._graph.edge_types), with_edge_ids=self._with_edge_ids
        )
        facts: dict[str, Any] = {"batch_size": len(given)}
        if self._graph.is_hetero:
            facts["input_type"] = request.node_type
        arrays = {
            **arrays_of(self._graph, nodes, edges),
            qualified(request.node_type, "input_id"): request.positions,
            qualified(request.node_type, "mapping"): _first_places(given),
        }
        return Sampled(arrays, [*nodes], [found.edge_ids for found in edges], facts)

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room in which the arrays of nearly any batch fit, without attributes."""
        return layout(self._likely_arrays(inputs, of)).nbytes

    def likely_nodes(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by node type, the most nodes of nearly any batch: repeated seeds are rare."""
        likely = map(min, self._likely(inputs, of).nodes, self._hops.num_nodes)
        return list(map(max, likely, self._seeds(inputs, of)))

    def likely_edges(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by edge type, how many edges nearly any batch has at most."""
        every = [reach.num_edges for reach in self._hops.reaches]
        return list(map(min, likely_among(self._hops, self._likely(inputs, of)), every))

    def _checked(self, seeds: Array, node_type: str) -> Ids:
        ids, bound = as_ids(seeds, "seeds"), self._graph.num_nodes(node_type or None)
        bad = first_outside(ids, bound)
        if bad >= 0:
            raise ValueError(f"seeds[{bad}] is {ids[bad]}; expected 0 <= id < {bound}")
        return ids

    def _likely(self, inputs: int, of: Owner) -> Sizes:
        return self._hops.bound(self._seeds(inputs, of))

    def _seeds(self, inputs: int, of: Owner) -> list[int]:
        return [inputs if name == of else 0 for name in self._graph.node_types]

    def _likely_arrays(self, inputs: int, of: Owner) -> Iterator[ArraySpec]:
        yield from sizes_of(
            Sizes((*self.likely_nodes(inputs, of),), (*self.likely_edges(inputs, of),)),
            with_edge_ids=self._with_edge_ids,
        )
        yield IDS, (inputs,)
        yield IDS, (inputs,)


def _first_places(seeds: Ids) -> Ids:
    """Return the first position of each seed among the seeds."""
    _, first, which = np.unique(seeds, return_index=True, return_inverse=True)
    return first[which].astype(np.int64, copy=False)


# --- shared by other kinds that add edges to given nodes -----------------------------------------


def walked_types(graph: GraphView, *, walk_labels: bool) -> list[int]:
    """Return the numbers of the edge types that are walked: all but those that hold labels."""
    labels = () if walk_labels else label_edge_types(graph.edge_types)
    return [number for number, kind in enumerate(graph.edge_types) if kind not in labels]


def spread(
    found: Iterable[Edges], walked: Sequence[int], count: int, *, with_edge_ids: bool = True
) -> list[Edges]:
    """Return edges for each of `count` types: those found of the walked ones, none of others."""
    nothing = np.empty(0, np.int64)
    edges = [Edges(nothing, nothing, nothing if with_edge_ids else None)] * count
    for number, of_type in zip(walked, found, strict=True):
        edges[number] = of_type
    return edges


def relations_of(graph: Graph, rows: Rows, direction: Direction) -> list[Relation]:
    """Return the edge types as kernel relations, without fan-outs."""
    return [
        Relation(rows.of(kind, direction), (), *_ends(graph, kind, direction), kind)
        for kind in graph.edge_types
    ]


def among_nodes(
    graph: Graph, direction: Direction, walked: Sequence[int]
) -> InducedEdges | PartedInduced:
    """Return what finds the edges among nodes, along the edge types of these numbers."""
    exchange = graph.open_exchange()
    if exchange is not None:
        from penstock.sampling.parted import PartedInduced, PartedRelation

        kinds = [graph.edge_types[number] for number in walked]
        parted = [PartedRelation(kind, (), *_ends(graph, kind, direction)) for kind in kinds]
        return PartedInduced(exchange, direction, parted)
    relations = relations_of(graph, Rows(graph), direction)
    num_nodes = [graph.num_nodes(name) for name in graph.node_types]
    return InducedEdges(num_nodes, [relations[number] for number in walked])


def _ends(graph: GraphView, kind: EdgeType, direction: Direction) -> tuple[int, int]:
    """Return the numbers of the node types that are expanded and found."""
    source, destination = graph.node_types.index(kind[0]), graph.node_types.index(kind[2])
    return (destination, source) if direction == "in" else (source, destination)


def arrays_of(
    graph: GraphView,
    nodes: Sequence[Ids],
    edges: Sequence[Edges],
    trees: Sequence[Ids] | None = None,
) -> dict[str, Array]:
    """Return the arrays of every batch: its nodes, with their trees if disjoint, and its edges."""
    arrays: dict[str, Array] = {}
    for number, owner in enumerate(graph.node_types):
        arrays[qualified(owner, "n_id")] = nodes[number]
        if trees is not None:
            arrays[qualified(owner, "batch")] = trees[number]
    for kind, found in zip(graph.edge_types, edges, strict=True):
        arrays[qualified(kind, "edge_index")] = np.stack([found.rows, found.cols])
        if found.edge_ids is not None:
            arrays[qualified(kind, "e_id")] = found.edge_ids
    return arrays


def sizes_of(sizes: Sizes, *, with_edge_ids: bool, with_trees: bool = False) -> Iterator[ArraySpec]:
    """Yield dtypes and shapes of `arrays_of` for lists of these sizes."""
    for count in sizes.nodes:
        yield from [(IDS, (count,))] * (2 if with_trees else 1)
    for count in sizes.edges:
        yield IDS, (2, count)
        if with_edge_ids:
            yield IDS, (count,)


def likely_among(hops: Hops, sizes: Sizes) -> tuple[int, ...]:
    """Return how many edges so many nodes hardly exceed, of which `sizes.edges` were sampled.

    To these it adds the number expected by chance, if the nodes are a random part of all.
    """
    return tuple(
        max(walked, min(walked + _by_chance(hops, sizes, reach), reach.num_edges))
        for reach, walked in zip(hops.reaches, sizes.edges, strict=True)
    )


def _by_chance(hops: Hops, sizes: Sizes, reach: Reach) -> int:
    heads, tails = (
        min(sizes.nodes[type_] / max(hops.num_nodes[type_], 1), 1.0)
        for type_ in (reach.expands, reach.finds)
    )
    return int(_SLACK * reach.num_edges * heads * tails)


def _likely_hops(graph: GraphView, spec: SubgraphSpec) -> Hops:
    """Return hops that take the average degree, and some more: a bound for nearly any batch.

    Reads sizes only, because it is called when memory is reserved.
    """
    num_nodes = tuple(graph.num_nodes(name) for name in graph.node_types)
    reaches = []
    for kind in graph.edge_types:
        expands, finds = _ends(graph, kind, spec.direction)
        degree = -(-_SLACK * graph.num_edges(kind) // max(num_nodes[expands], 1))
        fanouts = (degree,) * spec.num_hops
        reaches.append(Reach(expands, finds, graph.num_edges(kind), fanouts))
    return Hops(num_nodes, tuple(reaches), spec.num_hops)
