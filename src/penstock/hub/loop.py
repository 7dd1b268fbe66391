"""The hub's event loop: one thread and one selector handle everything.

One turn: wait; read the clock once; handle all input; only then let time pass (`Tick`). So a hub
that was slow, or stopped, never takes a worker for silent whose messages are waiting: everything
sent before the clock was read is handled before timeouts are checked. Each rank's messages are
handled in bounded portions, so that no rank delays the others.

Nothing polls: without input the loop sleeps until the scheduler or the pool has something due.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import time
from dataclasses import dataclass
from typing import Final

from penstock.core.events import Tick
from penstock.errors import ProtocolError
from penstock.hub.connection import RankConnection
from penstock.hub.instructions import Executor
from penstock.hub.listener import HubListener
from penstock.hub.rank_messages import RankMessages
from penstock.hub.state import HubState
from penstock.hub.worker_messages import WorkerMessages
from penstock.wire.messages import FromRankToHub
from penstock.wire.stream import LONGEST_POLL, Stream
from penstock.wire.transport.unix import peer_process
from penstock.workers.pool import WorkerHandle

log = logging.getLogger(__name__)

# How long workers may take to finish their batches when the hub is told to end.
DRAIN_S: Final = 5.0
# The longest timeout of a selector, in whole seconds, because it rounds up to milliseconds.
LONGEST_SLEEP_S: Final = LONGEST_POLL // 1000
# Seconds between two log lines about the scheduler, if no event causes one earlier.
DESCRIBE_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Witness:
    """A descriptor that becomes readable when the process that made a connection has ended."""

    fd: int
    connection: RankConnection

    def fileno(self) -> int:
        return self.fd


class Loop:
    """Runs a hub until its founder leaves or sends Stop, or `drain()` is called.

    The founder is the rank that started the hub.
    """

    def __init__(self, state: HubState, listener: HubListener, wake: socket.socket) -> None:
        self._state = state
        self._listener = listener
        self._wake = wake
        self._selector = state.selector
        self._executor = Executor(state)
        self._rank_messages = RankMessages(state, self._executor)
        self._worker_messages = WorkerMessages(state, self._executor)
        self._last_connection = 0
        self._witnesses: dict[RankConnection, _Witness] = {}
        self._founder: RankConnection | None = None
        self._drain_by: float | None = None
        self._drain_asked = False
        self._described = state.now
        self._selector.register(listener, selectors.EVENT_READ, listener)
        self._selector.register(wake, selectors.EVENT_READ, wake)

    def add_founder(self, stream: Stream[FromRankToHub]) -> RankConnection:
        """Add the connection of the rank that started the hub. The hub ends when it closes."""
        self._founder = self._welcome(stream, founder=True)
        return self._founder

    def drain(self) -> None:
        """End the loop once workers have finished their batches. Safe in a signal handler."""
        self._drain_asked = True

    def run(self) -> None:
        """Run turns until the hub is to end."""
        while self._goes_on():
            self.turn()

    def turn(self) -> None:
        """Wait for events, and handle them."""
        due = self._due()
        ready = self._selector.select(self._timeout(due))
        now = self._state.now = time.monotonic()
        if due is not None and due <= now:
            # This process may have been stopped between waking up and reading the clock. A second
            # look makes sure that nothing sent before `now` is missed.
            ready = self._selector.select(0)
        self._state.turns += 1
        for key, mask in ready:
            match key.data:
                case WorkerHandle():
                    self._worker_messages.attend(key.data, key.fd)
                case RankConnection():
                    self._attend(key.data, mask)
                case _Witness(connection=connection):
                    self._state.touched.add(connection)
                    connection.end("its process has ended")
                case HubListener():
                    self._admit()
                case _:
                    _swallow(self._wake)
        self._answer()
        # What became due meanwhile is handled in the next turn, which will not wait.
        if due is not None and due <= now:
            self._let_time_pass()
        self._look_after_state()
        self._tidy()

    # --- ranks -------------------------------------------------------------------------------

    def _admit(self) -> None:
        room = self._state.config.pool.max_connections - len(self._state.connections)
        for visitor in self._listener.admit(room):
            process = peer_process(visitor)
            connection = self._welcome(Stream(visitor, FromRankToHub))
            if process >= 0:
                self._witness(connection, process)

    def _witness(self, connection: RankConnection, process: int) -> None:
        """Watch the rank's process, to see its end even if a fork keeps the socket open."""
        witness = self._witnesses[connection] = _Witness(process, connection)
        self._selector.register(witness, selectors.EVENT_READ, witness)

    def _welcome(self, stream: Stream[FromRankToHub], *, founder: bool = False) -> RankConnection:
        self._last_connection += 1
        state = self._state
        connection = RankConnection(self._last_connection, stream, state.touched, founder=founder)
        state.connections[connection.number] = connection
        self._selector.register(stream, selectors.EVENT_READ, connection)
        connection.watched = selectors.EVENT_READ
        return connection

    def _attend(self, connection: RankConnection, mask: int) -> None:
        if connection.number not in self._state.connections:
            return  # closed a moment ago
        self._state.touched.add(connection)
        if mask & selectors.EVENT_WRITE:
            connection.stream.flush()
        if mask & selectors.EVENT_READ:
            try:
                connection.receive()
            except ProtocolError as error:
                self._rank_messages.expel(connection, error)
        if connection.backlog:
            self._state.backlogged.add(connection)

    def _answer(self) -> None:
        """Answer each rank that has sent messages, up to its portion."""
        for connection in list(self._state.backlogged):
            if connection.overfull and connection.ending is None:
                continue  # it must read first
            for message, fds in connection.next_messages():
                self._rank_messages.hear(connection, message, fds)
            if not connection.backlog or connection.ending is not None:
                self._state.backlogged.discard(connection)
            self._state.touched.add(connection)

    def _tidy(self) -> None:
        """Close connections that have ended; set what the selector watches of the others."""
        touched = self._state.touched
        while touched:
            connection = touched.pop()
            if connection.number not in self._state.connections:
                continue
            if connection.stream.ended and not connection.backlog:
                connection.end("it left")
            if connection.ending is not None:
                self._close(connection)
            else:
                self._heed(connection)

    def _heed(self, connection: RankConnection) -> None:
        wanted = selectors.EVENT_READ
        if connection.stream.pending:
            wanted = selectors.EVENT_WRITE | (0 if connection.overfull else wanted)
        if connection.stream.ended:
            wanted &= ~selectors.EVENT_READ  # its last messages are still to be answered
        if wanted != connection.watched:
            self._watch(connection, wanted)

    def _watch(self, connection: RankConnection, wanted: int) -> None:
        before, connection.watched = connection.watched, wanted
        if wanted == before:
            return
        if not before:
            self._selector.register(connection.stream, wanted, connection)
        elif not wanted:
            self._selector.unregister(connection.stream)
        else:
            self._selector.modify(connection.stream, wanted, connection)

    def _close(self, connection: RankConnection) -> None:
        """Close a connection and unregister its channels. That may touch other connections."""
        log.info("%r has ended: %s", connection, connection.ending)
        self._watch(connection, 0)
        if witness := self._witnesses.pop(connection, None):
            self._selector.unregister(witness)
            os.close(witness.fd)
        del self._state.connections[connection.number]
        self._state.backlogged.discard(connection)
        self._rank_messages.farewell(connection)
        connection.close()

    # --- time --------------------------------------------------------------------------------

    def _timeout(self, due: float | None) -> float | None:
        """Return how long to wait at most; None means until something happens."""
        for connection in self._state.backlogged:
            if not connection.overfull:
                return 0.0
        return None if due is None else min(max(0.0, due - time.monotonic()), LONGEST_SLEEP_S)

    def _due(self) -> float | None:
        due: float | None = None
        for at in (self._state.scheduler.next_wakeup(), self._state.pool.due, self._drain_by):
            if at is not None and (due is None or at < due):
                due = at
        return due

    def _let_time_pass(self) -> None:
        now, due = self._state.now, self._state.pool.due
        if due is not None and due <= now:
            self._worker_messages.tick()
        wakeup = self._state.scheduler.next_wakeup()
        if wakeup is not None and wakeup <= now:
            self._executor.tell(Tick(now))

    def _look_after_state(self) -> None:
        now = self._state.now
        if self._state.workers_changed:
            self._state.workers_changed = False
            self._rank_messages.waiters()
        if self._drain_asked and self._drain_by is None:
            self._begin_to_drain()
        if now - self._described >= DESCRIBE_EVERY_S:
            self._described = now
            self._rank_messages.describe()

    # --- the end -----------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        if (
            self._rank_messages.stopping
            or self._founder is None
            or self._founder.ending is not None
        ):
            return False
        if self._drain_by is None:
            return True
        return bool(self._state.records) and time.monotonic() < self._drain_by

    def _begin_to_drain(self) -> None:
        log.info("told to end: workers finish what they have")
        self._drain_by = self._state.now + DRAIN_S
        self._selector.unregister(self._listener)
        self._listener.close()
        for group in list(self._state.groups):
            self._executor.size_group(group, 0)


def _swallow(wake: socket.socket) -> None:
    try:
        while os.read(wake.fileno(), 4096):
            pass
    except BlockingIOError:
        pass
