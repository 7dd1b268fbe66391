"""Calls to a server over one connection, which is made when it is first needed.

Any thread may call, and waits for its own answer only. If the server was lost and has come back,
calls that only read are made again. A call that changes something is made once.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any, Final

import numpy.typing as npt

from penstock.errors import ChannelClosed, ProtocolError, ServerGone
from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.outline import check_same
from penstock.rpc.rpc_client import RpcClient
from penstock.rpc.tries import Tries
from penstock.wire import payload, values
from penstock.wire.messages import Outline, Welcome
from penstock.wire.rpc_schema import only_reads

Array = npt.NDArray[Any]

# Seconds that a rank waits for a hub or a server that was lost to come back.
PATIENCE_S: Final = 30.0
# Seconds that one attempt to connect may take.
ATTEMPT_S: Final = 6.0
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5
# How often a call that only reads is made: not for ever, because it may be what kills the server.
_TIMES: Final = 5


class RemoteServer:
    """A server to call. `welcome` is its latest `Welcome`."""

    welcome: Welcome

    def __init__(self, endpoint: Endpoint, patience: float = PATIENCE_S) -> None:
        self.endpoint = endpoint
        self.patience = patience
        self._outline: Outline | None = None
        # One thread connects at a time. Reentrant, because a signal handler may call meanwhile.
        self._connecting = threading.RLock()
        self._owner = os.getpid()
        self._closed = False
        self._held = _Held()
        self._let_go = weakref.finalize(self, self._held.close)

    def connect(self, deadline: Deadline, setting: str = "timeout") -> Welcome:
        """Wait until the server answers; `ServerGone` if it does not do so in time."""
        self._persist(deadline, setting, Deadline(None))
        return self.welcome

    def call(
        self,
        verb: str,
        arguments: Mapping[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
        timeout: float | None = None,
    ) -> tuple[Any, dict[str, Array]]:
        """Make a call, and return its result as plain data and arrays.

        Raises:
            ServerGone: The server was lost; whether it carried out a call that changes something is
                unknown.
            TimeoutError: The answer has not come in time.
            Exception: What went wrong at the server.
        """
        self._check()
        packed, deadline = payload.pack(arrays or {}), Deadline(timeout)
        reads = only_reads(verb)
        times = _TIMES if reads else 1
        while True:
            # A connection that has ended unnoticed costs a call that only reads one more try, so
            # only the others check it first.
            client = self._held.one_that_lives(look=not reads) or self._recovered(deadline)
            try:
                return client.call(verb, dict(arguments or {}), packed, deadline)
            except ConnectionError as error:
                self._held.drop(client)
                self._check()  # perhaps this process has closed it
                times -= 1
                if not times:
                    raise self._lost_over(verb, error) from error

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Do as `call`, with arrays among the arguments and in the result."""
        plain, arrays = values.pack(arguments)
        value, found = self.call(verb, plain, arrays)
        return values.unpack(value, found, Any)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if os.getpid() == self._owner:
            self._closed = True
            self._let_go()

    # --- internals ---------------------------------------------------------------------------

    def _recovered(self, deadline: Deadline) -> RpcClient:
        """Connect again. Patience begins now that the loss is known, however long the call took."""
        return self._persist(Deadline(self.patience), "patience", deadline)

    def _persist(self, patience: Deadline, setting: str, deadline: Deadline) -> RpcClient:
        tries, pause, until = Tries(), _FIRST_PAUSE_S, patience.or_sooner(deadline)
        while True:
            try:
                return self._reached(until)
            except (ConnectionError, TimeoutError) as error:
                tries.failed(error)
                if patience.passed:
                    raise tries.gone(self.endpoint.address, error, setting) from error
                if deadline.passed:
                    words = f"no server answers at {self.endpoint.address} yet: {error}"
                    raise TimeoutError(words) from error
            time.sleep(Deadline(pause).or_sooner(until).remaining or 0.0)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _reached(self, deadline: Deadline) -> RpcClient:
        self._check()
        remaining = deadline.remaining
        if not self._connecting.acquire(timeout=-1 if remaining is None else remaining):
            raise TimeoutError("another thread has not connected in time")
        try:
            return self._held.one_that_lives() or self._connected(deadline)
        finally:
            self._connecting.release()

    def _connected(self, deadline: Deadline) -> RpcClient:
        until = Deadline(ATTEMPT_S).or_sooner(deadline)
        connection = RemoteConnection.open(self.endpoint, until, driven=True)
        try:
            self.note(connection.welcome)
        except BaseException:
            connection.close()
            raise
        client = self._held.hold(RpcClient(connection))
        if self._closed:  # close() was called meanwhile
            self._held.close()
        self._check()
        return client

    def _lost_over(self, verb: str, error: Exception) -> ServerGone:
        lost = (
            f"the server at {self.endpoint.address} was lost while it was asked to {verb}: {error}"
        )
        if only_reads(verb):
            return ServerGone(f"{lost}. It has been asked {_TIMES} times")
        return ServerGone(f"{lost}. Whether it did so is not known")

    def note(self, welcome: Welcome) -> None:
        """Store a server's `Welcome`; `ServerGone` if the server has another graph than before."""
        if welcome.outline is None:
            raise ProtocolError(f"the server at {self.endpoint.address} names no graph")
        if self._outline is not None:
            check_same(self._outline, welcome.outline, self.endpoint.address)
        self._outline = self._outline or welcome.outline
        self.welcome = welcome

    @property
    def outline(self) -> Outline:
        """The outline of the graph: its types, sizes and arrays."""
        assert self._outline is not None
        return self._outline

    def _check(self) -> None:
        if self._closed:
            raise ChannelClosed(f"the connection to {self.endpoint.address} was closed")
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"the connection to {self.endpoint.address} belongs to process {self._owner}, and "
                "does not survive a fork: call penstock.connect(address) here; or start processes "
                "by 'spawn'"
            )


class _Held:
    """Holds the client that must be closed; an object of its own, for the finalizer."""

    def __init__(self) -> None:
        self._client: RpcClient | None = None

    def one_that_lives(self, *, look: bool = True) -> RpcClient | None:
        """Return the client, or None if it has ended. `look`: check whether it has just ended."""
        held = self._client
        if held is not None and held.is_over(look=look):
            self.drop(held)
            held = None
        return held

    def hold(self, client: RpcClient) -> RpcClient:
        """Hold this client from now on, and close the one before."""
        self.close()
        self._client = client
        return client

    def drop(self, client: RpcClient) -> None:
        """Close a client; stop holding it, unless another thread has put another in its place."""
        if self._client is client:
            self._client = None
        client.close()

    def close(self) -> None:
        held, self._client = self._client, None
        if held is not None:
            held.close()
