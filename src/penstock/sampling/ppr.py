"""The most relevant nodes of each seed by personalised PageRank: from types to the kernel.

A batch is a pure function of (graph, spec, seed, epoch, index, seeds); seed, epoch and index only
matter if a node has more neighbours than are read. This module knows types and names, and nothing
about processes or torch. Seeds are the inputs, or what another kind makes of them (`SeedBuilder`):
anchors and their labels, which may have several types.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from penstock.errors import suggestion
from penstock.graph import EdgeType, Graph
from penstock.graph.derived import DegreeSizes, DerivedArrays, OutEdges
from penstock.graph.inventory import repeated
from penstock.graph.layout import layout
from penstock.graph.view import GraphView
from penstock.kernels import Exclusion, Relabeler
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
from penstock.sampling.rows import Rows
from penstock.sampling.seeds import IDS, ArraySpec, NodeSeedBuilder, SeedBuilder, Seeds
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
        return needs_of(spec, graph.edge_types)

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

    Args:
        graph: The graph.
        spec: How to sample.
        seeds: What makes seeds of inputs, and the node types that these may have. None: inputs are
            the seeds.
        unwalked: Edge types that are not followed.
    """

    def __init__(
        self,
        graph: Graph,
        spec: PPRSpec,
        seeds: tuple[SeedBuilder, Sequence[str]] | None = None,
        unwalked: Container[EdgeType] = (),
    ) -> None:
        check_ppr(spec, graph)
        self._graph = graph
        self._seeds: SeedBuilder = NodeSeedBuilder(graph) if seeds is None else seeds[0]
        self._seed_types = None if seeds is None else seeds[1]
        self.own = _own(graph) | (frozenset() if seeds is None else self._seeds.own)
        # Types of labels are followed only if a channel names them, and count for no threshold.
        named = {kind for _, kinds, _ in spec.channels for kind in kinds}
        labels = set(label_edge_types(graph.edge_types)) - named
        self._shown = [kind for kind in graph.edge_types if kind not in unwalked]
        self._walked = [kind for kind in self._shown if kind not in labels]
        self._options = options_of(spec, graph, self._walked)
        self._with_edge_ids = spec.with_edge_ids
        self._rows = Rows(graph)
        self._push = Push(
            [graph.num_nodes(name) for name in graph.node_types],
            [_relation(graph, self._rows, kind, spec) for kind in self._walked],
            self._options,
        )

    def cut(self, request: Request) -> Sampled:
        """Sample the nodes most relevant to the seeds of a batch."""
        start = self._seeds.start(request)
        pushed = self._pushed(request, start)
        arrays = {
            **self._nodes(pushed),
            **self._links(pushed),
            **self._edges(pushed),
            **start.arrays,
        }
        by_kind = self._by_kind(pushed)
        edge_ids: list[Ids | None] = [
            by_kind[kind].edge_ids if kind in by_kind else None for kind in self._graph.edge_types
        ]
        facts = start.facts | self._counts(start, pushed)
        return Sampled(arrays, [*pushed.nodes], edge_ids, facts)

    def _pushed(self, request: Request, start: Seeds) -> _Pushed:
        """Push from the seeds of each type in turn; the results become one list of nodes a type."""
        samples, excluded = {}, self._excluded(start.excluded)
        for owner in self._types_of(request.node_type):
            number = self._graph.node_types.index(owner)
            samples[owner] = self._rows.complete(
                partial(self._push.sample, request.key, start.seeds[number], number, excluded)
            )
        return _joined(samples, start.seeds, self._push.relations)

    def _excluded(self, given: Sequence[Exclusion]) -> list[Exclusion]:
        """Return exclusions by number of the relation, which are by number of the edge type."""
        found = []
        for each in given:
            kind = self._graph.edge_types[each.relation]
            if kind in self._walked:
                number = self._walked.index(kind)
                found.append(Exclusion(number, each.nodes, each.neighbors))
        return found

    def _types_of(self, inputs: Owner) -> Sequence[Any]:
        """Return the node types that seeds may have, in the order in which they are sampled."""
        return [inputs] if self._seed_types is None else self._seed_types

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room in which the arrays of nearly any batch fit, without attributes."""
        return layout(self._likely_arrays(inputs, of)).nbytes

    def likely_nodes(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by node type, how many nodes a batch has at most."""
        seeds = self._seeds.most_seeds(inputs, of)
        most = sum(seeds) * self._options.max_ppr_nodes
        return [
            own + min(self._graph.num_nodes(name), most)
            for own, name in zip(seeds, self._graph.node_types, strict=True)
        ]

    def likely_edges(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by edge type, how many edges of the graph nearly any batch has at most."""
        likely = [0] * len(self._graph.edge_types)
        if self._options.with_edges:
            nodes = self.likely_nodes(inputs, of)
            for kind, relation in zip(self._walked, self._push.relations, strict=True):
                likely[self._graph.edge_types.index(kind)] = self._likely_among(nodes, relation)
        return likely

    def _likely_among(self, nodes: Sequence[int], relation: PushRelation) -> int:
        num_nodes = self._push.num_nodes[relation.expands]
        num_edges = self._graph.num_edges(relation.name)
        degree = num_edges / max(num_nodes, 1)
        return min(num_edges, math.ceil(min(nodes[relation.expands], num_nodes) * degree))

    def _likely_arrays(self, inputs: int, of: Owner) -> Iterator[ArraySpec]:
        most = dict(zip(self._graph.node_types, self._seeds.most_seeds(inputs, of), strict=True))
        links = [most[owner] * self._options.max_ppr_nodes for owner in self._types_of(of)]
        for count in self.likely_nodes(inputs, of):
            yield IDS, (count,)
            for each in links:
                yield IDS, (2, each)
                yield _SCORES, (each, self._options.width)
        for count in self.likely_edges(inputs, of):
            yield IDS, (3, count)
        yield from self._seeds.most_arrays(inputs, of)

    def _nodes(self, pushed: _Pushed) -> dict[str, Array]:
        owners = self._graph.node_types
        return {qualified(owner, "n_id"): pushed.nodes[t] for t, owner in enumerate(owners)}

    def _links(self, pushed: _Pushed) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for seeds, links in pushed.links.items():
            for owner, (index, attr) in zip(self._graph.node_types, links, strict=True):
                kind = self._link_type(seeds, owner)
                arrays[qualified(kind, "edge_index")] = index
                arrays[qualified(kind, "edge_attr")] = attr
        return arrays

    def _edges(self, pushed: _Pushed) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for kind, found in self._by_kind(pushed).items():
            arrays[qualified(kind, "edge_index")] = found.edge_index
            if self._with_edge_ids:
                arrays[qualified(kind, "e_id")] = found.edge_ids
        return arrays

    def _by_kind(self, pushed: _Pushed) -> dict[EdgeType, PushedEdges]:
        """Return the edges of types, if they are wanted: none of label types not followed."""
        if not self._options.with_edges:
            return {}
        nothing = PushedEdges(np.empty((2, 0), np.int64), np.empty(0, np.int64))
        found = dict(zip(self._walked, pushed.edges, strict=True))
        return {kind: found.get(kind, nothing) for kind in self._shown}

    def _link_type(self, seeds: str, owner: str) -> EdgeType:
        return (seeds, PPR, owner) if self._graph.is_hetero else self._graph.edge_types[0]

    def _counts(self, start: Seeds, pushed: _Pushed) -> dict[str, Any]:
        """Return how many nodes are seeds and how many were found, and how many edges there are."""
        nodes = {
            type_name(owner): [first, len(found) - first]
            for owner, first, found in zip(
                self._graph.node_types, start.num_seeds, pushed.nodes, strict=True
            )
        }
        edges = {
            type_name(self._link_type(seeds, owner)): [index.shape[1]]
            for seeds, links in pushed.links.items()
            for owner, (index, _) in zip(self._graph.node_types, links, strict=True)
        }
        for kind, found in self._by_kind(pushed).items():
            edges[type_name(kind)] = [len(found.edge_ids)]
        if self._graph.is_hetero:
            return {"num_sampled_nodes": nodes, "num_sampled_edges": edges}
        (of_nodes,), (of_edges,) = nodes.values(), edges.values()
        return {"num_sampled_nodes": of_nodes, "num_sampled_edges": of_edges}


@dataclass(frozen=True, slots=True, eq=False)
class _Pushed:
    """What was found from seeds of one or of several types.

    `nodes` are by number of their type, seeds first. `links` has, for each type of the seeds,
    `edge_index` and `edge_attr` by number of the other end's type. `edges` are by number of the
    relation; empty if they are not wanted.
    """

    nodes: list[Ids]
    links: dict[str, list[tuple[Ids, Array]]]
    edges: list[PushedEdges]


def _joined(
    samples: dict[str, PushSample], seeds: Sequence[Ids], relations: Sequence[PushRelation]
) -> _Pushed:
    """Return samples from seeds of different types as one, which has every other node once."""
    if len(samples) == 1:
        ((owner, sample),) = samples.items()
        return _Pushed(sample.nodes, {owner: _links_of(sample)}, sample.edges or [])
    lists = [Relabeler() for _ in seeds]
    for nodes, own in zip(lists, seeds, strict=True):
        nodes.add_seeds(own)
    links, edges = {}, []
    for owner, sample in samples.items():
        places = [nodes.relabel(ids) for nodes, ids in zip(lists, sample.nodes, strict=True)]
        links[owner] = [
            (np.stack((index[0], there[index[1]])), attr)
            for there, (index, attr) in zip(places, _links_of(sample), strict=True)
        ]
        edges.append(
            [
                PushedEdges(
                    np.stack(
                        (
                            places[relation.finds][found.edge_index[0]],
                            places[relation.expands][found.edge_index[1]],
                        )
                    ),
                    found.edge_ids,
                )
                for relation, found in zip(relations, sample.edges or [], strict=False)
            ]
        )
    together = [_each_once(found) for found in zip(*edges, strict=True)]
    return _Pushed([nodes.nodes() for nodes in lists], links, together)


def _links_of(sample: PushSample) -> list[tuple[Ids, Array]]:
    return [*zip(sample.edge_index, sample.edge_attr, strict=True)]


def _each_once(found: Sequence[PushedEdges]) -> PushedEdges:
    """Return edges that several walks have read, each where it was first."""
    ids = np.concatenate([each.edge_ids for each in found])
    ends = np.concatenate([each.edge_index for each in found], axis=1)
    firsts = np.sort(np.unique(ids, return_index=True)[1])
    return PushedEdges(ends[:, firsts], ids[firsts])


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


def needs_of(spec: PPRSpec, walked: Sequence[EdgeType]) -> list[DerivedArrays]:
    """Return the derived arrays by which these edge types are followed."""
    needed: list[DerivedArrays] = []
    for kind in walked:
        if spec.direction == "out":
            needed.append(OutEdges(kind))
        needed.append(DegreeSizes(kind, spec.direction))
    return needed


def options_of(
    spec: PPRSpec, graph: GraphView, relations: Sequence[EdgeType] | None = None
) -> PushOptions:
    """Return the kernel's options for a spec, with these edge types as relations (None: all)."""
    relations = graph.edge_types if relations is None else relations
    numbers = {kind: number for number, kind in enumerate(relations)}
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
                raise ValueError(
                    f"{here} names edge type {kind!r}, which the graph has not; it has: "
                    f"{', '.join(map(repr, graph.edge_types))}{suggestion(kind, graph.edge_types)}"
                )
        if len(set(kinds)) != len(kinds):
            raise ValueError(f"{here} names an edge type twice")
        check_number(share, f"share of {here}", 0.0, 1.0)
        if share == 0:
            raise ValueError(f"share of {here} is 0; expected a positive ratio")
    total = sum(share for _, _, share in spec.channels)
    if spec.channels and not math.isclose(total, 1.0, rel_tol=1e-9, abs_tol=1e-9):
        raise ValueError(f"the shares of the channels sum to {total}; expected 1.0")


def _relation(graph: Graph, rows: Rows, kind: EdgeType, spec: PPRSpec) -> PushRelation:
    source, destination = graph.node_types.index(kind[0]), graph.node_types.index(kind[2])
    ends = (destination, source) if spec.direction == "in" else (source, destination)
    (sizes,) = graph.derived(DegreeSizes(kind, spec.direction))
    return PushRelation(rows.of(kind, spec.direction), *ends, kind, sizes.array)
