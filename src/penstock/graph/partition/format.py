"""The folder `cut` of a part: what it says about itself, and all edges of the part's nodes.

It is a graph without types, whose arrays belong to it as a whole; docs/format.md names them. The
place of a type among those of the graph stands for the type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.errors import GraphFormatError
from penstock.graph.partition.book import Ids
from penstock.graph.schema import NODE, ArrayKey

if TYPE_CHECKING:
    from penstock.graph.graph import Graph

FORMAT: Final = 2
NOTE: Final = "partition"


@dataclass(frozen=True, eq=False)
class PartRows:
    """All edges of a part's nodes, node by node: neighbours and edges by their ids in the whole.

    `order` has the places of the edges in these rows, in the order of their ids. It is kept, not
    made: those who ask for a few edges do not pay for all.
    """

    indptr: Ids
    neighbors: Ids
    edges: Ids
    order: Ids

    def places(self, ids: Ids) -> Ids:
        """Where in the rows the edges of these ids are, all of which are there."""
        found: Ids = self.order[np.searchsorted(self.edges, ids, sorter=self.order)]
        return found

    def owners(self, places: Ids) -> Ids:
        """The rows that places are in: the numbers of their nodes within the part."""
        return np.searchsorted(self.indptr, places, side="right") - 1


def rows_of(topology: Any, nodes: Ids) -> PartRows:
    """The rows of some nodes, one after the other."""
    begins, degrees = topology.indptr[nodes], np.diff(topology.indptr)[nodes]
    indptr = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
    places = np.arange(indptr[-1]) + np.repeat(begins - indptr[:-1], degrees)
    neighbors = np.asarray(topology.indices)[places].astype(np.int64)
    edges = np.asarray(topology.edge_ids)[places].astype(np.int64)
    return PartRows(indptr, neighbors, edges, np.argsort(edges, kind="stable").astype(np.int64))


def cut_key(name: str) -> ArrayKey:
    """The key of an array."""
    return ArrayKey("graph", NODE, name)


def attribute_name(place: int, name: str) -> str:
    """Of an edge attribute in `cut`; the attribute may have any name."""
    return f"row_attribute_{place}_{name}"


def facts_of(cut: Graph) -> dict[str, Any]:
    """What a part says about itself, if it is one and can be read."""
    facts = cut.graph_attributes().get(NOTE)
    if not isinstance(facts, dict):
        raise GraphFormatError(f"this is not a part of a graph: its note is {facts!r}")
    if facts.get("format") != FORMAT:
        raise GraphFormatError(
            f"this part is of format {facts.get('format')!r}, and this version reads format "
            f"{FORMAT}: cut the graph again"
        )
    return facts
