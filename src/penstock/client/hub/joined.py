"""A hub that another process started, joined by its address."""

from __future__ import annotations

import time
import weakref
from typing import Self

from penstock.client.hub.connection import HubConnection
from penstock.client.hub.hub import Hub
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.rpc.deadline import Deadline
from penstock.rpc.server import PATIENCE_S
from penstock.store.attach import attach
from penstock.wire.messages import AskGraph, GraphHere


class JoinedHub(Hub):
    """A hub at an address, made by `penstock.connect`. Its graph is mapped into this process once.

    Args:
        address: Where the hub listens.
        graph: Its graph.
        patience: Seconds that channels wait for a hub to come back.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> with ps.HubProcess(graph, num_workers=1) as owned:
        ...     with ps.connect(owned.address) as hub:
        ...         print(hub.graph.num_edges(), hub.address == owned.address)
        3 True
    """

    def __init__(self, address: str, graph: Graph, patience: float = PATIENCE_S) -> None:
        self.address = address
        self.graph = graph
        self.patience = patience
        self._let_go = weakref.finalize(self, graph.close)

    def check_hope(self) -> None:
        """Never raise: only the owner knows whether the hub will come back, so patience decides."""

    def pause(self, seconds: float, deadline: Deadline) -> None:
        """Sleep for a moment, while the hub's owner starts it again."""
        time.sleep(Deadline(seconds).or_sooner(deadline).remaining or 0.0)

    def close(self) -> None:
        """Release the graph. The hub itself belongs to its owner."""
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"JoinedHub({self.address!r})"


def connect(address: str, *, timeout: float | None = 30.0) -> JoinedHub:
    """Return the hub at `address`, which its owner knows as `hub.address`."""
    return JoinedHub(address, mapped_graph(address, Deadline(timeout)))


def mapped_graph(address: str, deadline: Deadline) -> Graph:
    """Return the graph of the hub at `address`, mapped; `HubGone` if no hub answers."""
    try:
        connection = HubConnection.open(address, deadline)
    except ConnectionError as error:
        raise HubGone(f"no hub answers at {address}: {error}") from error
    try:
        here, fds = connection.ask(AskGraph(request=0), GraphHere, deadline)
        return attach(here.graph, fds)
    finally:
        connection.close()
