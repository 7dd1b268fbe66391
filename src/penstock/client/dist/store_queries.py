"""Answers queries about a store: for the whole graph, wherever its parts are.

A slice of a server (`ServerSlice`) is one of that server's part, as when the server is asked
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from penstock.client.dist.dataset import Ids, ServedDataset
from penstock.client.dist.queries import Queries, check_split
from penstock.client.dist_calls import VERBS
from penstock.core.slices import ServerSlice
from penstock.errors import PenstockError
from penstock.graph.partition.book import ArrayBook, PartitionBook, part_dtype
from penstock.graph.schema import EdgeType
from penstock.store.graph import StoreGraph
from penstock.wire.requests import FetchNodesRequest

# Bytes of one answer: it is put together in this process.
_MOST_BYTES: Final = 1 << 40


class StoreQueries(Queries):
    """The queries of `DistQueries`, about all parts together.

    Args:
        graph: The graph in parts.
        statistics: Called for the statistics of the store's servers.
        hub_statistics: Called for those of the hub that samples it.
        max_labels: Labels of an anchor, unless a request says otherwise.
    """

    def __init__(
        self,
        graph: StoreGraph,
        statistics: Callable[[], dict[str, Any]] = dict,
        hub_statistics: Callable[[], dict[str, Any]] = dict,
        max_labels: int | None = None,
    ) -> None:
        super().__init__(_WholeStore(graph), max_answer_bytes=_MOST_BYTES, max_labels=max_labels)
        self._graph = graph
        self._statistics = statistics
        self._hub_statistics = hub_statistics

    def get_node_ids(
        self,
        split: str | FetchNodesRequest | None = None,
        node_type: str | None = None,
        server_slice: ServerSlice | None = None,
    ) -> Ids:
        if isinstance(split, FetchNodesRequest):
            return self.get_node_ids(split.split, split.node_type, split.server_slice)
        if server_slice is None:
            return super().get_node_ids(split, node_type)
        name = self.dataset.node_type(node_type)
        check_split(split)
        self._check_slice(server_slice)
        part = server_slice.server_rank
        if split is None:
            found: Ids = self._graph.node_book(name).ids_of(part)
        else:
            share = self._graph.ask(part, "get_split_share", split=split, node_type=name).result()
            found = np.asarray(share.ids)
        return found[server_slice.rows(len(found))]

    def get_edge_partition_book(self, edge_type: EdgeType | None = None) -> PartitionBook:
        kind, graph = self.dataset.edge_type(edge_type), self._graph
        if graph.num_parts == 1:
            return super().get_edge_partition_book(edge_type)
        parts = np.zeros(graph.num_edges(kind), part_dtype(graph.num_parts))
        for part in range(graph.num_parts):
            for _, _, ids in graph.edges_of_part(part, kind):
                parts[ids] = part
        return ArrayBook(parts, graph.num_parts)

    def statistics(self) -> dict[str, Any]:
        return self._statistics()

    def hub_statistics(self) -> dict[str, Any]:
        return self._hub_statistics()

    def describe(self) -> str:
        return repr(self._graph)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise an error in words for calls that only one server can answer."""
            if name in VERBS:
                raise PenstockError(
                    f"{name} is a call to one server, and a store has several: make a "
                    "penstock.DistServer(data.graph) here, or connect to one with part_only=True"
                )
            raise AttributeError(f"a store has no {name!r}")

    def _check_slice(self, piece: ServerSlice | None) -> None:
        if piece is not None and not 0 <= piece.server_rank < self._graph.num_parts:
            raise ValueError(
                f"server_slice is of server {piece.server_rank}; the store has "
                f"{self._graph.num_parts} parts"
            )


class _WholeStore(ServedDataset):
    """A store as data that are asked about: all of it is here."""

    def __init__(self, graph: StoreGraph) -> None:
        super().__init__(graph)
        self._store = graph

    @property
    def num_partitions(self) -> int:
        """Return how many parts there are."""
        return self._store.num_parts
