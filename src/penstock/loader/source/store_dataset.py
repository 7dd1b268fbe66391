"""A store's data for torch: what `RemoteDistDataset` is for one server, for all of them.

    data = penstock.connect(["tcp://a:7070", "tcp://b:7070"])
    loader = penstock.NeighborLoader(data, [10, 10], input_nodes="train", batch_size=1024)

The graph is in parts, and batches are put together on this host: by workers of a hub, which starts
with the first loader that reads, or in this process (`num_workers=0`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
import torch
from torch import Tensor

from penstock.client.dist.store_queries import StoreQueries
from penstock.client.dist_calls import QUERIES
from penstock.client.hub.host_hub import hub_of_host
from penstock.client.sizes import parse_bytes
from penstock.errors import HubGone
from penstock.graph.view import GraphView
from penstock.loader.source.remote_dataset import RemoteDistDataset
from penstock.store.graph import StoreGraph
from penstock.store.remote import graph_at
from penstock.store.servers import StoreServers
from penstock.wire.messages import PartitionNote
from penstock.wire.requests import ArrayT, ShapeT
from penstock.wire.rpc_schema import mirrored
from penstock.workers.limits import auto_workers

# Seconds to wait for the rank that starts the hub of a job on this host.
_JOIN_S: Final = 120.0


@mirrored(QUERIES, {ArrayT: Tensor, ShapeT: torch.Size})
class StoreDataset(RemoteDistDataset):
    """What all servers of a store hold together. Made by `penstock.connect`.

    It has the queries of a `RemoteDistDataset`, answered for the whole graph. `graph` is sampled on
    this host; `provider` is the hub that does it, and runs from the first batch that is read. Ranks
    that torchrun started on one host share one hub, and its cache.

    Args:
        servers: The servers; they are closed with this.
        num_workers: How many workers put batches together. "auto": two for each core but one, since
            they wait for servers, too. 0: loaders do it in this process.
        cache: Bytes on this host for rows that are read often, or a size such as "4GB". None: no
            rows are kept. The cache is filled before the first batch is read.

    Examples:
        >>> import penstock as ps
        >>> ring = ps.Graph.from_coo([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4, train=[0, 3])
        >>> first, second = ring.partition(2, "parts")
        >>> with ps.serve(first) as one, ps.serve(second, store=[one.address]) as other:
        ...     with ps.connect([one.address, other.address]) as data:
        ...         print(data.get_node_ids("train"), data.graph.num_edges())
        tensor([0, 3]) 4
    """

    def __init__(
        self,
        servers: StoreServers,
        num_workers: int | Literal["auto"] = "auto",
        cache: int | str | None = None,
    ) -> None:
        budget = 0 if cache is None else parse_bytes(cache, "cache")
        self.servers = servers
        self._graph: StoreGraph = graph_at(servers)
        self._graph.cache_bytes = budget
        self.provider = self._hub(num_workers, budget)
        queries = StoreQueries(self._graph, self._statistics, self._hub_statistics)
        self.server = queries  # type: ignore[assignment]  # it has the queries alone

    def _hub(self, num_workers: int | Literal["auto"], budget: int) -> Any:
        """Return the hub that puts batches together; None if this process does."""
        workers = 2 * auto_workers() if num_workers == "auto" else num_workers
        if workers == 0:
            return None
        servers = self.servers
        told = f"{servers.cut} {servers.version} {budget} {workers}"
        patience = servers.patience
        return hub_of_host(self._graph, workers, told, patience=patience, timeout=_JOIN_S)

    @property
    def graph(self) -> GraphView:
        """The graph in parts."""
        return self._graph

    @property
    def address(self) -> str:
        """The addresses of all servers that are known, with commas between them."""
        return ",".join(self.servers.addresses)

    @property
    def partition(self) -> PartitionNote:
        """What the store holds: all parts."""
        return PartitionNote(peers=self.servers.addresses, version=self.servers.version)

    @property
    def is_on_this_host(self) -> bool:
        """Return whether batches come through shared memory: they are put together here."""
        return True

    def _statistics(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self.servers.statistics(), str_keys=True)
        return plain | {"moved": msgspec.to_builtins(self._graph.moved)}

    def _hub_statistics(self) -> dict[str, Any]:
        try:
            return {} if self.provider is None else self.provider.statistics()
        except HubGone:  # it was not started
            return {}

    def close(self) -> None:
        """Disconnect from the servers and end the hub. Loaders must be closed separately."""
        if self.provider is not None:
            self.provider.close()
        self._graph.close()
        self.servers.close()
        if self.resolved is not None:
            self.resolved.close()

    def __repr__(self) -> str:
        return f"StoreDataset({self._graph.num_parts} parts, {self.address!r})"


def connect_store(
    addresses: Sequence[str],
    num_workers: int | Literal["auto"] = "auto",
    cache: int | str | None = None,
    **options: Any,
) -> StoreDataset:
    """Find the servers of a store, and return what they hold.

    Args:
        addresses: Some of them; one suffices.
        num_workers: How many workers put batches together.
        cache: Bytes on this host for rows that are read often.
        **options: As for `StoreServers.find`.
    """
    servers = StoreServers.find(addresses, **options)
    try:
        return StoreDataset(servers, num_workers, cache)
    except BaseException:
        servers.close()
        raise
