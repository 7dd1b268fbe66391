"""The end of a connection that the I/O thread looks after: what comes in, and signs of life.

A `RemoteConnection` is what users hold, and let go of; this is what the thread holds meanwhile.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final, Protocol

from penstock.client.deadline import Deadline
from penstock.client.remote import io_thread
from penstock.client.remote.buffer_pool import BufferPool
from penstock.client.remote.endpoint import SILENCE_S, Endpoint
from penstock.errors import HubGone, ProtocolError
from penstock.wire.conversation import Conversation, Medium
from penstock.wire.frames import Bytes
from penstock.wire.framing import LONGEST_POLL
from penstock.wire.messages import (
    Answer,
    BatchReady,
    ChannelBroken,
    EpochDone,
    FromRankToServer,
    FromServerToRank,
    Goodbye,
    Heartbeat,
    Leaving,
    Refused,
    Registered,
    Welcome,
)
from penstock.wire.payload import NOTHING, Packed, reserved
from penstock.wire.tcp_stream import TcpStream

log = logging.getLogger(__name__)

# Bytes of a message, without its payload, that a server may send: its statistics can be long.
MOST_RECEIVED: Final = 64 << 20
# Signs of life in a lease.
BEATS: Final = 2.0
# Batches that a reader has at a time, mostly.
_WITH_READER: Final = 2
_SENT_AT_ONCE: Final = 1 << 20
_GOODBYE: Final = Goodbye()


def _next_beat(lease: float) -> float:
    """When to say next that we live, by the monotonic clock.

    All ranks do so at the same moments, by the clock on the wall, as far as clocks agree: a server
    that is woken once for a thousand of them has far less to do than if each one wakes it.
    """
    every = lease / BEATS
    return time.monotonic() + every - time.time() % every


class Listener(Protocol):
    """Hears what a server says, in the I/O thread. It must not hold on to the connection."""

    def hear(self, message: FromServerToRank, payload: Bytes | None) -> None:
        """A message that is complete."""

    def wants(self, request: int) -> bool:
        """Whether anybody waits for the answer to a request."""

    @property
    def owed(self) -> bool:
        """Whether the server owes an answer, or a batch: then its silence means that it is gone."""

    def end(self, error: Exception) -> None:
        """Nothing more will come, and why."""


class Inbox:
    """Keeps what has come for one reader, who waits for a descriptor."""

    def __init__(self) -> None:
        self.nudge = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.kept: deque[tuple[FromServerToRank, Any]] = deque()
        self.owed = False
        self.failure: Exception | None = None

    def hear(self, message: FromServerToRank, payload: Bytes | None) -> None:
        """A message that is complete."""
        if isinstance(message, EpochDone | ChannelBroken | Registered | Welcome | Refused):
            self.owed = False
        self.kept.append((message, payload if payload is not None else []))
        self.wake()

    def wants(self, request: int) -> bool:
        """Whether anybody waits for the answer to a request: whoever reads here."""
        return True

    def end(self, error: Exception) -> None:
        """Nothing more will come, and why. The first reason stands."""
        self.failure = self.failure or error
        self.wake()

    def wake(self) -> None:
        """Wakes the reader."""
        with suppress(OSError):  # closed
            os.eventfd_write(self.nudge, 1)

    def clear(self) -> None:
        """Nothing is news any more; but for the end, which stays so until somebody hears of it."""
        if self.failure is None:
            with suppress(BlockingIOError, OSError):
                os.eventfd_read(self.nudge)

    def close(self) -> None:
        """Lets go of the descriptor. Idempotent."""
        nudge, self.nudge = self.nudge, -1
        if nudge >= 0:
            os.close(nudge)


class Link:
    """A connected stream. `send`, `lose` and `close` are for any thread.

    What comes is received by the I/O thread; or, if `driven`, by whoever calls `drive`, one thread
    at a time: an answer is heard sooner by the thread that waits for it.
    """

    def __init__(self, endpoint: Endpoint, deadline: Deadline, *, driven: bool = False) -> None:
        self.is_driven = driven
        self._address = endpoint.address
        self._stream: TcpStream[FromServerToRank] = TcpStream(
            endpoint.connect(deadline),
            FromServerToRank,
            limit=MOST_RECEIVED,
            reserve=self._reserve,
        )
        self._conversation = Conversation(Medium.TCP)
        self.inbox = Inbox()
        self.listener: Listener = self.inbox
        self.leaving: Deadline | None = None  # the server has said that it ends
        self._batches: BufferPool | None = None
        self._most_bytes = 0
        self._over = self._closed = False
        self._lease = SILENCE_S
        self._heard_at = self._owed_since = time.monotonic()
        self._poll = select.poll()
        self._poll.register(self._stream.fileno(), select.POLLIN)
        self._io = io_thread.acquire()
        self._io.add(self)

    # --- for any thread ----------------------------------------------------------------------

    def send(self, message: FromRankToServer, packed: Packed = NOTHING, lane: int = 0) -> None:
        """Sends a message without ever waiting. ValueError for one that is too large.

        Arrays are sent from where they lie, and must stay as they are until they have gone.
        """
        self._conversation.rank_says(message)
        stream = self._stream
        stream.send(message, payload=packed.views, lane=lane)
        if stream.pending:
            self._io.flush(self)

    def keep_alive(self, lease: float) -> None:
        """From now on says that we live, often enough for a lease."""
        self._lease = lease
        self._io.keep_alive(self, _next_beat(lease))

    def note_asked(self) -> None:
        """The server owes something from now on: its silence before does not count."""
        self._owed_since = time.monotonic()

    def lose(self, error: Exception) -> None:
        """It is over; whoever waits is told."""
        self._over = True
        self.listener.end(error)
        if self.is_driven:
            self._stream.hang_up()  # whoever waits for the socket wakes

    def close(self) -> None:
        """Takes leave, and lets go of the socket. Idempotent; never waits."""
        if self._closed:
            return
        self._closed = True
        if not (self._stream.broken or self._stream.ended):
            with suppress(ProtocolError):  # nobody has been greeted yet
                self._conversation.rank_says(_GOODBYE)
                self._stream.drop_queued()
                self._stream.send(_GOODBYE)
            self._stream.finish()
        self.is_driven = False
        self.lose(ConnectionResetError("it was closed"))
        self._io.remove(self)

    # --- for whoever receives ----------------------------------------------------------------

    def drive(self, timeout: float | None) -> bool:
        """Waits for something to come, and takes it in; False if nothing has in so long."""
        milliseconds = None if timeout is None else min(timeout * 1000, LONGEST_POLL)
        if not self._poll.poll(milliseconds):
            return False
        self._take_in(time.monotonic())
        return True

    # --- for the I/O thread ------------------------------------------------------------------

    @property
    def descriptor(self) -> int:
        """That of the socket."""
        return self._stream.fileno()

    @property
    def pending(self) -> bool:
        """Whether something waits for room in the socket."""
        return self._stream.pending

    def attend(self, *, readable: bool, now: float) -> None:
        """Sends what waits; receives, if there is something."""
        if self._stream.pending:
            self._stream.flush_some(_SENT_AT_ONCE)
        if readable and not self.is_driven:
            self._take_in(now)
        elif self._stream.broken:
            self.lose(ConnectionResetError(self._stream.reason or "the connection was lost"))

    def _take_in(self, now: float) -> None:
        self._heard_at = now
        try:
            self._receive()
        except ProtocolError as error:
            self.lose(error)
        except Exception as error:  # no memory, say: whoever reads may try again
            log.exception("what came from %s could not be taken in", self._address)
            self.lose(ConnectionResetError(f"what came could not be taken in: {error!r}"))
        if self._stream.ended or self._stream.broken:
            self.lose(ConnectionResetError(self._stream.reason or "the connection was lost"))

    def _receive(self) -> None:
        stream = self._stream
        while True:
            for message, payload in stream.receive():
                self._hear(message, payload)
            if not stream.has_more:
                return

    def beat(self, now: float) -> float:
        """Says that we live, and asks whether the server does if it owes us something."""
        owed = self.listener.owed
        silent = now - max(self._heard_at, self._owed_since)
        if owed and silent > SILENCE_S:
            self.lose(ConnectionResetError(f"the server has said nothing for {silent:.1f} s"))
        elif not self._over:
            if not owed:
                self._owed_since = now
            self._stream.send(Heartbeat(reply=owed))
        return _next_beat(self._lease)

    def shut(self) -> None:
        """Closes the socket."""
        self._stream.close()
        self.inbox.close()

    def _hear(self, message: FromServerToRank, payload: Bytes | None) -> None:
        self._conversation.hub_says(message)
        match message:
            case Heartbeat():
                return
            case Leaving(reason=reason, grace=grace):
                log.info("the server at %s is leaving: %s", self._address, reason)
                self.leaving = Deadline(max(0.0, grace))
                self.inbox.wake()
                return
            case Refused(request=0, report=report) if report.kind == HubGone.__name__:
                self.lose(ConnectionResetError(report.message))
                return
            case Registered(slots=slots, most_bytes=most_bytes):
                # As many as can be here at once, and some that the reader has.
                self._batches, self._most_bytes = BufferPool(slots + _WITH_READER), most_bytes
            case BatchReady() if payload is None:
                payload = self._memory_for(message, 0)
        self.listener.hear(message, payload)

    def _reserve(self, message: Any, nbytes: int) -> Bytes | None:
        """Where the payload of a message goes. Nothing that the server says is trusted."""
        match message:
            case BatchReady():
                return self._memory_for(message, nbytes)
            case Answer(request=request):
                return reserved(message.arrays, nbytes) if self.listener.wants(request) else None
        raise ProtocolError(f"{type(message).__name__} came with a payload, which it cannot have")

    def _memory_for(self, ready: BatchReady, nbytes: int) -> Bytes:
        if self._batches is None:
            raise ProtocolError("a batch came on a connection without a channel")
        if ready.nbytes != nbytes or nbytes > self._most_bytes:
            raise ProtocolError(
                f"{ready.batch} has {ready.nbytes} bytes, of {self._most_bytes}; {nbytes} came"
            )
        return self._batches.lend(nbytes)
