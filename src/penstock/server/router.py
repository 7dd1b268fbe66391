"""The server's one socket: a ZeroMQ ROUTER, with the options that make it safe to leave open.

Who sends too large a message, or does not finish greeting, is cut off by ZeroMQ itself; so is who
does not answer its heartbeats, which a rank's I/O thread does however busy its Python is. A peer
that has gone shows when something is to be sent to it. What a peer leaves unread is bounded: past
that `send` says so, and the socket's descriptor wakes when there is room again. That somebody has
gone, though not who, is told at once by `callers`, which sees to the rest, too: to what has come
and was not heard, to messages that do not end, and to those who never say anything.

Nothing here knows what is said.
"""

from __future__ import annotations

import time
from enum import Enum, auto
from typing import Final, TypeAlias

import zmq

from penstock.server.admission import Admission, Peer, check_reach, host_of, is_loopback
from penstock.server.callers import Callers
from penstock.wire.remote import HEADER, PIECE

Frames: TypeAlias = list[zmq.Frame]

# Messages for one peer that ZeroMQ keeps. Pieces that are sent lie in slots, and take no memory.
_UNSENT: Final = 64
_HANDSHAKE_MS: Final = 5000
# How long last words may take at the end, and how often it is looked whether they have gone.
_LINGER_S: Final = 0.5
_LOOK_MS: Final = 5
# What the kernel keeps of what is sent, where nothing is far. More would only take the caches from
# those who sample: sending beside two workers costs an eighth less processor time. Over a network
# the kernel knows better how much may be on its way.
_NEAR_UNSENT: Final = 512 << 10
# Frames of a message that are kept: one more than any has. What follows is dropped, so much of it
# in one go.
_KEPT: Final = 3
_DROPPED: Final = 512


class Sent(Enum):
    """What became of a message."""

    YES = auto()
    FULL = auto()  # the peer has much to read: later
    GONE = auto()


class Router:
    """A bound ROUTER; all of it is used by one thread at a time."""

    def __init__(
        self, address: str, admission: Admission, lease: float, max_connections: int = 8192
    ) -> None:
        check_reach(address, admission)
        self._admission = admission
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._closed = False
        self._coming: Frames = []  # of a message that has more frames than were looked at
        self.bytes_in = self.bytes_out = 0
        try:
            _set_up(self._socket, lease)
            host = host_of(address)
            self._socket.setsockopt(zmq.IPV6, int(":" in host))
            if is_loopback(host):
                self._socket.setsockopt(zmq.SNDBUF, _NEAR_UNSENT)
            admission.configure(self._context, self._socket)
            self.callers = Callers(self._socket, max_connections, lease)
            _bind(self._socket, address)
        except BaseException:
            self.close()
            raise
        self.address = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))

    def fileno(self) -> int:
        """Readable when something may have changed. It tells once: look until there is nothing."""
        return int(self._socket.getsockopt(zmq.FD))

    @property
    def has_more(self) -> bool:
        """Whether there is something to receive. To ask also makes the descriptor tell again."""
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def receive(self) -> tuple[bytes, Frames] | None:
        """The next message and who sent it, of too long a one its beginning; None if there is none.

        None also after very many frames of one message: the others have their turn meanwhile.
        """
        coming = self._coming
        for _ in range(_DROPPED):
            try:
                frame = self._socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            if len(coming) <= _KEPT:
                coming.append(frame)
            if not frame.more:
                self._coming = []
                identity, *frames = coming
                self.bytes_in += sum(map(len, frames))
                return identity.bytes, frames
        return None

    def send(self, identity: bytes, header: bytes, data: memoryview | None = None) -> Sent:
        """Sends without waiting. `data` stays where it lies until ZeroMQ is done with it."""
        parts: list[bytes | memoryview] = [identity, header]
        if data is not None:
            parts.append(data)
        try:
            self._socket.send_multipart(parts, zmq.NOBLOCK, copy=data is None)
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return Sent.GONE
        self.bytes_out += len(header) + (0 if data is None else data.nbytes)
        return Sent.YES

    def close(self) -> None:
        """Closes the socket, once its last words have gone or it is too late. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if (callers := getattr(self, "callers", None)) is not None:
            self._wait_for_last_words(callers)
            self._socket.disable_monitor()
            callers.close()
        self._socket.close(0)
        self._admission.close()
        self._context.term()

    def _wait_for_last_words(self, callers: Callers) -> None:
        """Until all that was said has gone out, for a while. Nobody is listened to any more.

        It is not left to ZeroMQ: a socket that lingers stops its input, with what that may lead to
        (docs/adr/0014).
        """
        deadline = time.monotonic() + _LINGER_S
        taken = 0  # times in a row: between two looks ZeroMQ has handed on what it had
        while taken < 2 and time.monotonic() < deadline:
            if self._socket.poll(_LOOK_MS):
                self.receive()
                continue
            callers.note()
            taken = taken + 1 if callers.have_taken_all else 0


def peer_of(frame: zmq.Frame) -> Peer:
    """Whom a frame came from."""
    return Peer(_told(frame, "Peer-Address") or "", _told(frame, "User-Id"))


def _told(frame: zmq.Frame, name: str) -> str | None:
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return None


def _set_up(socket: zmq.Socket[bytes], lease: float) -> None:
    milliseconds = max(1, int(lease * 1000))
    options = {
        zmq.ROUTER_MANDATORY: 1,
        zmq.ROUTER_HANDOVER: 0,
        zmq.MAXMSGSIZE: PIECE + HEADER,
        zmq.SNDHWM: _UNSENT,
        # Where there is a limit, ZeroMQ 4.3 ends the process when it was reached, the connection is
        # reset, and a heartbeat is due. `callers` sees to it that no more comes than may.
        zmq.RCVHWM: 0,
        zmq.LINGER: 0,
        zmq.IMMEDIATE: 1,
        zmq.HANDSHAKE_IVL: _HANDSHAKE_MS,
        zmq.HEARTBEAT_IVL: max(1, min(1000, milliseconds // 4)),
        zmq.HEARTBEAT_TIMEOUT: milliseconds,
        # A rank that is stopped while much is on its way to it never gets to hear a heartbeat: then
        # it is the kernel that gives up.
        zmq.TCP_MAXRT: milliseconds,
    }
    for option, value in options.items():
        socket.setsockopt(option, value)


def _bind(socket: zmq.Socket[bytes], address: str) -> None:
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"cannot listen at {address}: {error}") from error
