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

from penstock.client.buffer_pool import BufferPool
from penstock.client.deadline import Deadline
from penstock.client.remote import io_thread
from penstock.client.remote.endpoint import SILENCE_S, Endpoint
from penstock.client.remote.io_thread import IoThread, eventfd
from penstock.errors import HubGone, ProtocolError
from penstock.wire.conversation import Conversation, Medium
from penstock.wire.frames import Bytes
from penstock.wire.framing import CONTROL_LANE, LONGEST_POLL, poll
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
from penstock.wire.tcp_stream import TcpStream, encoded

log = logging.getLogger(__name__)

# Bytes of a message, without its payload, that a server may send: its statistics can be long.
MOST_RECEIVED: Final = 64 << 20
_MOMENT_S: Final = 0.01
# Signs of life in a lease.
BEATS: Final = 2.0
# Batches that a reader has at a time, mostly.
_WITH_READER: Final = 2
_SENT_AT_ONCE: Final = 1 << 20
_GOODBYE: Final = Goodbye()


def _next_beat(lease: float) -> float:
    """When to say next that we live, and to look whether the server does, by the monotonic clock.

    All ranks do so at the same moments, by the clock on the wall, as far as clocks agree: a server
    that is woken once for a thousand of them has far less to do than if each one wakes it.
    """
    every = min(lease, SILENCE_S) / BEATS
    return time.monotonic() + every - time.time() % every


class MessageHandler(Protocol):
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
        self._nudge = eventfd()
        self.nudge = self._nudge.fileno()
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
        with suppress(BlockingIOError, OSError):
            os.eventfd_read(self.nudge)
        if self.failure is not None:  # looked at afterwards: it may come at any moment
            self.wake()

    def close(self) -> None:
        """Lets go of the descriptor. Idempotent."""
        self.nudge = -1
        self._nudge.close()


class ServerLink:
    """A connected stream. `send`, `lose` and `close` are for any thread.

    What comes is received by the I/O thread; or, if `driven`, by whoever calls `drive`, one thread
    at a time: an answer is heard sooner by the thread that waits for it.
    """

    def __init__(self, endpoint: Endpoint, deadline: Deadline, *, driven: bool = False) -> None:
        self._is_driven = driven
        self._address = endpoint.address
        self._stream: TcpStream[FromServerToRank] = TcpStream(
            endpoint.connect(deadline),
            FromServerToRank,
            limit=MOST_RECEIVED,
            reserve=self._reserve,
        )
        self._conversation = Conversation(Medium.TCP)
        self.inbox = Inbox()
        self.listener: MessageHandler = self.inbox
        self.leaving: Deadline | None = None  # the server has said that it ends
        self._batches: BufferPool | None = None
        self._most_bytes = 0
        self._over = self._closed = False
        self._lease = SILENCE_S
        self._heard_at = self._owed_since = time.monotonic()
        self._asked = False  # whether the server was asked to say something, and why not
        self._taking_in = False
        self._sent = 0  # bytes, when that was last looked at
        self._poll = select.poll()
        self._poll.register(self._stream.fileno(), select.POLLIN)
        self._io: IoThread | None = None

    def start(self) -> None:
        """Has the I/O thread look after it, until `close`."""
        io_thread.look_after(self, self._note_thread)

    def _note_thread(self, thread: IoThread) -> None:
        self._io = thread

    # --- for any thread ----------------------------------------------------------------------

    def send(self, message: FromRankToServer, packed: Packed = NOTHING, lane: int = 0) -> None:
        """Sends a message without ever waiting. ValueError for one that is too large.

        Arrays are sent from where they lie, and must stay as they are until they have gone.
        """
        stream, body = self._stream, encoded(message)
        self._conversation.rank_says(message)
        try:
            stream.send_encoded(body, payload=packed.views, lane=lane)
        finally:
            if stream.pending and self._io is not None:  # also if it was interrupted in the middle
                self._io.flush(self)

    def keep_alive(self, lease: float) -> None:
        """From now on says that we live, often enough for a lease."""
        self._lease = lease
        assert self._io is not None
        self._io.keep_alive(self, _next_beat(lease))

    def note_asked(self) -> None:
        """The server owes something from now on: its silence before does not count."""
        self._owed_since = time.monotonic()

    def lose(self, error: Exception) -> None:
        """It is over; whoever waits is told."""
        self._over = True
        self.listener.end(error)
        if self._is_driven:
            self._stream.hang_up()  # whoever waits for the socket wakes

    def close(self) -> None:
        """Takes leave, and lets go of the socket. Idempotent; never waits."""
        if self._closed:
            return
        self._closed = True
        self.take_leave()
        self._is_driven = False
        self.lose(ConnectionResetError("it was closed"))
        if self._io is None:
            self.shut()
        else:
            self._io.remove(self)

    def take_leave(self) -> None:
        """Says that nothing more will be said; whoever waits for the socket wakes."""
        stream = self._stream
        if not (stream.broken or stream.ended):
            with suppress(ProtocolError):  # nobody has been greeted yet, or leave was taken
                self._conversation.rank_says(_GOODBYE)
                stream.drop_queued()
                stream.send(_GOODBYE, lane=CONTROL_LANE)
            stream.finish()
        stream.stop_receiving()

    # --- for whoever receives ----------------------------------------------------------------

    def drive(self, timeout: float | None) -> bool:
        """Waits for something to come, and takes it in; False if nothing has in so long.

        A signal's handler may call while its thread waits here, but not while it receives: then
        nobody knows what is where, and the connection is over.
        """
        if self._taking_in:
            self.lose(ConnectionResetError("somebody called in the middle of receiving"))
            return True
        milliseconds = None if timeout is None else min(timeout * 1000, LONGEST_POLL)
        try:
            if not self._poll.poll(milliseconds):
                return False
        except RuntimeError:  # a signal's handler calls while its thread waits here
            if not poll(self._stream, select.POLLIN, timeout):
                return False
        self._taking_in = True
        try:
            self._take_in(time.monotonic())
        except BaseException:  # what was being read may have been an answer to anybody
            self.lose(ConnectionResetError("it was interrupted while it was read"))
            raise
        finally:
            self._taking_in = False
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

    @property
    def is_driven(self) -> bool:
        """Whether somebody else receives what comes."""
        return self._is_driven

    @property
    def is_heard(self) -> bool:
        """Whether the I/O thread is to receive what comes."""
        return not (self._is_driven or self._over)

    def attend(self, *, readable: bool, now: float) -> None:
        """Sends what waits; receives, if there is something."""
        if self._stream.pending:
            self._stream.flush_some(_SENT_AT_ONCE)
        if readable and self.is_heard:
            self._take_in(now)
        elif self._stream.broken:
            self.lose(ConnectionResetError(self._stream.reason or "the connection was lost"))

    def _take_in(self, now: float) -> None:
        self._heard_at = now
        stream = self._stream
        try:
            while True:
                for message, payload in stream.receive():
                    self._hear(message, payload)
                if not stream.has_more:
                    break
        except ProtocolError as error:
            self.lose(error)
        except Exception as error:  # no memory, say: whoever reads may try again
            log.exception("what came from %s could not be taken in", self._address)
            self.lose(ConnectionResetError(f"what came could not be taken in: {error!r}"))
        if stream.ended or stream.broken:
            self.lose(ConnectionResetError(stream.reason or "the connection was lost"))

    def beat(self, now: float) -> float:
        """Says that we live, and asks whether the server does if it owes us something."""
        owed, stream = self.listener.owed, self._stream
        if stream.pending and stream.bytes_out != self._sent:
            self._heard_at = now  # it takes what we send, if slowly
        self._sent = stream.bytes_out
        silent = now - max(self._heard_at, self._owed_since)
        if owed and self._asked and silent > SILENCE_S and not self._has_come():
            self.lose(ConnectionResetError(f"the server has said nothing for {silent:.1f} s"))
            self._stream.hang_up()  # if it lives after all, it lets go of what is ours
        elif not (self._over or self._closed):
            if not owed:
                self._owed_since = now
            self._asked = owed
            stream.send(Heartbeat(reply=owed), lane=CONTROL_LANE)
        again = _next_beat(self._lease)
        if owed and not self._over:  # silent until then, it is given up
            silent_at = max(self._heard_at, self._owed_since) + SILENCE_S
            return min(again, silent_at + _MOMENT_S) if silent_at > now else again
        return again

    def _has_come(self) -> bool:
        """Whether there is something that nobody has taken in yet."""
        return poll(self._stream, select.POLLIN, 0.0) != 0

    def shut(self) -> None:
        """Closes the socket."""
        self._stream.close()
        self.inbox.close()

    def _hear(self, message: FromServerToRank, payload: Bytes | None) -> None:
        self._conversation.hub_says(message)
        match message:
            case Answer():
                pass
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
