"""Graphs as PyG passes them with every call: from tensors to relations of the kernels.

An edge type is a vector of offsets and one of neighbours, in which an edge's position is its id.
Weights and times have the same order. What has to be computed from them is computed once and
cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.compat.memory import TensorMemory
from penstock.compat.tensors import array_of, offsets_of, same_length
from penstock.kernels import Adjacency, KHop, Relation
from penstock.kernels.arrays import Array, check_fanout
from penstock.kernels.prepare import order_by_time, weight_sums
from penstock.kernels.subgraph import InducedEdges

if TYPE_CHECKING:
    from torch import Tensor

# The number of nodes of a type that no edge type expands is unknown, and does not matter.
_ANY_NUMBER: Final = 2**40
_MEMORY: Final = TensorMemory()


@dataclass(frozen=True, slots=True, eq=False)
class TensorEdges:
    """An edge type: the node types it expands and finds, and what its edges are chosen by."""

    rowptr: Tensor
    col: Tensor
    fanouts: tuple[int, ...]
    expands: int = 0
    finds: int = 0
    name: tuple[str, str, str] = ("", "", "")
    weight: Tensor | None = None
    node_time: Tensor | None = None
    edge_time: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.rowptr, self.col, self.weight, self.node_time, self.edge_time

    @property
    def place(self) -> tuple[object, ...]:
        """What else a relation depends on: its types, and which tensors are given."""
        there = tuple(tensor is not None for tensor in self.tensors)
        return self.expands, self.finds, self.name, there

    @property
    def words(self) -> str:
        """The edge type, for error messages."""
        return f" of {self.name}" if any(self.name) else ""

    def relation(self) -> Relation:
        """Return the kernels' relation, without fan-outs."""
        rowptr = offsets_of(self.rowptr, f"rowptr{self.words}")
        col = array_of(self.col, f"col{self.words}")
        adjacency = Adjacency(rowptr, col.astype(np.int64) if col.size == 0 else col)
        weights = times = None
        if self.weight is not None:
            weights = weight_sums(adjacency, self._by_edge(self.weight, "edge_weight", adjacency))
        elif self.edge_time is not None:
            given = self._by_edge(self.edge_time, "edge_time", adjacency)
            entries, times = order_by_time(adjacency, given)
            adjacency = Adjacency(rowptr, entries)
        elif self.node_time is not None:
            given = array_of(self.node_time, f"node_time{self.words}")
            entries, times = order_by_time(adjacency, given, of_nodes=True)
            adjacency = Adjacency(rowptr, entries)
        return Relation(adjacency, (), self.expands, self.finds, self.name, weights, times)

    def _by_edge(self, tensor: Tensor, name: str, adjacency: Adjacency) -> Array:
        array = array_of(tensor, f"{name}{self.words}")
        return same_length(array, adjacency.num_edges, f"{name}{self.words}", "edges")


@dataclass(frozen=True, slots=True)
class Manner:
    """How neighbours are sampled, independent of the graph."""

    num_hops: int
    replace: bool = False
    disjoint: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class TensorTopology:
    """All edge types of a graph, and the number of node types."""

    edges: tuple[TensorEdges, ...]
    num_types: int = 1

    def sampler(self, manner: Manner) -> KHop:
        """Return the sampler of neighbourhoods, cached."""
        fanouts = tuple(self._checked(edges) for edges in self.edges)
        return _MEMORY.recall(
            self._tensors, (*self._places, fanouts, manner), lambda: self._sampler(fanouts, manner)
        )

    def induced(self) -> InducedEdges:
        """Return the object that finds all edges among given nodes, cached."""

        def make() -> InducedEdges:
            relations = self.relations()
            return InducedEdges(self._num_nodes(relations), relations)

        return _MEMORY.recall(self._tensors, (*self._places, "induced"), make)

    def relations(self) -> list[Relation]:
        """Return one relation for each edge type, without fan-outs."""
        return [_MEMORY.recall(edges.tensors, edges.place, edges.relation) for edges in self.edges]

    @property
    def _tensors(self) -> list[Tensor | None]:
        return [tensor for edges in self.edges for tensor in edges.tensors]

    @property
    def _places(self) -> tuple[object, ...]:
        return (self.num_types, *(edges.place for edges in self.edges))

    def _sampler(self, fanouts: tuple[tuple[int, ...], ...], manner: Manner) -> KHop:
        bare = self.relations()
        relations = [
            Relation(
                relation.adjacency,
                hops,
                relation.expands,
                relation.finds,
                relation.name,
                relation.weights,
                relation.times,
            )
            for relation, hops in zip(bare, fanouts, strict=True)
        ]
        return KHop(
            self._num_nodes(bare),
            relations,
            num_hops=manner.num_hops,
            replace=manner.replace,
            disjoint=manner.disjoint,
            last=manner.last,
        )

    def _num_nodes(self, relations: list[Relation]) -> list[int]:
        """Return the number of nodes by type: the rows of the edge types that expand it."""
        found = [_ANY_NUMBER] * self.num_types
        for relation, edges in zip(relations, self.edges, strict=True):
            rows, known = relation.adjacency.num_nodes, found[edges.expands]
            if known not in (_ANY_NUMBER, rows):
                raise ValueError(
                    f"rowptr{edges.words} has {rows} rows; another of its type {known}"
                )
            found[edges.expands] = rows
        return found

    def _checked(self, edges: TensorEdges) -> tuple[int, ...]:
        return tuple(
            check_fanout(fanout, f"num_neighbors{edges.words}[{hop}]")
            for hop, fanout in enumerate(edges.fanouts)
        )
