"""Who receives: one of the threads that wait, for all of them.

So an answer reaches its thread without another thread in between. A thread that has what it waited
for passes the role on to the next one. A `Reception` receives from one connection; a
`GroupReception` from several, so that a thread that waits for one server also takes in what the
others send.

A signal handler may wait while its thread does: it receives in its thread's place.
"""

from __future__ import annotations

import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.rpc.connection import RemoteConnection
from penstock.rpc.deadline import Deadline

# Wakes a thread that waits; what it finds there does not matter, only that it looks again. A
# `SimpleQueue` is reentrant: a signal handler may use it at any moment.
Inbox: TypeAlias = "SimpleQueue[Any]"

# Put into an inbox so that its thread looks whether anybody receives.
LOOK: Final = None
# Seconds after which a thread looks without being woken: an interrupt may have lost the wake-up,
# and a signal handler may have received what it waits for.
LOOK_S: Final = 1.0
_AT_ONCE: Final = 64


class _Receiver(NamedTuple):
    """The inbox of the thread that receives.

    `before` is the receiver before it in the same thread, which a signal handler has interrupted.
    """

    inbox: Inbox
    thread: int
    before: _Receiver | None


class Reception:
    """Passes the role of receiving from one connection on among threads. Any thread may use it."""

    def __init__(self, connection: RemoteConnection | None = None) -> None:
        self._connection = connection
        self._drive = (lambda seconds: False) if connection is None else connection.drive
        self.receiver: _Receiver | None = None
        self._listening: dict[Inbox, None] = {}  # of threads that wait
        # Reentrant: it is held for a few instructions, during which a signal handler may call.
        self._taking_turns = threading.RLock()
        self._leaving: deque[RemoteConnection] = deque()  # to be closed when nobody receives
        self._closed = False

    def wait(self, inbox: Inbox, is_done: Callable[[], bool], deadline: Deadline) -> bool:
        """Wait until `is_done()`, and receive meanwhile; return False if that is not so in time.

        Whoever makes it true in another thread puts something into `inbox`.
        """
        self._listening[inbox] = None
        try:
            while not is_done():
                if self._take_turn(inbox):
                    return self._receive(is_done, deadline)
                if deadline.passed:
                    return False
                with suppress(Empty):
                    inbox.get(timeout=_at_most(LOOK_S, deadline))
            return True
        finally:
            self._end_turn(inbox)
            self._listening.pop(inbox, None)
            if self._listening:
                self._hand_on()

    def look(self) -> None:
        """Process what has come, if nobody receives."""
        if self.receiver is not None:
            return
        inbox: Inbox = SimpleQueue()
        try:
            if self._take_turn(inbox):
                self._drive(0)
        finally:
            self._end_turn(inbox)
            self._hand_on()

    def let_go(self, connection: RemoteConnection) -> None:
        """Close a connection; if a thread receives, it does so. Idempotent; never waits."""
        with self._taking_turns:
            self._forget(connection)
            if self.receiver is None:
                connection.close()
                return
            self._leaving.append(connection)
        connection.take_leave()  # wakes the thread that receives from it
        self._close_leaving()  # it may have stopped meanwhile

    # --- taking turns ------------------------------------------------------------------------

    def _receive(self, is_done: Callable[[], bool], deadline: Deadline) -> bool:
        """Receive until `is_done()`; return False if that is not so in time."""
        drive = self._drive
        while True:
            came = drive(_at_most(LOOK_S, deadline))
            if self._leaving:
                self._close_leaving(own_turn=True)
            if is_done():
                return True
            if not came and deadline.passed:
                return False

    def _take_turn(self, inbox: Inbox) -> bool:
        """Make `inbox` the receiver; return False if another thread receives, or at the end.

        Callers must call `_end_turn` in a `finally` that they have entered before, so that an
        interrupt cannot leave a receiver behind that receives nothing.
        """
        me = threading.get_ident()
        with self._taking_turns:
            before = self.receiver
            if self._closed or (before is not None and before.thread != me):
                return False
            self.receiver = _Receiver(inbox, me, before)
            return True

    def _end_turn(self, inbox: Inbox) -> None:
        """End the turn of `inbox`, if it is the receiver."""
        receiver = self.receiver
        if receiver is not None and receiver.inbox is inbox:
            self.receiver = receiver.before
            if self._leaving or self._closed:
                self._close_leaving()

    def _hand_on(self) -> None:
        """Wake another waiting thread to receive, if nobody does. Called by each that stops."""
        if self.receiver is None:
            for inbox in list(self._listening)[:1]:
                inbox.put(LOOK)

    # --- the end of connections --------------------------------------------------------------

    def _forget(self, connection: RemoteConnection) -> None:
        """Receive from a connection no more."""
        self._closed = True

    def _close_leaving(self, *, own_turn: bool = False) -> None:
        """Close what was let go of, unless somebody may be in the middle of receiving from it."""
        with self._taking_turns:
            receiver = self.receiver
            if receiver is None or (own_turn and receiver.before is None):
                while self._leaving:
                    self._leaving.popleft().close()
            if self._closed and receiver is None:
                self._shut()

    def _shut(self) -> None:
        """Release what is left, now that nobody receives and nobody will."""


def _at_most(seconds: float, deadline: Deadline) -> float:
    """Return the seconds until a deadline, or fewer."""
    left = deadline.remaining
    return seconds if left is None or left > seconds else left


class GroupReception(Reception):
    """Receives from several connections, which come and go."""

    def __init__(self) -> None:
        super().__init__()
        self._drive = self._drive_all
        self._epoll = select.epoll()
        self._there: dict[int, RemoteConnection] = {}

    def add(self, connection: RemoteConnection) -> None:
        """Receive from one more connection, until `let_go`."""
        with self._taking_turns:
            descriptor = connection.descriptor
            self._there[descriptor] = connection
            self._epoll.register(descriptor, select.EPOLLIN)

    def close(self) -> None:
        """Receive nothing more; all connections must have been let go of. Idempotent."""
        self._closed = True
        self._close_leaving()

    def _shut(self) -> None:
        self._epoll.close()

    def _drive_all(self, seconds: float) -> bool:
        events = self._epoll.poll(seconds, _AT_ONCE)
        for descriptor, _ in events:
            connection = self._there.get(descriptor)
            if connection is not None:
                connection.take_in()
                if connection.is_over:  # epoll would report its end again and again
                    self._forget(connection)
        return bool(events)

    def _forget(self, connection: RemoteConnection) -> None:
        with self._taking_turns:
            for descriptor, held in list(self._there.items()):
                if held is connection:
                    del self._there[descriptor]
                    with suppress(OSError, ValueError):  # it is closed already
                        self._epoll.unregister(descriptor)
