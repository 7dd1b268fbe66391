"""One thread for all connections to servers: it receives, sends what waits, and sends heartbeats.

So batches arrive while the training step computes, and a rank whose Python is busy keeps its lease.
The thread belongs to this process, and lives for as long as there are connections; a fork starts
its own.
"""

from __future__ import annotations

import logging
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from io import FileIO
from typing import Final, Protocol

from penstock.wire.framing import LONGEST_POLL

log = logging.getLogger(__name__)

_READ, _WRITE = select.EPOLLIN, select.EPOLLOUT
_LONGEST_S: Final = LONGEST_POLL // 1000
_AT_ONCE: Final = 64


class Connected(Protocol):
    """A connection as the thread uses it. The thread alone calls these methods."""

    @property
    def descriptor(self) -> int:
        """The socket's descriptor; -1 once it is closed."""

    @property
    def pending(self) -> bool:
        """Whether something waits for room in the socket."""

    @property
    def is_heard(self) -> bool:
        """Whether the thread must receive: not if somebody else does, or nothing more comes."""

    def attend(self, *, readable: bool, now: float) -> None:
        """Send what waits; receive, if there is something."""

    def beat(self, now: float) -> float:
        """Send a heartbeat, and return the time of the next one."""

    def lose(self, error: Exception) -> None:
        """Tell whoever waits that the connection is over."""

    def shut(self) -> None:
        """Close the socket."""


def eventfd() -> FileIO:
    """Return a descriptor to wake somebody with. It closes with its last reference."""
    return FileIO(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "r+")


class IoThread:
    """The thread that serves connections. `remove`, `flush` and `keep_alive` are for any thread."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._nudge_file = eventfd()
        self._nudge = self._nudge_file.fileno()
        self._epoll.register(self._nudge, _READ)
        self._calls: deque[Callable[[], None]] = deque()
        self._there: dict[int, Connected] = {}
        self._events: dict[int, int] = {}
        self._beats: dict[Connected, float] = {}
        self._next_beat = math.inf
        self._users: set[Connected] = set()  # also those still to be added; guarded by the lock
        self._over = False
        self._thread = threading.Thread(target=self._run, name="penstock-io", daemon=True)
        self._thread.start()

    # --- from any thread ---

    def look_after(self, connection: Connected) -> None:
        """Serve a connection until `remove`. The caller holds the lock."""
        self._users.add(connection)
        self._call(lambda: self._add(connection))

    def remove(self, connection: Connected) -> None:
        """Close a connection. The thread itself does it, so that it never reads a closed socket."""
        with _LOCK:
            if not self._over:
                self._call(lambda: self._remove(connection))
                return
        connection.shut()

    def flush(self, connection: Connected) -> None:
        """Send, as soon as there is room, what a connection could not send itself."""
        self._call(lambda: self._attend_again(connection))

    def keep_alive(self, connection: Connected, at: float) -> None:
        """Have `beat` called at that time, and then at each time that `beat` returns."""
        self._call(lambda: self._beat_at(connection, at))

    def _call(self, call: Callable[[], None]) -> None:
        # Without the lock, the thread could end before it is woken, and its descriptor could then
        # belong to something else.
        with _LOCK:
            try:
                self._calls.append(call)
            finally:  # also after an interrupt: a call without a wake-up would wait for ever
                if self._nudge >= 0:  # otherwise the thread has failed, and has told everybody so
                    os.eventfd_write(self._nudge, 1)

    # --- in the thread ---

    def _run(self) -> None:
        try:
            while not self._is_over():
                self._turn()
        except BaseException as error:  # a bug of ours: whoever waits is told
            log.exception("the thread for connections to servers has failed")
            self._fail(error)
        finally:
            with _LOCK:
                self._nudge = -1
                self._nudge_file.close()
            self._epoll.close()

    def _fail(self, error: BaseException) -> None:
        with _LOCK:
            self._over = True
            if _threads.get(os.getpid()) is self:
                del _threads[os.getpid()]
        for connection in list(self._there.values()):
            connection.lose(ConnectionResetError(f"its thread has failed: {error!r}"))

    def _turn(self) -> None:
        self._handle(self._next_beat - time.monotonic())
        if time.monotonic() >= self._next_beat:
            # This process may have been stopped for a while: receive first what came meanwhile,
            # before a server counts as silent.
            self._handle(0.0)
            self._beat()

    def _handle(self, timeout: float) -> None:
        events = self._epoll.poll(max(0.0, min(timeout, _LONGEST_S)), _AT_ONCE)
        now = time.monotonic()
        for descriptor, mask in events:
            if descriptor == self._nudge:
                os.eventfd_read(self._nudge)
            elif (connection := self._there.get(descriptor)) is not None:
                self._attend(connection, readable=bool(mask & ~_WRITE), now=now)
        while self._calls:
            self._calls.popleft()()

    def _attend(self, connection: Connected, *, readable: bool, now: float) -> None:
        try:
            connection.attend(readable=readable, now=now)
        except Exception as error:  # a bug in one connection must not harm the others
            log.exception("handling a connection failed")
            connection.lose(ConnectionResetError(f"handling it failed: {error!r}"))
        self._watch(connection)

    def _attend_again(self, connection: Connected) -> None:
        if self._there.get(connection.descriptor) is connection:
            self._attend(connection, readable=False, now=time.monotonic())

    def _add(self, connection: Connected) -> None:
        self._there[connection.descriptor] = connection
        self._watch(connection)

    def _watch(self, connection: Connected) -> None:
        descriptor = connection.descriptor
        if self._there.get(descriptor) is not connection:
            return
        events = _READ if connection.is_heard else 0
        if connection.pending:
            events |= _WRITE
        before = self._events.get(descriptor, 0)
        if not before and events:
            self._epoll.register(descriptor, events)
        elif before and not events:  # epoll would report a hang-up even so, again and again
            self._epoll.unregister(descriptor)
        elif before != events:
            self._epoll.modify(descriptor, events)
        self._events[descriptor] = events

    def _remove(self, connection: Connected) -> None:
        descriptor = connection.descriptor
        if self._there.get(descriptor) is connection:
            del self._there[descriptor]
            if self._events.pop(descriptor, 0):
                self._epoll.unregister(descriptor)
        self._beats.pop(connection, None)
        connection.shut()
        with _LOCK:
            self._users.discard(connection)

    def _beat_at(self, connection: Connected, at: float) -> None:
        if self._there.get(connection.descriptor) is connection:
            self._beats[connection] = at
            self._next_beat = min(self._next_beat, at)

    def _beat(self) -> None:
        now = time.monotonic()
        for connection, at in list(self._beats.items()):
            if now >= at:
                self._beats[connection] = connection.beat(now)
                self._watch(connection)
        self._next_beat = min(self._beats.values(), default=math.inf)

    def _is_over(self) -> bool:
        """Return whether nobody needs the thread; if so, from now on nobody gets it either."""
        with _LOCK:
            if self._users or self._calls:
                return False
            if _threads.get(os.getpid()) is self:
                del _threads[os.getpid()]
            self._over = True
            return True


# Reentrant, for a finalizer that closes a connection.
_LOCK = threading.RLock()
_threads: dict[int, IoThread] = {}


def _forget_in_fork() -> None:
    """Start afresh: a fork has none of its parent's threads, and the lock may be held for ever."""
    global _LOCK
    _LOCK = threading.RLock()
    _threads.clear()


os.register_at_fork(after_in_child=_forget_in_fork)


def look_after(connection: Connected, note: Callable[[IoThread], None]) -> None:
    """Have this process's thread serve one more connection, until its `remove`.

    `note` is told which thread it is before anything else, since an interrupt may come at any
    moment.
    """
    with _LOCK:
        found = _threads.get(os.getpid())
        if found is None:
            found = _threads[os.getpid()] = IoThread()
        note(found)
        found.look_after(connection)
