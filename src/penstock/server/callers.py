"""Who is connected, known by descriptor; and the way to hang up on them, which ZeroMQ lacks.

ZeroMQ keeps the frames of a message until the last one has come, however many there are, and lets
those stay who connect and never say anything. So the connections are counted here as they come and
go, and from time to time it is looked how much each has received of which nothing has been heard.
Nothing is looked at more often than leases are, but for those who have not said yet who they are.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import zmq

log = logging.getLogger(__name__)

# Of a message on its way: its own fields, and a piece, with room to spare.
UNHEARD_BYTES: Final = 32 << 20
# Of somebody who has not even knocked.
STRANGERS_BYTES: Final = 1 << 20
# How often those are looked at.
LOOK_S: Final = 0.1
EVENTS: Final = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
# `tcpi_bytes_received` in Linux's `struct tcp_info`.
_RECEIVED_AT: Final = 128
_RECEIVED: Final = struct.Struct("=Q")
_EVENT: Final = struct.Struct("=Hi")

# How many bytes were heard from whoever has this descriptor.
Heard = Callable[[int], int]


@dataclass(slots=True, eq=False)
class _Caller:
    """One connection. `received`: its bytes when something was heard last, which was `since`."""

    peer: Any
    since: float = field(default_factory=time.monotonic)
    received: int = 0
    heard: int = 0
    was_known: bool = False


class Callers:
    """The connections of a socket, at most `most`. All of it is one thread's."""

    def __init__(self, router: zmq.Socket[bytes], most: int, patience: float) -> None:
        self._monitor = router.get_monitor_socket(EVENTS)
        self._most = most
        self._patience = patience
        self._there: dict[int, _Caller] = {}
        self._strangers: set[int] = set()  # of them, those without a session

    def __len__(self) -> int:
        return len(self._there)

    def fileno(self) -> int:
        """Readable when somebody has come or gone. It tells once: `note` makes it tell again."""
        return int(self._monitor.getsockopt(zmq.FD))

    def note(self) -> bool:
        """Takes note of who has come and gone; whether anybody has gone."""
        gone = False
        while int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            event, descriptor = _EVENT.unpack(self._monitor.recv_multipart(zmq.NOBLOCK)[0])
            if event == zmq.EVENT_ACCEPTED:
                self._came(descriptor)
            else:
                gone |= self._there.pop(descriptor, None) is not None
                self._strangers.discard(descriptor)
        return gone

    def _came(self, descriptor: int) -> None:
        with suppress(OSError), _borrowed(descriptor) as connection:
            self._there[descriptor] = _Caller(connection.getpeername())
            self._strangers.add(descriptor)
        if len(self._there) > self._most:
            log.warning("a connection is refused: there are %d (max_connections)", self._most)
            self.hang_up(descriptor)

    # --- who has a session -------------------------------------------------------------------

    @property
    def has_strangers(self) -> bool:
        """Whether there is anybody without a session."""
        return bool(self._strangers)

    def know(self, descriptor: int) -> None:
        """It has a session now."""
        self._strangers.discard(descriptor)
        if (caller := self._there.get(descriptor)) is not None:
            caller.was_known = True

    def forget(self, descriptor: int) -> None:
        """It has none any more."""
        if (caller := self._there.get(descriptor)) is not None:
            self._strangers.add(descriptor)
            caller.since, caller.received = time.monotonic(), _received(descriptor)

    # --- hanging up --------------------------------------------------------------------------

    def tiresome_strangers(self) -> Iterator[tuple[int, str]]:
        """Those without a session who are to go, and why."""
        now = time.monotonic()
        for descriptor in list(self._strangers):
            caller = self._there[descriptor]
            came = _received(descriptor) - caller.received
            if came > (UNHEARD_BYTES if caller.was_known else STRANGERS_BYTES):
                yield descriptor, f"it has sent {came} bytes and has no session"
            elif now - caller.since > self._patience:
                yield descriptor, f"it has not knocked for {now - caller.since:.1f} s"

    def tiresome_guests(self, heard: Heard) -> Iterator[tuple[int, str]]:
        """Those with a session who are to go. All that is complete has been heard."""
        for descriptor in self._there.keys() - self._strangers:
            caller, received = self._there[descriptor], _received(descriptor)
            if (now_heard := heard(descriptor)) != caller.heard:
                caller.heard, caller.received = now_heard, received
            elif (came := received - caller.received) > UNHEARD_BYTES:
                yield descriptor, f"it has sent {came} bytes of a message that does not end"

    def hang_up(self, descriptor: int) -> None:
        """Ends a connection: ZeroMQ finds it closed, and says so."""
        caller = self._there.get(descriptor)
        if caller is None:
            return
        # Somebody else may have the number by now.
        with suppress(OSError), _borrowed(descriptor) as connection:
            if connection.getpeername() == caller.peer:
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Listens no more. Idempotent."""
        self._there.clear()
        self._strangers.clear()
        self._monitor.close(0)


def _received(descriptor: int) -> int:
    """Bytes that have come over a connection; 0 where nobody counts them."""
    try:
        with _borrowed(descriptor) as connection:
            told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:  # it has just gone
        return 0
    if len(told) < _RECEIVED_AT + _RECEIVED.size:
        return 0
    return int(_RECEIVED.unpack_from(told, _RECEIVED_AT)[0])


def _borrowed(descriptor: int) -> socket.socket:
    """A connection of ZeroMQ's, by a descriptor of our own."""
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, os.dup(descriptor))


def descriptor_of(frame: zmq.Frame) -> int:
    """Which connection a frame came over; -1 if nobody knows."""
    try:
        return int(frame.get("__fd"))
    except (zmq.ZMQError, ValueError):
        return -1
