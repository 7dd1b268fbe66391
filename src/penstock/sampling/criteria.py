"""The attributes that decide which edges are taken: weights to draw by, and times as limits.

Determines which edge types of a graph these apply to, and which derived arrays they need. Knows
nothing about fan-outs, seeds or batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import suggestion
from penstock.graph import EdgeType, Graph
from penstock.graph.codec import Codec
from penstock.graph.derived import ByTime, DerivedArrays, OutEdges, WeightSums
from penstock.graph.features import FeatureSource
from penstock.graph.view import ArrayView, GraphView
from penstock.kernels import Adjacency
from penstock.kernels.arrays import Array
from penstock.sampling.spec import Direction

_TIMES: Final = ("int32", "int64")
_WEIGHTS: Final = ("int", "uint", "float", "bfloat")


@dataclass(frozen=True, slots=True)
class Criteria:
    """How the edges of each type are chosen; uniformly for types in neither set.

    With `of_nodes`, a time is that of the node an edge leads to, instead of the edge's own. With
    `last`, the latest edges are taken instead of any.
    """

    direction: Direction
    weight_attr: str | None = None
    time_attr: str | None = None
    of_nodes: bool = False
    last: bool = False
    weighted: frozenset[EdgeType] = frozenset()
    timed: frozenset[EdgeType] = frozenset()

    @classmethod
    def of(
        cls,
        graph: GraphView,
        direction: Direction = "in",
        weight_attr: str | None = None,
        time_attr: str | None = None,
        temporal_strategy: str = "uniform",
    ) -> Criteria:
        """Return what these arguments mean for a graph; `ValueError` if they are not valid."""
        if direction not in ("in", "out"):
            raise ValueError(f"direction is {direction!r}; expected 'in' or 'out'")
        if temporal_strategy not in ("uniform", "last"):
            raise ValueError(
                f"No valid temporal strategy found: temporal_strategy is {temporal_strategy!r}; "
                "expected 'uniform' or 'last'"
            )
        of_nodes = time_attr is not None and _is_of_nodes(graph, time_attr)
        if weight_attr is not None and time_attr is not None:
            level = "node" if of_nodes else "edge"
            raise ValueError(
                f"Biased {level} temporal sampling not yet supported: weight_attr is "
                f"{weight_attr!r} and time_attr is {time_attr!r}; give one of them"
            )
        found = 0 if direction == "in" else 2
        return cls(
            direction,
            weight_attr,
            time_attr,
            of_nodes,
            temporal_strategy == "last",
            frozenset(() if weight_attr is None else _weighted(graph, weight_attr)),
            frozenset(() if time_attr is None else _timed(graph, time_attr, of_nodes, found)),
        )

    @property
    def is_temporal(self) -> bool:
        return self.time_attr is not None

    def derived_arrays(self, graph: GraphView) -> list[DerivedArrays]:
        """Return the derived arrays that the graph needs before it can be sampled so."""
        needed: list[DerivedArrays] = []
        for name in graph.edge_types:
            if self.direction == "out":
                needed.append(OutEdges(name))
            if self.weight_attr is not None and name in self.weighted:
                needed.append(WeightSums(name, self.weight_attr, self.direction))
            if self.time_attr is not None and name in self.timed:
                needed.append(ByTime(name, self.time_attr, self.of_nodes, self.direction))
        return needed

    def rows(self, graph: Graph, name: EdgeType) -> tuple[Adjacency, Array | None, Array | None]:
        """Return the rows of an edge type, with their running sums of weights or their times."""
        return chosen_rows(
            graph,
            name,
            self.direction,
            self.weight_attr if name in self.weighted else None,
            self.time_attr if name in self.timed else None,
            of_nodes=self.of_nodes,
        )

    def own_times(self, graph: GraphView, node_type: str) -> FeatureSource:
        """Return the times of the nodes of a type. `ValueError` if they have none."""
        there = graph.node_attributes(node_type)
        if not self.of_nodes or self.time_attr is None or self.time_attr not in there:
            of = f" of {node_type!r}" if node_type else ""
            raise ValueError(
                f"Seed time needs to be specified: nodes{of} have no {self.time_attr!r} themselves"
            )
        return graph.node_features(self.time_attr, node_type)


def chosen_rows(
    graph: Graph,
    name: EdgeType,
    side: Direction,
    weight_attr: str | None = None,
    time_attr: str | None = None,
    *,
    of_nodes: bool = False,
) -> tuple[Adjacency, Array | None, Array | None]:
    """Return the rows of an edge type, with running sums of a weight, or in the order of a time."""
    if weight_attr is None and time_attr is None:
        return graph.rows(name, side), None, None
    rows = graph.own_rows(name, side)
    if time_attr is not None:
        topology, times = graph.by_time(name, time_attr, of_nodes=of_nodes, side=side)
        return Adjacency(rows.indptr, topology.adjacency, rows.members), None, times
    assert weight_attr is not None
    return rows, graph.weight_sums(name, weight_attr, side), None


def _is_of_nodes(graph: GraphView, name: str) -> bool:
    """Return whether this time is an attribute of nodes, not of edges."""
    nodes = [found for kind in graph.node_types for found in graph.node_attributes(kind)]
    edges = [found for kind in graph.edge_types for found in graph.edge_attributes(kind)]
    if name in nodes and name in edges:
        raise ValueError(
            f"The time attribute '{name}' holds both node-level and edge-level information"
        )
    if name not in nodes and name not in edges:
        raise ValueError(
            f"The time attribute '{name}' is neither a node-level or edge-level attribute; "
            f"nodes have: {_listed(nodes)}; edges have: {_listed(edges)}"
            f"{suggestion(name, [*nodes, *edges])}"
        )
    return name in nodes


def _weighted(graph: GraphView, name: str) -> Iterable[EdgeType]:
    """Return the edge types that have this weight; edges of others are drawn uniformly."""
    found = {kind: graph.edge_attributes(kind) for kind in graph.edge_types}
    weighted = [kind for kind, there in found.items() if name in there]
    if not weighted:
        there = [attribute for attributes in found.values() for attribute in attributes]
        raise ValueError(
            f"weight_attr is {name!r}, which no edges have; they have: {_listed(there)}"
        )
    for kind in weighted:
        said = f"The weight attribute '{name}'"
        _check_exact(said, kind, graph.edge_codec(name, kind))
        _check(said, kind, found[kind][name], _WEIGHTS, "numbers")
    return weighted


def _timed(graph: GraphView, name: str, of_nodes: bool, found: int) -> Iterable[EdgeType]:
    """Return the edge types to which this time applies; others are not restricted."""
    owners: Mapping[Any, Mapping[str, ArrayView]] = (
        {kind: graph.node_attributes(kind) for kind in graph.node_types}
        if of_nodes
        else {kind: graph.edge_attributes(kind) for kind in graph.edge_types}
    )
    for kind, attributes in owners.items():
        if name in attributes:
            said = f"The time attribute '{name}'"
            codec = graph.node_codec(name, kind) if of_nodes else graph.edge_codec(name, kind)
            _check_exact(said, kind, codec)
            _check(said, kind, attributes[name], _TIMES, "int64 or int32")
    return [kind for kind in graph.edge_types if name in owners[kind[found] if of_nodes else kind]]


def _check(
    what: str, owner: str | EdgeType, array: ArrayView, kinds: tuple[str, ...], expected: str
) -> None:
    if array.dtype.startswith(kinds) and len(array.shape) == 1:
        return
    of = f" of {owner!r}" if any(owner) else ""
    raise ValueError(
        f"{what}{of} is {array.dtype} {list(array.shape)}; expected {expected}, one for each"
    )


def _check_exact(what: str, owner: str | EdgeType, codec: Codec | None) -> None:
    if codec is not None:
        of = f" of {owner!r}" if any(owner) else ""
        raise ValueError(
            f"{what}{of} is stored as {codec.stored} (quantize): weights and times are read as "
            "they are stored"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, dict.fromkeys(names))) or "none"
