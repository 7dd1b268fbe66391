"""Random walks over a graph: from types and options to steps of the kernel, and to a batch.

A batch is a pure function of (graph, spec, seed, epoch, index, seeds). This module knows types, and
nothing about processes or torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice, pairwise
from typing import Any, Final

import numpy as np

from penstock.errors import suggestion
from penstock.graph import EdgeType, Graph
from penstock.graph.derived import DerivedArrays, OutEdges, SortedNeighbors
from penstock.graph.layout import layout
from penstock.graph.schema import EDGE
from penstock.graph.view import GraphView
from penstock.kernels import Relabeler
from penstock.kernels import walks as kernel
from penstock.kernels.arrays import Array, Ids, check_integer
from penstock.sampling.attributes import columns_of
from penstock.sampling.batches import Batches
from penstock.sampling.buffered import BufferedBatches, Sampled
from penstock.sampling.columns import check_begins
from penstock.sampling.kinds import SamplingKind
from penstock.sampling.names import Owner, qualified, type_name
from penstock.sampling.request import Request
from penstock.sampling.rows import Rows
from penstock.sampling.seeds import IDS, ArraySpec
from penstock.sampling.spec import Feed, WalkSpec

# Bounds that no use comes near, but a mistake may exceed: a walk needs memory for every step.
_MOST_STEPS: Final = 2**16
_MOST_WALKS: Final = 2**20
_MOST_ENTRIES: Final = 2**24
# The relative cost of a step where edges must be looked up, and drawn again.
_BIASED_COST: Final = 4.0


class WalkKind(SamplingKind[WalkSpec]):
    """Random walks from seeds."""

    draws_from_rows = False

    def check(self, spec: WalkSpec, graph: GraphView) -> None:
        """Raise `ValueError` unless this graph can be sampled by the spec."""
        check_walk(spec, graph)

    def check_inputs(
        self,
        spec: WalkSpec,
        graph: GraphView,
        feed: Feed,
        columns: Mapping[str, Array],
        tables: Mapping[str, Array],
    ) -> None:
        """Raise `ValueError` unless the path begins at the type of the seeds."""
        if spec.path:
            begins = spec.path[0][0 if spec.direction == "out" else 2]
            check_begins(feed, begins, "walks of this path begin at")

    def needs(self, spec: WalkSpec, graph: GraphView) -> Sequence[DerivedArrays]:
        """Return out-edges, if they are followed, and for biased walks rows to look up edges in."""
        kinds = dict.fromkeys(spec.path if spec.path is not None else (EDGE,))
        needed: list[DerivedArrays] = (
            [OutEdges(kind) for kind in kinds] if spec.direction == "out" else []
        )
        return [*needed, SortedNeighbors(EDGE)] if _is_biased(spec) else needed

    def draws(self, spec: WalkSpec, graph: GraphView, inputs: int, of: Owner) -> float:
        """Return roughly how many edges a batch reads."""
        steps = float(inputs * spec.walks_per_node * spec.walk_length)
        return inputs + steps * (_BIASED_COST if _is_biased(spec) else 1.0)

    def batches(self, spec: WalkSpec, graph: Graph) -> Batches:
        """Return batches that are sampled first and written afterwards."""
        return BufferedBatches(graph, spec, WalkSampler(graph, spec))


class WalkSampler:
    """Samples walks from the seeds of a batch; for one thread at a time.

    `walk` is [walks, walk_length + 1]: row `w * batch_size + i` is the w-th walk from seed i, which
    comes first. Its entries are positions in `n_id`; `walk_edges` [walks, walk_length] has the id
    of the edge that each step took, in either direction. `n_id` has the seeds in the order given,
    then every other node once: those of the first steps of all walks, then of the second, and so
    on.

    A walk that reaches a node without edges to follow stays there, and the edges of those steps are
    -1. Along a `path` of edge types it ends instead: its further nodes are -1, too. Then column s
    of `walk` has positions in the `n_id` of node type `walk_node_types[s]`, and column s of
    `walk_edges` ids of edge type `walk_edge_types[s]`; both arrays belong to the seeds' type.
    """

    own = frozenset({"walk", "walk_edges"})

    def __init__(self, graph: Graph, spec: WalkSpec) -> None:
        check_walk(spec, graph)
        self._graph = graph
        self._spec = spec
        self._path = spec.path if spec.path is not None else (EDGE,)
        self._types = _types_of(self._path, spec)
        self._rows = Rows(graph)
        self._steps = [_step(graph, self._rows, kind, spec) for kind in self._path]
        self._sorted = _sorted_rows(self._rows, spec) if _is_biased(spec) else None
        self._places = [Relabeler() for _ in graph.node_types]

    def cut(self, request: Request) -> Sampled:
        """Sample the walks from the seeds of a batch."""
        self._check_type(request.node_type)
        spec = self._spec
        walks, edges = self._rows.complete(
            lambda: kernel.walk(
                self._steps,
                request.seeds,
                request.key,
                length=spec.walk_length,
                rounds=spec.walks_per_node,
                stays=not self._graph.is_hetero,
                p=spec.p,
                q=spec.q,
                sorted_rows=self._sorted,
            )
        )
        nodes = self._name(request.seeds, walks)
        owned = {"input_id": request.positions, "walk": walks}
        if spec.with_edge_ids:
            owned["walk_edges"] = edges
        arrays: dict[str, Array] = {
            **{qualified(owner, "n_id"): nodes[number] for owner, number in self._numbers()},
            **{qualified(request.node_type, name): array for name, array in owned.items()},
        }
        return Sampled(arrays, [*nodes], [None] * len(self._graph.edge_types), self._facts(request))

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room in which the arrays of any batch fit, without attributes."""
        self._check_type(of)
        return layout(self._likely_arrays(inputs, of)).nbytes

    def likely_nodes(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by node type, how many nodes a batch has at most."""
        walks = inputs * self._spec.walks_per_node
        found = [walks * self._types[1:].count(name) for name in self._graph.node_types]
        return [
            (inputs if name == of else 0) + min(count, self._graph.num_nodes(name))
            for name, count in zip(self._graph.node_types, found, strict=True)
        ]

    def likely_edges(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return zeros: walks have no edge attributes."""
        return [0] * len(self._graph.edge_types)

    def _name(self, seeds: Ids, walks: Array) -> list[Ids]:
        """Turn ids into positions, in place; return the nodes of each type in order."""
        for places in self._places:
            places.clear()
        self._place_of(self._types[0]).add_seeds(seeds)
        for column, name in enumerate(self._types):
            walks[:, column] = self._relabeled(name, walks[:, column])
        return [places.nodes() for places in self._places]

    def _relabeled(self, name: str, ids: Array) -> Array:
        """Return the positions of ids; -1 stays -1."""
        there = ids >= 0
        if there.all():
            return self._place_of(name).relabel(ids)
        found = np.full(len(ids), -1, np.int64)
        found[there] = self._place_of(name).relabel(ids[there])
        return found

    def _place_of(self, name: str) -> Relabeler:
        return self._places[self._graph.node_types.index(name)]

    def _numbers(self) -> Iterator[tuple[str, int]]:
        return ((owner, number) for number, owner in enumerate(self._graph.node_types))

    def _facts(self, request: Request) -> dict[str, Any]:
        facts: dict[str, Any] = {"batch_size": len(request.seeds)}
        if self._graph.is_hetero:
            facts["input_type"] = request.node_type
            facts["walk_node_types"] = list(self._types)
            taken = islice(cycle(self._path), self._spec.walk_length)
            facts["walk_edge_types"] = [type_name(kind) for kind in taken]
        return facts

    def _likely_arrays(self, inputs: int, of: Owner) -> Iterator[ArraySpec]:
        for count in self.likely_nodes(inputs, of):
            yield IDS, (count,)
        yield IDS, (inputs,)
        yield IDS, (inputs * self._spec.walks_per_node, self._spec.walk_length + 1)
        if self._spec.with_edge_ids:
            yield IDS, (inputs * self._spec.walks_per_node, self._spec.walk_length)

    def _check_type(self, name: Owner) -> None:
        if name != self._types[0]:
            raise ValueError(
                f"node_type is {name!r}; the walks of this path begin at {self._types[0]!r}"
            )


def check_walk(spec: WalkSpec, graph: GraphView) -> None:
    """Raise `ValueError` unless this graph can be sampled by the spec."""
    check_integer(spec.walk_length, "walk_length", 1, _MOST_STEPS)
    check_integer(spec.walks_per_node, "walks_per_node", 1, _MOST_WALKS)
    if (entries := spec.walks_per_node * (spec.walk_length + 1)) > _MOST_ENTRIES:
        raise ValueError(
            f"walks_per_node is {spec.walks_per_node} and walk_length {spec.walk_length}: the "
            f"walks of one seed have {entries} places, and may have {_MOST_ENTRIES}"
        )
    kernel.check_bias(spec.p, "p")
    kernel.check_bias(spec.q, "q")
    if spec.direction not in ("in", "out"):
        raise ValueError(f"direction is {spec.direction!r}; expected 'in' or 'out'")
    if spec.edge_attributes:
        raise ValueError(
            f"edge_attributes is {spec.edge_attributes!r}; no attributes of edges go with walks: "
            "walk_edges has the ids to look them up by"
        )
    columns_of(graph, spec, WalkSampler.own)
    if graph.is_hetero:
        _check_path(spec, graph)
    elif spec.path is not None:
        raise ValueError("path is given, and this graph has no types: leave it out")


def _check_path(spec: WalkSpec, graph: GraphView) -> None:
    """Check the path; what PyG refuses, too, is refused in PyG's words."""
    if not spec.path:
        raise ValueError("path is missing; a walk over types needs the edge types to follow")
    for step, kind in enumerate(spec.path):
        if kind not in graph.edge_types:
            there = ", ".join(map(repr, graph.edge_types))
            close = suggestion(kind, graph.edge_types)
            raise ValueError(f"path[{step}] is {kind!r}; this graph has {there}{close}")
    begins, leads = (0, 2) if spec.direction == "out" else (2, 0)
    for step, (kind, after) in enumerate(pairwise(spec.path)):
        if kind[leads] != after[begins]:
            raise ValueError(
                "Found invalid metapath. Ensure that the destination node type matches with the "
                "source node type across all consecutive edge types: "
                f"path[{step}] leads to {kind[leads]!r}, and path[{step + 1}] begins at "
                f"{after[begins]!r}"
            )
    if spec.walk_length > len(spec.path) and spec.path[0][begins] != spec.path[-1][leads]:
        raise ValueError(
            "The 'walk_length' is longer than the given 'metapath', but the 'metapath' does not "
            f"denote a cycle: walk_length is {spec.walk_length}, and path has {len(spec.path)} "
            f"steps from {spec.path[0][begins]!r} to {spec.path[-1][leads]!r}"
        )
    if _is_biased(spec):
        raise ValueError(
            f"p is {spec.p} and q is {spec.q}; walks along a path are uniform: expected 1.0"
        )


def _is_biased(spec: WalkSpec) -> bool:
    return spec.p != 1 or spec.q != 1


def _types_of(path: Sequence[EdgeType], spec: WalkSpec) -> tuple[str, ...]:
    """Return the node type of each column of the walks."""
    begins, leads = (0, 2) if spec.direction == "out" else (2, 0)
    found = islice(cycle(kind[leads] for kind in path), spec.walk_length)
    return (path[0][begins], *found)


def _step(graph: Graph, rows: Rows, kind: EdgeType, spec: WalkSpec) -> kernel.Step:
    found = kind[2] if spec.direction == "out" else kind[0]
    return kernel.Step(rows.of(kind, spec.direction), graph.num_nodes(found))


def _sorted_rows(rows: Rows, spec: WalkSpec) -> kernel.WalkRows:
    """Return sorted in-edges; they serve both directions: an edge is found from either end."""
    return kernel.WalkRows(rows.sorted(EDGE), is_reversed=spec.direction == "out")
