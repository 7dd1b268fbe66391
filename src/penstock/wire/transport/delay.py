"""A slow network, for tests and benchmarks: what a process sends over TCP arrives later.

`PENSTOCK_TEST_DELAY_MS=2` in the environment of servers and clients delays all that they send by
two milliseconds, so that a round trip takes four. Bytes arrive in order, and any number of them are
on their way at once: the delay costs time, and nothing else. With 0 they take the same way without
the delay, to compare with.

One thread of the process sends everything when its time has come. It copies what it keeps, so this
is no way to run a server.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import select
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final, TypeAlias

VARIABLE: Final = "PENSTOCK_TEST_DELAY_MS"

# Bytes to send; or a marker for the end of sending, or for the end of the connection.
_FINISH: Final = "finish"
_CLOSE: Final = "close"
_Item: TypeAlias = bytes | str
# Milliseconds for which the courier waits for room in sockets before it looks for new items.
_LOOK_MS: Final = 1


def slowed(connected: socket.socket) -> socket.socket:
    """Return a socket that delays what it sends, if the environment asks for that."""
    milliseconds = os.environ.get(VARIABLE)
    return connected if milliseconds is None else DelayedSocket(connected, _seconds(milliseconds))


def _seconds(milliseconds: str) -> float:
    try:
        seconds = float(milliseconds) / 1000
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 3600:
        raise ValueError(f"{VARIABLE} is {milliseconds!r}; expected milliseconds, such as 2")
    return seconds


class DelayedSocket(socket.socket):
    """A connected socket; it takes the place of `connected`. It takes whatever it is given."""

    def __init__(self, connected: socket.socket, seconds: float) -> None:
        super().__init__(fileno=connected.detach())
        self.setblocking(False)
        self._way = _Way(socket.socket(fileno=os.dup(self.fileno())), seconds)

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Have all of it sent later."""
        copy = bytes(data)
        self._way.take(copy)
        return len(copy)

    def sendmsg(self, buffers: Any, *_: Any) -> int:
        """Have all of it sent later."""
        copy = b"".join(buffers)
        self._way.take(copy)
        return len(copy)

    def shutdown(self, how: int, /) -> None:
        """End a direction; that of sending ends when all was sent."""
        if how == socket.SHUT_WR:
            self._way.take(_FINISH)
        else:
            super().shutdown(how)

    def close(self) -> None:
        """Close the socket; the connection ends when all was sent. Idempotent."""
        if self.fileno() >= 0:
            super().close()
            self._way.take(_CLOSE)


class _Way:
    """What a socket has to send, as the courier sends it, by a descriptor of its own."""

    def __init__(self, connected: socket.socket, seconds: float) -> None:
        self.socket = connected
        self._seconds = seconds
        self._late: deque[_Item] = deque()  # whose time has come, without room in the socket
        self._error: OSError | None = None
        self._courier = _courier_of(self)

    def take(self, item: _Item) -> None:
        """Have something sent when its time has come."""
        if self._error is not None and item is not _CLOSE:
            raise self._error
        self._courier.take(time.monotonic() + self._seconds, self, item)

    # --- for the courier ---------------------------------------------------------------------

    def deliver(self, item: _Item) -> bool:
        """Send something, after what is late; return whether nothing is late."""
        self._late.append(item)
        return self.go_on()

    def go_on(self) -> bool:
        """Send what is late; return False if the socket has no room for all of it."""
        while self._late:
            item = self._late.popleft()
            if (left := self._sent(item)) is not None:
                self._late.appendleft(left)
                return False
        return True

    def _sent(self, item: _Item) -> _Item | None:
        """Send something; return what the socket had no room for."""
        if item is _CLOSE:
            self.socket.close()
        elif item is _FINISH:
            with suppress(OSError):  # it has ended already
                self.socket.shutdown(socket.SHUT_WR)
        elif isinstance(item, bytes) and self._error is None:
            try:
                sent = self.socket.send(item)
            except (BlockingIOError, InterruptedError):
                return item
            except OSError as error:
                self._error = error
                return None
            return item[sent:] if sent < len(item) else None
        return None


class _Courier(threading.Thread):
    """Sends what all sockets have to send, for as long as there are any."""

    def __init__(self) -> None:
        super().__init__(name="penstock-delay", daemon=True)
        # When, in which order, by which socket, and what.
        self._items: list[tuple[float, int, _Way, _Item]] = []
        self._numbers = itertools.count()
        self._came = threading.Condition()
        self._open = 0
        self.is_over = False

    def add(self) -> bool:
        """Count one more socket; return False if the thread has ended."""
        with self._came:
            self._open += not self.is_over
            return not self.is_over

    def take(self, at: float, way: _Way, item: _Item) -> None:
        """Send something at a time; for each socket in the order in which it is taken."""
        with self._came:
            heapq.heappush(self._items, (at, next(self._numbers), way, item))
            if self._items[0][0] == at:
                self._came.notify()

    def run(self) -> None:
        """Send, until all sockets are closed."""
        full: dict[int, _Way] = {}  # sockets that had no room, by descriptor
        while not self.is_over:
            for way, item in self._due(full):
                if not way.deliver(item):
                    full[way.socket.fileno()] = way
                elif item is _CLOSE:
                    self._forget()
            if full:
                self._make_room(full)

    def _due(self, full: dict[int, _Way]) -> list[tuple[_Way, _Item]]:
        """Return what is to be sent now; if no socket is full, wait until there is something."""
        with self._came:
            while not full and self._open and (left := self._left()) > 0:
                self._came.wait(None if left == math.inf else left)
            due = []
            while self._left() <= 0:
                due.append(heapq.heappop(self._items)[2:])
            self.is_over = not (full or self._open or self._items)
            return due

    def _left(self) -> float:
        """Return the seconds until something is due."""
        return self._items[0][0] - time.monotonic() if self._items else math.inf

    def _make_room(self, full: dict[int, _Way]) -> None:
        """Go on with sockets that had no room, if they have some soon."""
        waiting = select.poll()
        for descriptor in full:
            waiting.register(descriptor, select.POLLOUT)
        for descriptor, _ in waiting.poll(_LOOK_MS):
            way = full.pop(descriptor)
            if not way.go_on():
                full[descriptor] = way
            elif way.socket.fileno() < 0:
                self._forget()

    def _forget(self) -> None:
        with self._came:
            self._open -= 1


_LOCK = threading.Lock()
_couriers: dict[int, _Courier] = {}


def _courier_of(way: _Way) -> _Courier:
    """Return this process's courier, which is started if there is none."""
    with _LOCK:
        found = _couriers.get(os.getpid())
        if found is None or not found.add():
            _couriers.clear()
            found = _couriers[os.getpid()] = _Courier()
            found.add()
            found.start()
        return found
