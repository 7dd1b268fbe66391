"""The loop: one thread, one selector, and everything that can happen to a hub comes through it.

A turn: wait; read the clock once; hear everybody who has something to say; only then let time pass
(`Tick`). So a hub that was slow, or stopped, never takes a worker for silent whose words lie there:
whatever came before the clock was read has been heard before the clock is looked at. Ranks are
heard in bounded portions, so that none keeps the others waiting.

Nothing polls: without input the loop sleeps until the scheduler or the pool wants to be woken.
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
from penstock.hub.connection import Connection
from penstock.hub.errands import Errands
from penstock.hub.floor import Floor
from penstock.hub.house import House
from penstock.hub.listener import Listener
from penstock.hub.reception import Reception
from penstock.wire.messages import FromRankToHub
from penstock.wire.stream import LONGEST_POLL, Stream
from penstock.wire.transport.unix import peer_process
from penstock.workers.pool import Worker

log = logging.getLogger(__name__)

# How long workers may take to finish what they have when the hub is told to end.
DRAIN_S: Final = 5.0
# What a selector takes at most, in whole seconds: it rounds up to milliseconds.
LONGEST_SLEEP_S: Final = LONGEST_POLL // 1000
# Between two lines about the scheduler while nothing else gives reason for one.
DESCRIBE_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Witness:
    """A descriptor that becomes readable when the process that made a connection has ended."""

    fd: int
    connection: Connection

    def fileno(self) -> int:
        return self.fd


class Loop:
    """Runs a house until its founder leaves, or says Stop, or `drain()` was called."""

    def __init__(self, house: House, listener: Listener, wake: socket.socket) -> None:
        self._house = house
        self._listener = listener
        self._wake = wake
        self._selector = house.selector
        self._errands = Errands(house)
        self._reception = Reception(house, self._errands)
        self._floor = Floor(house, self._errands)
        self._last_connection = 0
        self._interests: dict[Connection, int] = {}
        self._witnesses: dict[Connection, _Witness] = {}
        self._founder: Connection | None = None
        self._drain_by: float | None = None
        self._drain_asked = False
        self._described = house.now
        self._selector.register(listener, selectors.EVENT_READ, listener)
        self._selector.register(wake, selectors.EVENT_READ, wake)

    def found(self, stream: Stream[FromRankToHub]) -> Connection:
        """Lets in the rank that started the hub, whose leaving ends it."""
        self._founder = self._welcome(stream, founder=True)
        return self._founder

    def drain(self) -> None:
        """Workers finish what they have, and then the loop ends. From a signal's handler."""
        self._drain_asked = True

    def run(self) -> None:
        """Turns until there is no reason to."""
        while self._goes_on():
            self.turn()

    def turn(self) -> None:
        """Waits for something to happen, and deals with it."""
        due = self._due()
        ready = self._selector.select(self._timeout(due))
        now = self._house.now = time.monotonic()
        if due is not None and due <= now:
            # Between the waking and the clock this process may have been stopped. Looked for again,
            # nothing that was said before `now` can be missed.
            ready = self._selector.select(0)
        self._house.turns += 1
        for key, mask in ready:
            match key.data:
                case Worker():
                    self._floor.attend(key.data, key.fd)
                case Connection():
                    self._attend(key.data, mask)
                case _Witness(connection=connection):
                    self._house.touched.add(connection)
                    connection.end("its process has ended")
                case Listener():
                    self._admit()
                case _:
                    _swallow(self._wake)
        self._answer()
        # What became due meanwhile is for the next turn, which will not wait.
        if due is not None and due <= now:
            self._let_time_pass()
        self._look_after_the_house()
        self._tidy()

    # --- ranks -------------------------------------------------------------------------------

    def _admit(self) -> None:
        room = self._house.found.max_connections - len(self._house.connections)
        for visitor in self._listener.admit(room):
            process = peer_process(visitor)
            connection = self._welcome(Stream(visitor, FromRankToHub))
            if process >= 0:
                self._witness(connection, process)

    def _witness(self, connection: Connection, process: int) -> None:
        """The lease ends with the rank, also where a fork of it keeps the socket open."""
        witness = self._witnesses[connection] = _Witness(process, connection)
        self._selector.register(witness, selectors.EVENT_READ, witness)

    def _welcome(self, stream: Stream[FromRankToHub], *, founder: bool = False) -> Connection:
        self._last_connection += 1
        house = self._house
        connection = Connection(self._last_connection, stream, house.touched, founder=founder)
        house.connections[connection.number] = connection
        self._selector.register(stream, selectors.EVENT_READ, connection)
        self._interests[connection] = selectors.EVENT_READ
        return connection

    def _attend(self, connection: Connection, mask: int) -> None:
        if connection.number not in self._house.connections:
            return  # closed a moment ago
        self._house.touched.add(connection)
        if mask & selectors.EVENT_WRITE:
            connection.stream.flush()
        if mask & selectors.EVENT_READ:
            try:
                connection.receive()
            except ProtocolError as error:
                self._reception.expel(connection, error)
        if connection.backlog:
            self._house.backlogged.add(connection)

    def _answer(self) -> None:
        """Answers each rank that has said something, up to its portion."""
        for connection in list(self._house.backlogged):
            if connection.overfull and connection.ending is None:
                continue  # it is to read first
            for message, fds in connection.next_messages():
                self._reception.hear(connection, message, fds)
            if not connection.backlog or connection.ending is not None:
                self._house.backlogged.discard(connection)
            self._house.touched.add(connection)

    def _tidy(self) -> None:
        """Closes connections that have ended; sees to it that others are heard and written to."""
        touched = self._house.touched
        while touched:
            connection = touched.pop()
            if connection.number not in self._house.connections:
                continue
            if connection.stream.ended and not connection.backlog:
                connection.end("it left")
            if connection.ending is not None:
                self._close(connection)
            else:
                self._heed(connection)

    def _heed(self, connection: Connection) -> None:
        wanted = 0 if connection.overfull else selectors.EVENT_READ
        if connection.stream.pending:
            wanted |= selectors.EVENT_WRITE
        if connection.stream.ended:
            wanted &= ~selectors.EVENT_READ  # what it said last is still to be answered
        self._watch(connection, wanted)

    def _watch(self, connection: Connection, wanted: int) -> None:
        before, self._interests[connection] = self._interests[connection], wanted
        if wanted == before:
            return
        if not before:
            self._selector.register(connection.stream, wanted, connection)
        elif not wanted:
            self._selector.unregister(connection.stream)
        else:
            self._selector.modify(connection.stream, wanted, connection)

    def _close(self, connection: Connection) -> None:
        """Its lease is over: its channels go with it. Others may be touched by that."""
        log.info("%r has ended: %s", connection, connection.ending)
        self._watch(connection, 0)
        if witness := self._witnesses.pop(connection, None):
            self._selector.unregister(witness)
            os.close(witness.fd)
        del self._interests[connection], self._house.connections[connection.number]
        self._house.backlogged.discard(connection)
        self._reception.farewell(connection)
        connection.close()

    # --- time --------------------------------------------------------------------------------

    def _timeout(self, due: float | None) -> float | None:
        """How long to sleep, at most; None: until something happens."""
        if any(not connection.overfull for connection in self._house.backlogged):
            return 0.0
        return None if due is None else min(max(0.0, due - time.monotonic()), LONGEST_SLEEP_S)

    def _due(self) -> float | None:
        times = (self._house.scheduler.next_wakeup(), self._house.pool.due, self._drain_by)
        return min((time for time in times if time is not None), default=None)

    def _let_time_pass(self) -> None:
        now, due = self._house.now, self._house.pool.due
        if due is not None and due <= now:
            self._floor.tick()
        wakeup = self._house.scheduler.next_wakeup()
        if wakeup is not None and wakeup <= now:
            self._errands.tell(Tick(now))

    def _look_after_the_house(self) -> None:
        now = self._house.now
        if self._house.staff_changed:
            self._house.staff_changed = False
            self._reception.muster()
        if self._drain_asked and self._drain_by is None:
            self._begin_to_drain()
        if now - self._described >= DESCRIBE_EVERY_S:
            self._described = now
            self._reception.describe()

    # --- the end -----------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        if self._reception.stopping or self._founder is None or self._founder.ending is not None:
            return False
        if self._drain_by is None:
            return True
        return bool(self._house.posts) and time.monotonic() < self._drain_by

    def _begin_to_drain(self) -> None:
        log.info("told to end: workers finish what they have")
        self._drain_by = self._house.now + DRAIN_S
        self._selector.unregister(self._listener)
        self._listener.close()
        for crew in list(self._house.crews):
            self._errands.size_crew(crew, 0)


def _swallow(wake: socket.socket) -> None:
    try:
        while os.read(wake.fileno(), 4096):
            pass
    except BlockingIOError:
        pass
