"""Questions to a server about its data: one connection for all of them, made when first needed.

Any thread may ask, and waits for its own answer only. Questions change nothing, so they are asked
again of a server that was lost and has come back. What does change something is asked once.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.client.deadline import Deadline
from penstock.client.hub import PATIENCE_S
from penstock.client.remote.connection import RemoteConnection
from penstock.client.remote.door import Door
from penstock.client.remote.outline import check_same
from penstock.client.remote.switchboard import Switchboard
from penstock.client.remote.tries import Tries
from penstock.errors import ChannelClosed, ServerGone
from penstock.graph.schema import ArrayKey, EdgeType
from penstock.wire import bulk, values
from penstock.wire.remote import Greeting, Outline

Array = npt.NDArray[Any]

# One attempt to connect may take so long.
ATTEMPT_S: Final = 6.0
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5
# What may be asked twice, beside all that is "got". The others are verbs of backends and channels.
_READS: Final = frozenset(
    {
        "ping",
        "describe",
        "statistics",
        "hub_statistics",
        "server_statistics",
        "is_channel_epoch_done",
    }
)
# But not for ever: it may be the question that a server does not survive.
_TIMES: Final = 5


class Store:
    """A server, to ask. `greeting` is what it said of itself last."""

    greeting: Greeting

    def __init__(self, door: Door, patience: float = PATIENCE_S) -> None:
        self.door = door
        self.patience = patience
        self._outline: Outline | None = None
        # One connects at a time. A signal's handler may ask in the middle of that.
        self._connecting = threading.RLock()
        self._owner = os.getpid()
        self._closed = False
        self._held = _Held()
        self._let_go = weakref.finalize(self, self._held.close)

    def connect(self, deadline: Deadline, setting: str = "timeout") -> Greeting:
        """Waits until the server answers; `ServerGone` if it does not in time."""
        self._persist(deadline, setting, Deadline(None))
        return self.greeting

    def call(
        self,
        verb: str,
        arguments: Mapping[str, Any] | None = None,
        arrays: Mapping[str, Array] | None = None,
        timeout: float | None = None,
    ) -> tuple[Any, dict[str, Array]]:
        """What a verb comes to: plain data, and arrays. Raises what went wrong over there."""
        self._check()
        packed, deadline = bulk.pack(arrays or {}), Deadline(timeout)
        times = _TIMES if verb.startswith("get_") or verb in _READS else 1
        while True:
            switchboard = self._held.one_that_lives() or self._recovered(deadline)
            try:
                return switchboard.call(verb, dict(arguments or {}), packed, deadline)
            except ConnectionError as error:
                self._held.drop(switchboard)
                self._check()  # perhaps it was closed here
                times -= 1
                if not times:
                    raise self._lost_over(verb, error) from error

    def ask(self, verb: str, **arguments: Any) -> Any:
        """As `call`, with arrays among the arguments and in the answer."""
        plain, arrays = values.pack(arguments)
        value, found = self.call(verb, plain, arrays)
        return values.unpack(value, found, Any)

    def close(self) -> None:
        """Takes leave. Idempotent."""
        if os.getpid() == self._owner:
            self._closed = True
            self._let_go()

    # --- numbers of the graph, for `RemoteGraph` ------------------------------------------------

    def whole(self, key: ArrayKey) -> Array:
        """An array that belongs to the graph as a whole, or a split."""
        owner = key.type if any(key.type) else None
        if key.group == "split":
            found = self.ask("get_node_ids", split=key.name, node_type=owner)
        else:
            found = self.ask("get_graph_attribute", name=key.name, owner=owner)
        return np.asarray(found)

    def ends(self, edge_type: EdgeType) -> Array:
        """The edges of a type, [2, edges], in the order of their ids."""
        kind = edge_type if any(edge_type) else None
        return np.asarray(self.ask("get_edge_index", edge_type=kind, layout="coo"))

    def rows(self, key: ArrayKey, ids: Array) -> Array:
        """Rows of an attribute."""
        owner = key.type if any(key.type) else None
        kind = {f"{key.group}_type": owner}
        verb = f"get_{key.group}_attribute"
        return np.asarray(self.ask(verb, name=key.name, index=ids, **kind))

    def nodes(self, node_type: str | None) -> Array:
        """The ids of all nodes of a type that are there."""
        return np.asarray(self.ask("get_node_ids", node_type=node_type))

    # --- within ------------------------------------------------------------------------------

    def _recovered(self, deadline: Deadline) -> Switchboard:
        """Patience begins when the server is known to be lost, however long it took to answer."""
        return self._persist(Deadline(self.patience), "patience", deadline)

    def _persist(self, patience: Deadline, setting: str, deadline: Deadline) -> Switchboard:
        tries, pause, until = Tries(), _FIRST_PAUSE_S, patience.or_sooner(deadline)
        while True:
            try:
                return self._reached(until)
            except (ConnectionError, TimeoutError) as error:
                tries.failed(error)
                if patience.passed:
                    raise tries.gone(self.door.address, error, setting) from error
                if deadline.passed:
                    words = f"nobody answers at {self.door.address} yet: {error}"
                    raise TimeoutError(words) from error
            time.sleep(Deadline(pause).or_sooner(until).remaining or 0.0)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _reached(self, deadline: Deadline) -> Switchboard:
        self._check()
        remaining = deadline.remaining
        if not self._connecting.acquire(timeout=-1 if remaining is None else remaining):
            raise TimeoutError("another thread has not connected in time")
        try:
            return self._held.one_that_lives() or self._connected(deadline)
        finally:
            self._connecting.release()

    def _connected(self, deadline: Deadline) -> Switchboard:
        connection = RemoteConnection.open(self.door, Deadline(ATTEMPT_S).or_sooner(deadline))
        try:
            self.note(connection.greeting)
        except BaseException:
            connection.close()
            raise
        switchboard = self._held.hold(Switchboard(connection))
        if self._closed:  # meanwhile
            self._held.close()
        self._check()
        return switchboard

    def _lost_over(self, verb: str, error: Exception) -> ServerGone:
        lost = f"the server at {self.door.address} was lost while it was asked to {verb}: {error}"
        if verb.startswith("get_") or verb in _READS:
            return ServerGone(f"{lost}. It has been asked {_TIMES} times")
        return ServerGone(f"{lost}. Whether it did so is not known")

    def note(self, greeting: Greeting) -> None:
        """What a server says of itself: it must have the graph that it had."""
        if self._outline is not None:
            check_same(self._outline, greeting.outline, self.door.address)
        self._outline = self._outline or greeting.outline
        self.greeting = greeting

    def _check(self) -> None:
        if self._closed:
            raise ChannelClosed(f"the connection to {self.door.address} was closed")
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"the connection to {self.door.address} belongs to process {self._owner}, and does "
                "not survive a fork: call penstock.connect(address) here; or start processes by "
                "'spawn'"
            )


class _Held:
    """What must be let go of: held apart, for the finalizer."""

    def __init__(self) -> None:
        self._switchboard: Switchboard | None = None

    def one_that_lives(self) -> Switchboard | None:
        """What is held; one whose end is known is let go of."""
        held = self._switchboard
        if held is not None and held.is_over:
            self.drop(held)
            held = None
        return held

    def hold(self, switchboard: Switchboard) -> Switchboard:
        """From now on this one."""
        self.close()
        self._switchboard = switchboard
        return switchboard

    def drop(self, switchboard: Switchboard) -> None:
        """Not this one any more; another thread may have another one already."""
        if self._switchboard is switchboard:
            self._switchboard = None
        switchboard.close()

    def close(self) -> None:
        held, self._switchboard = self._switchboard, None
        if held is not None:
            held.close()
