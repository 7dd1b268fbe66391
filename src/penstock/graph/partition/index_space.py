"""All nodes of a graph in one index space, for methods that assign all types together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from penstock.kernels.streaming import RowsOfType

if TYPE_CHECKING:
    from penstock.graph.partition.assignment import Nodes


@dataclass(frozen=True)
class NodesOfType:
    """The nodes of one type.

    Attributes:
        name: The node type.
        base: Where they begin.
        size: How many there are.
        rows: The in-edges of these nodes, of each edge type that has some.
    """

    name: str
    base: int
    size: int
    rows: tuple[RowsOfType, ...]


@dataclass(frozen=True)
class IndexSpace:
    """Where the nodes of each type are, and all rows of in-edges between them."""

    types: tuple[NodesOfType, ...]

    @classmethod
    def of(cls, graph: Nodes) -> IndexSpace:
        """Return the index space of a whole graph: node types in their order."""
        sizes = {name: graph.num_nodes(name) for name in graph.node_types}
        bases, size = {}, 0
        for name in sizes:
            bases[name], size = size, size + sizes[name]
        rows: dict[str, list[RowsOfType]] = {name: [] for name in sizes}
        for edge_type in graph.edge_types:
            source, _, target = edge_type
            found = graph.csc(edge_type).rows
            rows[target].append(RowsOfType(found, bases[target], bases[source], sizes[source]))
        return cls(
            tuple(NodesOfType(name, bases[name], sizes[name], tuple(rows[name])) for name in sizes)
        )

    @property
    def size(self) -> int:
        """How many nodes there are, of all types."""
        return sum(each.size for each in self.types)

    @property
    def rows(self) -> list[RowsOfType]:
        """The rows of all edge types."""
        return [rows for each in self.types for rows in each.rows]

    def by_type(self, parts: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return what there is of each node, by node type."""
        return {each.name: parts[each.base : each.base + each.size] for each in self.types}
