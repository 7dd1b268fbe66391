"""The most relevant nodes of each seed by personalised PageRank: from types to the kernel.

A batch is a pure function of (graph, spec, seed, epoch, index, seeds); seed, epoch and index only
matter if a node has more neighbours than are read. This module knows types and names, and nothing
about processes or torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from penstock.graph import EdgeType, Graph
from penstock.graph.derived import DegreeSizes, DerivedArrays, OutEdges
from penstock.graph.inventory import repeated
from penstock.graph.layout import layout
from penstock.graph.view import GraphView
from penstock.kernels import Adjacency
from penstock.kernels.arrays import Array, Ids, check_integer
from penstock.kernels.ppr import (
    MOST_NODES,
    Push,
    PushChannel,
    PushedEdges,
    PushOptions,
    PushRelation,
    PushSample,
    check_number,
)
from penstock.sampling.attributes import columns_of
from penstock.sampling.batches import Batches
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.kinds import SamplingKind
from penstock.sampling.labels import label_edge_types
from penstock.sampling.names import Owner, qualified, type_name
from penstock.sampling.request import Request
from penstock.sampling.seeds import IDS, ArraySpec
from penstock.sampling.spec import PPRSpec

PPR: Final = "ppr"  # in a batch, the relation from seeds to nodes relevant to them
_SCORES: Final = "float32"
# The usual fraction of the largest possible number of pushes.
_USUAL: Final = 0.25


class PPRKind(SamplingKind[PPRSpec]):
    """The most relevant nodes of seeds."""

    def check(self, spec: PPRSpec, graph: GraphView) -> None:
        """Raise `ValueError` unless this graph can be sampled by the spec."""
        check_ppr(spec, graph)

    def needs(self, spec: PPRSpec, graph: GraphView) -> Sequence[DerivedArrays]:
        """Return out-edges, if they are followed, and bit lengths of degrees."""
        needed: list[DerivedArrays] = []
        for kind in graph.edge_types:
            if spec.direction == "out":
                needed.append(OutEdges(kind))
            needed.append(DegreeSizes(kind, spec.direction))
        return needed

    def left_out(self, spec: PPRSpec, graph: GraphView) -> tuple[EdgeType, ...]:
        """Return the label types, unless channels say which types are walked."""
        return () if spec.channels else label_edge_types(graph.edge_types)

    def draws(self, spec: PPRSpec, graph: GraphView, inputs: int, of: Owner) -> float:
        """Return roughly how many edges a batch reads.

        Every push along an edge takes at least alpha * eps from a residual that is 1 at first, and
        a round pushes along no more edges than the graph has.
        """
        pushes = 1.0 / (spec.alpha * spec.eps)
        rounds = math.log(1.0 / min(spec.eps, 0.5)) / spec.alpha
        walked = max(len(spec.channels), 1)
        return inputs * (1.0 + walked * _USUAL * min(pushes, rounds * graph.num_edges()))

    def batches(self, spec: PPRSpec, graph: Graph) -> Batches:
        """Return batches that are sampled first and written afterwards."""
        return BufferedBatches(graph, spec, PPRSampler(graph, spec))


class PPRSampler:
    """Samples the nodes most relevant to the seeds of a batch; for one thread at a time.

    Every seed has an edge to each of the nodes most relevant to it, which include itself:
    `edge_index` has the seed's position above the node's, `edge_attr` the score and 1 / (1 + hop).
    In a heterogeneous graph there is an edge type (seeds' type, "ppr", type) for every node type,
    empty or not.
    """

    def __init__(self, graph: Graph, spec: PPRSpec) -> None:
        check_ppr(spec, graph)
        self.own = _own(graph)
        self._graph = graph
        self._options = options_of(spec, graph)
        self._with_edge_ids = spec.with_edge_ids
        self._push = Push(
            [graph.num_nodes(name) for name in graph.node_types],
            [_relation(graph, kind, spec) for kind in graph.edge_types],
            self._options,
        )

    def cut(self, request: Request) -> Sampled:
        """Sample the nodes most relevant to the seeds of a batch."""
        number = self._graph.node_types.index(request.node_type)
        sample = self._push.sample(request.key, request.seeds, number)
        edges = sample.edges or []
        arrays = {
            **self._nodes(sample),
            **self._links(request.node_type, sample),
            **self._edges(edges),
            qualified(request.node_type, "input_id"): request.positions,
        }
        edge_ids: list[Ids | None] = [found.edge_ids for found in edges]
        nobody: list[Ids | None] = [None] * len(self._graph.edge_types)
        return Sampled(arrays, [*sample.nodes], edge_ids or nobody, self._facts(request, sample))

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room in which the arrays of nearly any batch fit, without attributes."""
        return layout(self._likely_arrays(inputs, of)).nbytes

    def likely_nodes(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by node type, how many nodes a batch has at most."""
        most = inputs * self._options.max_ppr_nodes
        return [
            (inputs if name == of else 0) + min(self._graph.num_nodes(name), most)
            for name in self._graph.node_types
        ]

    def likely_edges(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by edge type, how many edges of the graph nearly any batch has at most."""
        if not self._options.with_edges:
            return [0] * len(self._graph.edge_types)
        nodes = self.likely_nodes(inputs, of)
        return [self._likely_among(nodes, relation) for relation in self._push.relations]

    def _likely_among(self, nodes: Sequence[int], relation: PushRelation) -> int:
        rows = min(nodes[relation.expands], self._push.num_nodes[relation.expands])
        degree = relation.adjacency.num_edges / max(relation.adjacency.num_nodes, 1)
        return min(relation.adjacency.num_edges, math.ceil(rows * degree))

    def _likely_arrays(self, inputs: int, of: Owner) -> Iterator[ArraySpec]:
        links = inputs * self._options.max_ppr_nodes
        for count in self.likely_nodes(inputs, of):
            yield IDS, (count,)
            yield IDS, (2, links)
            yield _SCORES, (links, self._options.width)
        for count in self.likely_edges(inputs, of):
            yield IDS, (3, count)
        yield IDS, (inputs,)

    def _nodes(self, sample: PushSample) -> dict[str, Array]:
        owners = self._graph.node_types
        return {qualified(owner, "n_id"): sample.nodes[t] for t, owner in enumerate(owners)}

    def _links(self, seeds: str, sample: PushSample) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for number, owner in enumerate(self._graph.node_types):
            kind = self._link_type(seeds, owner)
            arrays[qualified(kind, "edge_index")] = sample.edge_index[number]
            arrays[qualified(kind, "edge_attr")] = sample.edge_attr[number]
        return arrays

    def _edges(self, edges: list[PushedEdges]) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for kind, found in zip(self._graph.edge_types, edges, strict=False):  # all, or none
            arrays[qualified(kind, "edge_index")] = found.edge_index
            if self._with_edge_ids:
                arrays[qualified(kind, "e_id")] = found.edge_ids
        return arrays

    def _link_type(self, seeds: str, owner: str) -> EdgeType:
        return (seeds, PPR, owner) if self._graph.is_hetero else self._graph.edge_types[0]

    def _facts(self, request: Request, sample: PushSample) -> dict[str, Any]:
        seeds = len(request.seeds)
        facts: dict[str, Any] = {"batch_size": seeds}
        if not self._graph.is_hetero:
            (nodes,), (index,) = sample.nodes, sample.edge_index
            return facts | {
                "num_sampled_nodes": [seeds, len(nodes) - seeds],
                "num_sampled_edges": [index.shape[1]],
            }
        nodes_by_type, edges_by_type = {}, {}
        for number, owner in enumerate(self._graph.node_types):
            first = seeds if owner == request.node_type else 0
            nodes_by_type[type_name(owner)] = [first, len(sample.nodes[number]) - first]
            kind = self._link_type(request.node_type, owner)
            edges_by_type[type_name(kind)] = [sample.edge_index[number].shape[1]]
        for kind, found in zip(self._graph.edge_types, sample.edges or [], strict=False):
            edges_by_type[type_name(kind)] = [len(found.edge_ids)]
        return facts | {
            "input_type": request.node_type,
            "num_sampled_nodes": nodes_by_type,
            "num_sampled_edges": edges_by_type,
        }


def check_ppr(spec: PPRSpec, graph: GraphView) -> None:
    """Raise `ValueError` unless this graph can be sampled by the spec."""
    check_integer(spec.max_ppr_nodes, "max_ppr_nodes", 0, MOST_NODES)
    if spec.direction not in ("in", "out"):
        raise ValueError(f"direction is {spec.direction!r}; expected 'in' or 'out'")
    if not graph.is_hetero:
        _check_homogeneous(spec)
    for kind in graph.edge_types:
        if kind[1] == PPR and graph.is_hetero:
            raise ValueError(
                f"the graph has an edge type {kind!r}; in a batch, {PPR!r} leads from seeds "
                "to what matters to them"
            )
    _check_channels(spec, graph)
    options_of(spec, graph).check(len(graph.edge_types))
    columns_of(graph, spec, _own(graph))


def options_of(spec: PPRSpec, graph: GraphView) -> PushOptions:
    """Return the kernel's options for a spec."""
    numbers = {kind: number for number, kind in enumerate(graph.edge_types)}
    labels = label_edge_types(graph.edge_types)
    shares = shares_of([share for _, _, share in spec.channels], spec.max_ppr_nodes)
    return PushOptions(
        alpha=spec.alpha,
        eps=spec.eps,
        max_ppr_nodes=spec.max_ppr_nodes,
        num_neighbors_per_hop=spec.num_neighbors_per_hop,
        max_fetch_iterations=spec.max_fetch_iterations,
        residual_topup=spec.residual_topup,
        channels=tuple(
            PushChannel(tuple(numbers[kind] for kind in kinds), share)
            for (_, kinds, _), share in zip(spec.channels, shares, strict=True)
        ),
        with_edges=spec.include_sampled_edges,
        walked=tuple(number for kind, number in numbers.items() if kind not in labels),
    )


def shares_of(ratios: Sequence[float], most: int) -> list[int]:
    """Return ratios as integers that sum to `most`.

    The remainder goes to the largest fractions, and among equal ones to the first.
    """
    exact = [ratio * most for ratio in ratios]
    shares = [math.floor(value) for value in exact]
    by_fraction = sorted(range(len(exact)), key=lambda c: (shares[c] - exact[c], c))
    for channel in by_fraction[: most - sum(shares)]:
        shares[channel] += 1
    return shares


def _own(graph: GraphView) -> frozenset[str]:
    """Return the names of own arrays: with one edge type, `edge_attr` has scores."""
    return frozenset() if graph.is_hetero else frozenset({"edge_attr"})


def _check_homogeneous(spec: PPRSpec) -> None:
    if spec.channels:
        raise ValueError("channels are of edge types, and a homogeneous graph has but one")
    if spec.include_sampled_edges:
        raise ValueError(
            "include_sampled_edges needs a heterogeneous graph: a homogeneous batch has one "
            "edge_index, which holds the edges from seeds to what matters to them"
        )


def _check_channels(spec: PPRSpec, graph: GraphView) -> None:
    for name in repeated(name for name, _, _ in spec.channels):
        raise ValueError(f"channels has {name!r} twice: each has a name of its own")
    for number, (name, kinds, share) in enumerate(spec.channels):
        here = f"channels[{number}] ({name!r})"
        if not kinds:
            raise ValueError(f"{here} has no edge types to follow")
        for kind in kinds:
            if kind not in graph.edge_types:
                raise ValueError(f"{here} names edge type {kind!r}, which the graph has not")
        if len(set(kinds)) != len(kinds):
            raise ValueError(f"{here} names an edge type twice")
        check_number(share, f"share of {here}", 0.0, 1.0)
        if share == 0:
            raise ValueError(f"share of {here} is 0; expected a positive ratio")
    total = sum(share for _, _, share in spec.channels)
    if spec.channels and not math.isclose(total, 1.0, rel_tol=1e-9, abs_tol=1e-9):
        raise ValueError(f"the shares of the channels sum to {total}; expected 1.0")


def _relation(graph: Graph, kind: EdgeType, spec: PPRSpec) -> PushRelation:
    source, destination = graph.node_types.index(kind[0]), graph.node_types.index(kind[2])
    rows = graph.csc(kind) if spec.direction == "in" else graph.csr(kind)
    ends = (destination, source) if spec.direction == "in" else (source, destination)
    (sizes,) = graph.derived(DegreeSizes(kind, spec.direction))
    return PushRelation(Adjacency(rows.indptr, rows.adjacency), *ends, kind, sizes.array)
