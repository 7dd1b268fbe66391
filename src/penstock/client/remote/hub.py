"""A server on another host as channels see it: they register there as with a hub on this host."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Final

import msgspec

from penstock.client.channel.registration import Registration
from penstock.client.hub.hub import Provider
from penstock.client.remote.dist_server import RemoteDistServer
from penstock.client.remote.remote_graph import RemoteGraph
from penstock.client.remote.session import RemoteSession
from penstock.errors import HubGone
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.server import ATTEMPT_S, RemoteServer
from penstock.rpc.tries import Tries
from penstock.wire.messages import Register
from penstock.wire.payload import Packed, pack

# Seconds between two attempts to register with a server whose hub has just died.
_PAUSE_S: Final = 0.05


class RemoteHub(Provider):
    """A server that is reached by TCP. Its graph stays there."""

    def __init__(self, store: RemoteServer) -> None:
        self.store = store
        self.address = store.endpoint.address
        self.patience = store.patience
        self.graph = RemoteGraph(store.outline, self.address, RemoteDistServer(store))
        self._tries = Tries()

    def known_as(self, name: str) -> tuple[str, int]:
        """Return the job and process by which the server's hub knows a channel: the server's."""
        return f"{name}@{socket.gethostname()}:{os.getpid()}", self.store.welcome.pid

    def reach(self, deadline: Deadline, patience: Deadline | None = None) -> RemoteConnection:
        """Return a connection once the server answers; `ServerGone` if it has another graph now."""
        connection = self.persist(self._open, deadline, patience)
        try:
            self.store.note(connection.welcome)
        except BaseException:
            connection.close()
            raise
        self._tries.succeeded()
        return connection

    def _open(self, deadline: Deadline) -> RemoteConnection:
        try:
            until = Deadline(ATTEMPT_S).or_sooner(deadline)
            return RemoteConnection.open(self.store.endpoint, until)
        except (ConnectionError, TimeoutError) as error:
            self._tries.failed(error)
            raise

    def open_session(
        self, registration: Registration, deadline: Deadline, patience: Deadline
    ) -> RemoteSession:
        """Register a channel with whichever boot of the server answers, and return the session."""
        inputs = _packed(registration)
        while True:
            connection = self.reach(deadline, patience)
            try:
                registered = connection.register(_register(registration), inputs, deadline)
                return RemoteSession(connection, registered)
            except (ConnectionError, HubGone) as error:
                # The server or its hub died meanwhile.
                connection.close()
                self._tries.failed(error)
                self.check(deadline, patience, error)
                self.pause(_PAUSE_S, deadline)
            except BaseException:
                connection.close()
                raise

    def gone(self, error: Exception) -> HubGone:
        """Return the error to raise when patience has ended."""
        return self._tries.gone(self.address, error)

    def check_hope(self) -> None:
        """Never raise: nobody here knows whether the server comes back, so patience decides."""

    def pause(self, seconds: float, deadline: Deadline) -> None:
        """Sleep for a moment, while somebody starts the server again."""
        time.sleep(Deadline(seconds).or_sooner(deadline).remaining or 0.0)

    def statistics(self, timeout: float | None = 30.0) -> dict[str, Any]:
        """Return the statistics of the server's hub."""
        numbers: dict[str, Any] = self.store.call("hub_statistics", timeout=timeout)[0]
        return numbers

    def close(self) -> None:
        """Close the connection for calls; channels stay open until they are closed."""
        self.store.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"


def _packed(registration: Registration) -> Packed:
    """Return the inputs that are sent; they are not copied."""
    given = registration.inputs.given()
    arrays = {} if given.ids is None else {"ids": given.ids}
    for group, more in (("columns", given.columns), ("tables", given.tables)):
        arrays |= {f"{group}/{name}": array for name, array in more.items()}
    return pack(arrays)


def _register(registration: Registration) -> Register:
    feed = msgspec.structs.replace(registration.feed, ids=None, columns={}, tables={})
    # Only memory of the rank's own is page-locked.
    options = msgspec.structs.replace(registration.register.options, keep_pages=False)
    return msgspec.structs.replace(
        registration.register,
        spec=registration.spec,
        feed=feed,
        options=options,
        split=registration.inputs.split,
        workers=registration.workers,
    )
