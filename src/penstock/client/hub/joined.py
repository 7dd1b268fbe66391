"""A hub that somebody else started, joined by its address."""

from __future__ import annotations

import time
import weakref
from typing import Self

from penstock.client.deadline import Deadline
from penstock.client.hub.connection import HubConnection
from penstock.client.hub.hub import PATIENCE_S, Hub
from penstock.errors import HubGone
from penstock.graph import Graph
from penstock.wire.messages import AskGraph, GraphHere


class JoinedHub(Hub):
    """A hub at an address. Its graph is mapped here, once."""

    def __init__(self, address: str, graph: Graph, patience: float = PATIENCE_S) -> None:
        self.address = address
        self.graph = graph
        self.patience = patience
        self._let_go = weakref.finalize(self, graph.close)

    def check_hope(self) -> None:
        """Nobody here knows whether it will come back: patience decides."""

    def pause(self, seconds: float, deadline: Deadline) -> None:
        """A moment, while its owner starts it again."""
        time.sleep(Deadline(seconds).or_sooner(deadline).remaining or 0.0)

    def close(self) -> None:
        """Lets go of the graph. The hub is its owner's affair."""
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"JoinedHub({self.address!r})"


def connect(address: str, *, timeout: float | None = 30.0) -> JoinedHub:
    """The hub at `address`, which is what the process that started it calls `hub.address`."""
    return JoinedHub(address, mapped_graph(address, Deadline(timeout)))


def mapped_graph(address: str, deadline: Deadline) -> Graph:
    """The graph of the hub at `address`, mapped. `HubGone` if nobody answers."""
    try:
        connection = HubConnection.open(address, deadline)
    except ConnectionError as error:
        raise HubGone(f"no hub answers at {address}: {error}") from error
    try:
        here, fds = connection.ask(AskGraph(request=0), GraphHere, deadline)
        return Graph.attach(here.graph, fds)
    finally:
        connection.close()
