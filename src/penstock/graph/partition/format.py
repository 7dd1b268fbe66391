"""The folder `cut` of a part: what the part says about itself, and all edges of its nodes.

It is saved as a graph without types, whose arrays belong to it as a whole; docs/format.md names
them. A type is identified by its position among the graph's types.
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
    """All edges of a part's nodes, node by node, with global ids of neighbours and edges.

    `order` has the positions of the edges in these rows, in the order of their ids. It is stored,
    not computed: looking up a few edges must not cost as much as sorting all.
    """

    indptr: Ids
    neighbors: Ids
    edges: Ids
    order: Ids

    def places(self, ids: Ids) -> Ids:
        """Return the positions in the rows of the edges with these ids, all of which are there."""
        found: Ids = self.order[np.searchsorted(self.edges, ids, sorter=self.order)]
        return found

    def owners(self, places: Ids) -> Ids:
        """Return the rows that contain these positions: the local ids of their nodes."""
        return np.searchsorted(self.indptr, places, side="right") - 1


def rows_of(topology: Any, nodes: Ids) -> PartRows:
    """Return the rows of some nodes, one after the other."""
    begins, degrees = topology.indptr[nodes], np.diff(topology.indptr)[nodes]
    indptr = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
    places = np.arange(indptr[-1]) + np.repeat(begins - indptr[:-1], degrees)
    neighbors = np.asarray(topology.indices)[places].astype(np.int64)
    edges = np.asarray(topology.edge_ids)[places].astype(np.int64)
    return PartRows(indptr, neighbors, edges, np.argsort(edges, kind="stable").astype(np.int64))


def cut_key(name: str) -> ArrayKey:
    """Return the key of an array of the cut."""
    return ArrayKey("graph", NODE, name)


def attribute_name(place: int, name: str) -> str:
    """Return the name of an edge attribute in `cut`; the attribute itself may have any name."""
    return f"row_attribute_{place}_{name}"


def facts_of(cut: Graph) -> dict[str, Any]:
    """Return what a part says about itself; raise if it is not a part or cannot be read."""
    facts = cut.graph_attributes().get(NOTE)
    if not isinstance(facts, dict):
        raise GraphFormatError(f"this is not a part of a graph: its note is {facts!r}")
    if facts.get("format") != FORMAT:
        raise GraphFormatError(
            f"this part is of format {facts.get('format')!r}, and this version reads format "
            f"{FORMAT}: cut the graph again"
        )
    return facts
