"""A ZeroMQ socket that any thread may post to, and that tells when the other end has gone.

A DEALER belongs to one thread at a time. Here that is whoever has the lock, and none waits for it
but the reader: who posts and finds it taken leaves the message, and whoever has it sends that on
the way out. So a finalizer can post in the middle of anything, also of this code.

What has come is told by the socket's own descriptor, but only once: whoever has looked must go on
until nothing is left. The `nudge` tells the reader of what others saw coming when they sent.
"""

from __future__ import annotations

import os
import select
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import zmq

from penstock.client.remote.door import Door
from penstock.client.remote.memory import expect_large_messages
from penstock.wire.remote import UNTAKEN
from penstock.wire.stream import LONGEST_POLL

Frames: TypeAlias = Sequence[Any]
_Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"

# A sign of life is asked for so often; without one for so long, the other end has gone.
BEAT_MS: Final = 1000
SILENCE_MS: Final = 5000
HANDSHAKE_MS: Final = 5000
# What was posted last (goodbye) may take so long, while everybody has gone on.
_LINGER_MS: Final = 200
# Messages that wait in the socket; more wait with us, until somebody waits here. No channel has so
# many slots to give back.
_WAITING: Final = 4096
_LONGEST_S: Final = LONGEST_POLL // 1000

_POLLIN: Final = int(zmq.POLLIN)
_REFUSALS: Final = {
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "it does not speak as we do: perhaps it is no server of "
    "Penstock's, or only one side encrypts (setting: key)",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "it does not know our key (setting: identity)",
}
_ENDS: Final = {
    zmq.EVENT_DISCONNECTED: "the connection was lost",
    zmq.EVENT_CLOSED: "no connection came about",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the connection was ended before anything was said",
    **_REFUSALS,
}


class Dealer:
    """One connection; it is not made again once it is lost."""

    def __init__(self, door: Door) -> None:
        self.end: str | None = None  # why there is nothing more to hear
        self.is_refused = False  # and will be again
        self._lock = threading.Lock()
        self._posts: deque[bytes] = deque()
        self._asked = self._taken = 0  # bytes of requests that were sent; that were taken
        self.is_lost = self._closing = self._closed = False
        self._owner = os.getpid()
        self._socket = _context().socket(zmq.DEALER)
        self._monitor: zmq.Socket[bytes] | None = None
        self._nudge = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        try:
            self._connect(door)
        except BaseException:
            self.close()
            raise

    def _connect(self, door: Door) -> None:
        dealer = self._socket
        # Credits bound what is on its way to us, so that nothing else need do so.
        for option, value in (
            (zmq.RECONNECT_IVL, -1),
            (zmq.HEARTBEAT_IVL, BEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, SILENCE_MS),
            (zmq.HANDSHAKE_IVL, HANDSHAKE_MS),
            (zmq.CONNECT_TIMEOUT, HANDSHAKE_MS),
            (zmq.LINGER, _LINGER_MS),
            (zmq.SNDHWM, _WAITING),
            (zmq.RCVHWM, 0),
            (zmq.IPV6, int("[" in door.address)),
        ):
            dealer.setsockopt(option, value)
        door.lock(dealer)
        self._monitor = monitor = dealer.get_monitor_socket(sum(_ENDS))
        for descriptor in (dealer.fileno(), monitor.fileno(), self._nudge):
            self._epoll.register(descriptor, select.EPOLLIN)
        dealer.connect(door.address)

    # --- out ---------------------------------------------------------------------------------

    def post(self, data: bytes) -> None:
        """Sends a small message without ever waiting; any thread, any time, also after the end."""
        if os.getpid() == self._owner:  # in a fork the socket is the parent's
            self._posts.append(data)
            self._see_to_it()

    def send(self, frames: Frames, asked: int = 0) -> bool:
        """Sends a message of any size, after all that was posted; False if there is no room now.

        `asked`: bytes of it that the other end will say to have taken; of them only so many may be
        on their way.
        """
        with self._lock:
            room = self._send_posts() and (self.is_lost or self._untaken + asked <= UNTAKEN)
            if sent := room and self._sent(frames):
                self._asked += asked
            self._look_again()
        self._see_to_it()
        return sent

    @property
    def _untaken(self) -> int:
        return self._asked - self._taken

    def note_taken(self, nbytes: int) -> None:
        """The other end has taken so many bytes of requests, since the beginning."""
        self._taken = nbytes

    @property
    def pending(self) -> bool:
        """Whether something that was posted waits for room."""
        return bool(self._posts) and not self.is_lost

    def flush(self) -> None:
        """Sends what was posted, as far as there is room."""
        self._see_to_it()

    def _see_to_it(self) -> None:
        """Does what is to be done, unless somebody is at it: they look again after leaving."""
        while (self._posts or self._closing) and not self._closed and not self._lock.locked():
            # A bare `with`, which an interrupt cannot part from the release. Another thread may
            # have come first; it does not stay.
            with self._lock:
                full = not self._send_posts()
                self._look_again()
                if self._closing and not self._closed:  # by another thread that came first
                    self._shut()
            if full and not self._closing:
                return

    def _send_posts(self) -> bool:
        while self._posts:
            # Not taken out before it is sent, and nobody else takes anything: we have the lock.
            if not self._sent((self._posts[0],)):
                return False
            self._posts.popleft()
        return True

    def _sent(self, frames: Frames) -> bool:
        if self.is_lost or self._closed:
            return True  # nobody hears it
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def _look_again(self) -> None:
        """Sending takes the sign that something has come; then the reader must be told."""
        if not self._closed and _has_more(self._socket):
            os.eventfd_write(self._nudge, 1)

    # --- in ----------------------------------------------------------------------------------

    def wait(self, seconds: float | None) -> bool:
        """Until there is something to hear, the end included, or room; False if there is not.

        Who waits for weeks is woken in between.
        """
        self._see_to_it()
        return bool(self._epoll.poll(None if seconds is None else min(seconds, _LONGEST_S)))

    def messages(self) -> Iterator[list[zmq.Frame]]:
        """What has come. Whoever stops before the end finds the rest next time."""
        with self._lock:
            with suppress(BlockingIOError):
                os.eventfd_read(self._nudge)
            self._hear_of_the_end()
        while (message := self._next()) is not None:
            self._see_to_it()
            try:
                yield message
            except GeneratorExit:
                os.eventfd_write(self._nudge, 1)
                raise
        self._see_to_it()

    def _next(self) -> list[zmq.Frame] | None:
        with self._lock:
            if self._closed or not _has_more(self._socket):
                return None
            frames = [self._socket.recv(zmq.NOBLOCK, copy=False)]
            while frames[-1].more:  # they come together
                frames.append(self._socket.recv(zmq.NOBLOCK, copy=False))
            return frames

    def _hear_of_the_end(self) -> None:
        while not self._closed and self._monitor is not None and _has_more(self._monitor):
            event, _ = self._monitor.recv_multipart(zmq.NOBLOCK)
            (number,) = struct.unpack_from("=h", event)
            self.is_lost = True
            self.end = self.end or _ENDS.get(zmq.Event(number), f"event {number}")
            self.is_refused = self.is_refused or number in _REFUSALS

    def fileno(self) -> int:
        """Readable when there is something to hear."""
        return self._epoll.fileno()

    # --- the end -----------------------------------------------------------------------------

    def hang_up(self, why: str) -> None:
        """Ends it for whoever waits here, who wakes. Any thread."""
        if os.getpid() == self._owner and not self._closed:
            self.end = self.end or why
            with suppress(OSError):  # closed just now
                os.eventfd_write(self._nudge, 1)

    def close(self, last: bytes | None = None) -> None:
        """Says a last word, and lets go of the socket. Idempotent; any thread, never waits."""
        if os.getpid() != self._owner or self._closing:
            return
        if last is not None:
            self._posts.append(last)
        self._closing = True
        self._see_to_it()

    def _shut(self) -> None:
        self._closed = True
        self.end = self.end or "it was closed"
        if self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
        self._socket.close()
        self._epoll.close()
        os.close(self._nudge)


def _has_more(socket: zmq.Socket[bytes]) -> bool:
    """Whether there is something to receive: to ask costs less than an error."""
    return bool(int(socket.get(zmq.EVENTS)) & _POLLIN)


_contexts: dict[int, _Context] = {}
_CONTEXTS_LOCK: Final = threading.Lock()


def _context() -> _Context:
    """This process's own, with one thread that moves bytes; a fork has another."""
    with _CONTEXTS_LOCK:
        context = _contexts.get(os.getpid())
        if context is None:
            context = _contexts[os.getpid()] = zmq.Context()
            # Each connection has three: its own, and two for watching it. The limit is memory's.
            context.set(zmq.MAX_SOCKETS, context.get(zmq.SOCKET_LIMIT))
            expect_large_messages()
        return context
