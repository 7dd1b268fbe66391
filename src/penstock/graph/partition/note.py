"""What the parts of a graph say of the cut: who cut how, and how much each part has.

It follows from books and counts alone, whoever cuts: a cutter that has the graph, or a build from
tables that never has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias

from penstock.graph.checksum import sum_of_array, sum_of_bytes
from penstock.graph.partition.book import ArrayBook, PartitionBook, RangeBook
from penstock.graph.schema import EdgeType, PartNote, Side

Edges: TypeAlias = Literal["destination", "source", "both"]
Layout: TypeAlias = Literal["parts", "whole"]

EDGES: Final = ("destination", "source", "both")
LAYOUTS: Final = ("parts", "whole")


@dataclass(frozen=True)
class Balance:
    """How even the parts of a graph are: what the largest part has, over the mean of all parts.

    Attributes:
        nodes: The ratio for nodes of each type; 1.0 is even.
        edges: The ratio for edges of each type.
    """

    nodes: dict[str, float]
    edges: dict[EdgeType, float]

    @classmethod
    def of(
        cls, num_nodes: Mapping[str, list[int]], num_edges: Mapping[EdgeType, list[int]]
    ) -> Balance:
        """Return the balance of parts, given what each of them has."""
        return cls(
            {name: _ratio(counts) for name, counts in num_nodes.items()},
            {name: _ratio(counts) for name, counts in num_edges.items()},
        )


@dataclass(frozen=True)
class Cut:
    """How a graph was cut.

    Attributes:
        parts: How many parts there are.
        edges: The end that an edge goes with.
        topology: The layout.
        version: The version of the whole graph.
        books: Which part has each node, by node type.
        num_nodes: How many nodes each part has, by node type.
        num_edges: How many edges belong to each part, by edge type.
        edges_cut: How many of these have their other end in another part.
        splits: The sizes of the whole graph's splits, by node type and name.
    """

    parts: int
    edges: Edges
    topology: Layout
    version: str
    books: Mapping[str, PartitionBook]
    num_nodes: Mapping[str, list[int]]
    num_edges: Mapping[EdgeType, list[int]]
    edges_cut: Mapping[EdgeType, list[int]]
    splits: Mapping[str, dict[str, int]]

    def note(self, part: int) -> PartNote:
        """Return what a part says of itself."""
        return PartNote(
            number=part,
            of=self.parts,
            method=method_of(self.books),
            edges=self.edges,
            topology=self.topology,
            version=self.version,
            cut=self._digest,
            num_nodes=tuple(counts[part] for counts in self.num_nodes.values()),
            num_edges=tuple(counts[part] for counts in self.num_edges.values()),
            edges_cut=tuple(counts[part] for counts in self.edges_cut.values()),
            bounds={
                name: book.bounds
                for name, book in self.books.items()
                if isinstance(book, RangeBook)
            },
            splits={name: sizes for name, sizes in self.splits.items() if sizes},
        )

    @property
    def balance(self) -> Balance:
        """How even the parts are."""
        return Balance.of(self.num_nodes, self.num_edges)

    @cached_property
    def _digest(self) -> str:
        assigned = {name: _identity(book) for name, book in self.books.items()}
        method = method_of(self.books)
        how = [self.version, method, self.parts, self.edges, self.topology, assigned]
        return sum_of_bytes(json.dumps(how, sort_keys=True).encode())


def owning_side(edges: Edges) -> Side:
    """Return the side by whose rows edges, with their attributes, belong to parts."""
    return "out" if edges == "source" else "in"


def method_of(books: Mapping[str, PartitionBook]) -> Literal["range", "hash", "given"]:
    """Return how parts call the way in which nodes were assigned."""
    if any(isinstance(book, ArrayBook) for book in books.values()):
        return "given"
    return "range" if all(isinstance(book, RangeBook) for book in books.values()) else "hash"


def _identity(book: PartitionBook) -> object:
    """Return plain data that differs for other assignments."""
    if isinstance(book, ArrayBook):
        return sum_of_array(book.parts)
    return book.bounds if isinstance(book, RangeBook) else None


def _ratio(counts: list[int]) -> float:
    """Return what the largest part has over the mean; 1.0 where there is nothing."""
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0
