"""What users say about parts, as plain data: the words of `penstock partition`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.errors import suggestion
from penstock.graph.partition.assignment import METHODS as OF_GRAPHS
from penstock.graph.partition.assignment import check_passes
from penstock.graph.partition.note import Edges, Layout
from penstock.graph.partition.partition import check_words

# What a whole graph can be cut by, and a column of the tables of nodes.
COLUMN: Final = "column"
METHODS: Final = (*OF_GRAPHS, COLUMN)
# Methods that go by neighbours: edges are sorted before nodes have parts.
_BY_NEIGHBOURS: Final = ("locality", "streaming")


class Cutting(msgspec.Struct, frozen=True, kw_only=True):
    """How a graph is cut into parts.

    Attributes:
        n: The number of parts.
        method: How nodes are assigned: "range", "hash", "locality" or "streaming"; "column", the
            column `part` of each table of nodes; or as given, an array for each node type. None:
            "column" if a table of nodes has `part`, else "range".
        edges: The end that edges go with: "destination", "source" or "both".
        topology: Whether a part has the edges of its own nodes ("parts"), or all ("whole").
        passes: How often "streaming" goes through all edges at most.
    """

    n: int
    method: Any = None
    edges: Edges = "destination"
    topology: Layout = "parts"
    passes: int | None = None

    @property
    def by_neighbours(self) -> bool:
        """Whether nodes are assigned by the edges between them."""
        return isinstance(self.method, str) and self.method in _BY_NEIGHBOURS

    @property
    def by_column(self) -> bool:
        """Whether a column says which part has a node."""
        return isinstance(self.method, str) and self.method == COLUMN


def cutting_of(given: Any) -> Cutting:
    """Return what was said of parts: their number, or words and values.

    Raises:
        ValueError: A word is unknown, or a value makes no sense.
    """
    words = dict(given) if isinstance(given, Mapping) else {"n": given}
    for word in words:
        if word not in Cutting.__struct_fields__:
            near = suggestion(str(word), Cutting.__struct_fields__)
            there = ", ".join(Cutting.__struct_fields__)
            raise ValueError(
                f"parts has the word {word!r}, which is not known{near or f'; there are: {there}'}"
            )
    if "n" not in words:
        raise ValueError("parts lacks 'n': how many there are to be")
    said = Cutting(**words)
    try:
        check_words(said.n, said.edges, said.topology)
        check_passes(said.passes, said.method)
    except ValueError as error:
        raise ValueError(f"parts.{error}") from None
    if isinstance(said.method, str) and said.method not in METHODS:
        raise ValueError(
            f"parts.method is {said.method!r}; expected one of {', '.join(METHODS)}"
            f"{suggestion(said.method, METHODS)}"
        )
    return said
