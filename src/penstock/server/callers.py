"""Who is connected, known by descriptor; and the way to hang up on them, which ZeroMQ lacks.

ZeroMQ keeps whatever comes until it is heard, and the frames of a message until the last one has
come, however many there are; and it lets those stay who connect and never say anything. So the
connections are counted here as they come and go, and from time to time it is looked how much each
has received of which nothing has been heard.
"""

from __future__ import annotations

import fcntl
import logging
import socket
import struct
import termios
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import zmq

from penstock.wire.remote import UNTAKEN

log = logging.getLogger(__name__)

# Of what may be on its way at once, twice as much: small words come beside it, and are not counted.
UNHEARD_BYTES: Final = 2 * UNTAKEN
# What ZeroMQ sends with each frame is less than that, also where it encrypts; a heartbeat, too.
BESIDE_A_FRAME: Final = 64
# Of somebody who has not even knocked.
STRANGERS_BYTES: Final = 1 << 20
# How often those are looked at, and those with a session, if nothing is left to be heard: what one
# of them can make the server keep is what comes meanwhile.
LOOK_S: Final = 0.1
GUESTS_LOOK_S: Final = 0.5
EVENTS: Final = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
# `tcpi_bytes_acked` and `tcpi_bytes_received` in Linux's `struct tcp_info`.
_ACKNOWLEDGED_AT: Final = 120
_RECEIVED_AT: Final = 128
_COUNT: Final = struct.Struct("=Q")
_EVENT: Final = struct.Struct("=Hi")
_UNSENT: Final = struct.Struct("i")
# Of SO_LINGER: nothing is waited for, and what comes yet is refused.
_AT_ONCE: Final = struct.pack("ii", 1, 0)


@dataclass(slots=True, eq=False)
class Caller:
    """One connection. `since`: when it came, or its last session ended."""

    descriptor: int
    peer: Any
    since: float = field(default_factory=time.monotonic)
    was_known: bool = False
    said: int = 0  # bytes that ZeroMQ was given for it
    _heard: int = 0
    # When all that had come was heard, how much that was, and had been received.
    _then: float = field(default_factory=time.monotonic)
    _heard_then: int = 0
    _received_then: int = 0

    def note_heard(self, nbytes: int, frames: int) -> None:
        """A message of it was heard. On its way it had no more bytes than are counted here."""
        self._heard += nbytes + BESIDE_A_FRAME * frames

    def unheard(self, now: float, beats: float, *, all_heard: bool) -> int:
        """Bytes that have come and are not heard yet, or a little less. `beats`: of those that tell
        of life alone, for a second.

        `all_heard`: nothing that is complete is left. How many bytes a message took on its way is
        known roughly, so that it is counted anew from there; but not of one that does not end.
        """
        received = _received(self)
        heard = self._heard - self._heard_then + int((now - self._then) * beats)
        unheard = received - self._received_then - heard
        if all_heard and self._heard != self._heard_then:
            self._then, self._heard_then, self._received_then = now, self._heard, received
        return unheard


Tiresome: TypeAlias = Iterator[tuple[Caller, str]]


class Callers:
    """The connections of a socket, at most `most`. All of it is one thread's."""

    def __init__(self, router: zmq.Socket[bytes], most: int, patience: float) -> None:
        # Without a limit: ZeroMQ's thread would wait for us to take note, and we for it at the end.
        address = f"inproc://callers-{id(self)}"
        router.monitor(address, EVENTS)
        self._monitor = router.context.socket(zmq.PAIR)
        self._monitor.set(zmq.RCVHWM, 0)
        self._monitor.connect(address)
        self._most = most
        self._patience = patience
        # A rank has one each second, and answers ours: one each second, or four for each lease.
        self._beats = BESIDE_A_FRAME * (1 + max(1.0, 4 / patience))
        self._there: dict[int, Caller] = {}
        self._strangers: set[Caller] = set()  # of them, those without a session
        self._somebody_left = False

    def fileno(self) -> int:
        """Readable when somebody has come or gone. It tells once: `note` makes it tell again."""
        return int(self._monitor.getsockopt(zmq.FD))

    def note(self) -> bool:
        """Takes note of who has come and gone; whether anybody has gone since the last time."""
        self._catch_up()
        left, self._somebody_left = self._somebody_left, False
        return left

    def _catch_up(self) -> None:
        while int(self._monitor.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            event, descriptor = _EVENT.unpack(self._monitor.recv_multipart(zmq.NOBLOCK)[0])
            if event == zmq.EVENT_ACCEPTED:
                self._came(descriptor)
            elif (caller := self._there.pop(descriptor, None)) is not None:
                self._strangers.discard(caller)
                self._somebody_left = True

    def _came(self, descriptor: int) -> None:
        try:
            with _borrowed(descriptor) as connection:
                caller = Caller(descriptor, connection.getpeername())
        except OSError:  # and gone
            return
        self._there[descriptor] = caller
        self._strangers.add(caller)
        if len(self._there) > self._most:
            log.warning(
                "a connection is refused: there are %d (setting: max_connections)", self._most
            )
            self.hang_up(caller)

    # --- who has a session -------------------------------------------------------------------

    @property
    def has_strangers(self) -> bool:
        """Whether there is anybody without a session."""
        return bool(self._strangers)

    def know(self, descriptor: int) -> Caller | None:
        """It has a session now; None if it has gone already."""
        self._catch_up()  # its coming, or that somebody else had the number before
        if (caller := self._there.get(descriptor)) is not None:
            self._strangers.discard(caller)
            caller.was_known = True
        return caller

    def by_descriptor(self, descriptor: int) -> Caller | None:
        """Who has said something, with a session or without; None if it has gone already."""
        self._catch_up()
        return self._there.get(descriptor)

    def acknowledged(self, caller: Caller | None) -> int:
        """Bytes that have come to the other end's kernel; 0 where nobody counts them."""
        return 0 if caller is None else _counted(caller, _ACKNOWLEDGED_AT)

    def forget(self, caller: Caller | None) -> None:
        """It has none any more."""
        if caller is not None and self._there.get(caller.descriptor) is caller:
            self._strangers.add(caller)
            caller.since = time.monotonic()

    # --- hanging up --------------------------------------------------------------------------

    def tiresome_strangers(self, *, all_heard: bool) -> Tiresome:
        """Those without a session who are to go, and why.

        Of who had one, much may still be on its way.
        """
        now = time.monotonic()
        for caller in list(self._strangers):
            if not caller.was_known and (came := _received(caller)) > STRANGERS_BYTES:
                yield caller, f"it has sent {came} bytes and has no session"
            elif (unheard := caller.unheard(now, self._beats, all_heard=all_heard)) > UNHEARD_BYTES:
                yield caller, _too_much(unheard)
            elif now - caller.since > self._patience:
                yield caller, f"it has not knocked for {now - caller.since:.1f} s"

    def tiresome_guests(self, guests: Iterable[Caller], *, all_heard: bool) -> Tiresome:
        """Of those with a session, who are to go, and why."""
        now = time.monotonic()
        for caller in guests:
            if (unheard := caller.unheard(now, self._beats, all_heard=all_heard)) > UNHEARD_BYTES:
                yield caller, _too_much(unheard)

    def hang_up(self, caller: Caller) -> None:
        """Ends a connection: ZeroMQ finds it closed, and says so."""
        # Somebody else may have the number by now.
        with suppress(OSError), _borrowed(caller.descriptor) as connection:
            if connection.getpeername() == caller.peer:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def have_taken_all(self) -> bool:
        """Whether nothing is on its way to anybody any more, as far as the kernel knows.

        Of what it was never given, which ZeroMQ has, only the amount tells.
        """
        return all(
            _unsent(caller) == 0 and (self.acknowledged(caller) or caller.said) >= caller.said
            for caller in self._there.values()
        )

    def close(self) -> None:
        """Listens no more. Idempotent."""
        self._there.clear()
        self._strangers.clear()
        self._monitor.close(0)


def _too_much(unheard: int) -> str:
    return f"it has sent {unheard} bytes too much, or of a message that does not end"


def _received(caller: Caller) -> int:
    """Bytes that have come over a connection; 0 where nobody counts them."""
    return _counted(caller, _RECEIVED_AT)


def _counted(caller: Caller, at: int) -> int:
    try:
        with _borrowed(caller.descriptor) as connection:
            told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:  # it has just gone
        return 0
    return int(_COUNT.unpack_from(told, at)[0]) if len(told) >= at + _COUNT.size else 0


def _unsent(caller: Caller) -> int:
    """Bytes that the other end has not acknowledged; 0 if it has gone."""
    told = bytearray(_UNSENT.size)
    with suppress(OSError):
        fcntl.ioctl(caller.descriptor, termios.TIOCOUTQ, told)
    return int(_UNSENT.unpack(told)[0])


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A connection of ZeroMQ's, which stays its own: there may be no descriptor left for us."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)
    try:
        yield connection
    finally:
        connection.detach()


def descriptor_of(frame: zmq.Frame) -> int:
    """Which connection a frame came over; -1 if nobody knows."""
    try:
        return int(frame.get("__fd"))
    except (zmq.ZMQError, ValueError):
        return -1
