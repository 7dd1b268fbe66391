"""A server on this same host: ranks use its hub's unix socket instead of its TCP port.

Batches are then in shared memory, and the graph is mapped. The unix socket is another one after
each start of the server; the TCP port tells which.
"""

from __future__ import annotations

import logging

from penstock.client.hub.connection import HubConnection
from penstock.client.hub.joined import JoinedHub, mapped_graph
from penstock.errors import HubGone, PenstockError, ServerGone
from penstock.graph import Graph
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.server import ATTEMPT_S, RemoteServer
from penstock.rpc.tries import Tries
from penstock.wire.host import this_host

log = logging.getLogger(__name__)


class SameHostHub(JoinedHub):
    """The hub of a server on this host."""

    def __init__(self, store: RemoteServer, address: str, graph: Graph) -> None:
        super().__init__(address, graph, store.patience)
        self.store = store
        self._tries = Tries()

    def _open(self, deadline: Deadline) -> HubConnection:
        try:
            connection = HubConnection.open(self.address, deadline)
        except ConnectionError as error:
            self._tries.failed(error)
            self._look_for_it(deadline)
            connection = HubConnection.open(self.address, deadline)
        self._tries.succeeded()
        return connection

    def _look_for_it(self, deadline: Deadline) -> None:
        """Ask the server where its hub is now; `ConnectionError` if nobody answers."""
        endpoint = self.store.endpoint
        connection = RemoteConnection.open(endpoint, Deadline(ATTEMPT_S).or_sooner(deadline))
        try:
            welcome = connection.welcome
        finally:
            connection.close()
        self.store.note(welcome)
        if welcome.host != this_host() or welcome.unix is None:
            raise ServerGone(f"the server at {endpoint.address} has moved to another host")
        self.address = welcome.unix

    def gone(self, error: Exception) -> HubGone:
        """Return the error to raise when patience has ended."""
        return self._tries.gone(self.store.endpoint.address, error)

    def close(self) -> None:
        """Close the connection to the server, and release the graph."""
        self.store.close()
        super().close()

    def __repr__(self) -> str:
        return f"SameHostHub({self.store.endpoint.address!r}, {self.address!r})"


def hub_on_this_host(store: RemoteServer, deadline: Deadline) -> SameHostHub | None:
    """Return the hub of a server on this host whose unix socket we may use; else None."""
    welcome = store.welcome
    if welcome.unix is None or welcome.host != this_host():
        return None
    try:
        return SameHostHub(store, welcome.unix, mapped_graph(welcome.unix, deadline))
    except (PenstockError, OSError) as error:
        log.info("%s stays with %s: %s", welcome.unix, store.endpoint.address, error)
        return None
