"""What a server holds: a whole graph or one partition of it, addressed by global ids.

Ids that come from outside are always global ids, those of the whole graph. An id that does not
exist, or belongs to another partition, is an error that names it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph import Graph
from penstock.graph.lookup import known
from penstock.graph.partition.book import PartitionBook, RangeBook
from penstock.graph.partition.partition import Partition
from penstock.graph.schema import EDGE, NODE, EdgeType
from penstock.graph.shared import SharedArray
from penstock.wire.messages import PartitionNote
from penstock.wire.requests import EdgeDir

Ids = npt.NDArray[np.int64]


class ServedDataset:
    """The served data: `graph` has local ids from 0; `part` is the partition, if it is one."""

    def __init__(self, data: Graph | Partition) -> None:
        if not isinstance(data, Graph | Partition):
            raise ValueError(
                f"the data is a {type(data).__name__}; expected a graph, or a part of one: give "
                "Graph.open(path) or Partition.open(path)"
            )
        self.part = data if isinstance(data, Partition) else None
        self.graph = data.graph if isinstance(data, Partition) else data

    @property
    def number(self) -> int:
        """Return which partition this is."""
        return 0 if self.part is None else self.part.number

    @property
    def num_partitions(self) -> int:
        """Return how many partitions there are."""
        return 1 if self.part is None else self.part.num_partitions

    @property
    def edge_dir(self) -> EdgeDir:
        """Return which edges of its nodes are here: all that lead in, or all that lead out."""
        return "in" if self.part is None else self.part.edge_dir

    def note(self, peers: tuple[str, ...] = ()) -> PartitionNote:
        """Return the partition's description for `Welcome`."""
        if self.part is None:
            return PartitionNote(peers=peers)
        ranges = {
            name: book.bounds[self.number : self.number + 2]
            for name, book in self.part.node_books.items()
            if isinstance(book, RangeBook)
        }
        return PartitionNote(
            number=self.number,
            of=self.num_partitions,
            method=self.part.method,
            ranges={name: (first, end) for name, (first, end) in ranges.items()},
            sizes={name: book.size for name, book in self.part.node_books.items()},
            edge_dir=self.part.edge_dir,
            peers=peers,
        )

    # --- types ---

    def node_type(self, given: Any) -> str:
        """Return the node type that is meant; `ValueError` names the existing ones."""
        if given is None and not self.graph.is_hetero:
            return NODE
        types = self.graph.node_types
        return known("node_type", given, dict.fromkeys(types, 0))

    def edge_type(self, given: Any) -> EdgeType:
        """Return the edge type that is meant; `ValueError` names the existing ones."""
        if given is None and not self.graph.is_hetero:
            return EDGE
        wanted = tuple(given) if isinstance(given, list) else given
        return known("edge_type", wanted, dict.fromkeys(self.graph.edge_types, 0))

    # --- ids ---

    def node_book(self, node_type: str) -> PartitionBook:
        """Return the partition book of the nodes of a type."""
        if self.part is None:
            return RangeBook((0, self.graph.num_nodes(node_type)))
        return self.part.node_books[node_type]

    def edge_book(self, edge_type: EdgeType) -> PartitionBook:
        """Return the partition book of the edges of a type."""
        if self.part is None:
            return RangeBook((0, self.graph.num_edges(edge_type)))
        return self.part.edge_books[edge_type]

    def local_nodes(self, node_type: str, ids: Any) -> Ids:
        """Return the local ids of nodes given by global ids."""
        given = self._here(self.node_book(node_type), ids)
        if self.part is None:
            return given
        return np.searchsorted(self.part.node_ids[node_type], given).astype(np.int64)

    def global_nodes(self, node_type: str, rows: Ids) -> Ids:
        """Return the global ids of nodes given by local ids."""
        if self.part is None:
            return rows
        ids: Ids = self.part.node_ids[node_type][rows]
        return ids

    # --- edges ---

    def num_edges(self, edge_type: EdgeType) -> int:
        """Return how many edges of a type are here, including those that leave a partition."""
        held = self.graph if self.part is None else self.part
        return held.num_edges(edge_type)

    def edge_attributes(self, edge_type: EdgeType) -> dict[str, SharedArray]:
        """Return the edges' attributes, by name; `edge_rows` says where an edge's row is."""
        held = self.graph if self.part is None else self.part
        return held.edge_attributes(edge_type)

    def edge_rows(self, edge_type: EdgeType, ids: Any = None) -> Ids | None:
        """Return the rows of edges in their attributes; without ids, of all edges by id.

        None means that the rows are in the order of ids already.
        """
        if ids is None:
            return None if self.part is None else self.part.rows(edge_type).order
        given = self._here(self.edge_book(edge_type), ids)
        return given if self.part is None else self.part.rows(edge_type).places(given)

    def _here(self, book: PartitionBook, ids: Any) -> Ids:
        parts = book.partition_of(ids)  # raises for ids that do not exist
        given = np.asarray(ids).astype(np.int64, copy=False)
        self._check_here(given, parts)
        return given

    def _check_here(self, ids: Ids, parts: npt.NDArray[np.int32]) -> None:
        foreign = parts != self.number
        if foreign.any():
            at = int(np.argmax(foreign))
            raise ValueError(
                f"ids[{at}] is {ids[at]}, which is in part {parts[at]}; "
                f"this server has part {self.number} of {self.num_partitions}"
            )
