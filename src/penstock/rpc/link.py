"""The part of a connection that the I/O thread serves: what comes in, and heartbeats.

Users hold a `RemoteConnection`, and may drop it at any time; the I/O thread holds a `ServerLink`.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final, Protocol

from penstock.errors import HubGone, ProtocolError
from penstock.rpc import io_thread
from penstock.rpc.buffer_pool import BufferPool
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import SILENCE_S, Endpoint
from penstock.rpc.io_thread import IoThread, eventfd
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
from penstock.wire.tcp_stream import Sink, TcpStream, encoded

log = logging.getLogger(__name__)

# The most bytes of a server's message, without its payload: statistics can be long.
MOST_RECEIVED: Final = 64 << 20
_MOMENT_S: Final = 0.01
# Heartbeats per lease.
BEATS: Final = 2.0
# How many batches a reader usually holds at a time.
_WITH_READER: Final = 2
# Answers of at least so many bytes are received into memory that is used again, a few at a time.
_LARGE: Final = 1 << 20
_ANSWERS_KEPT: Final = 2
_SENT_AT_ONCE: Final = 1 << 20
_GOODBYE: Final = Goodbye()


def _next_beat(lease: float) -> float:
    """Return when to send the next heartbeat and check the server, by the monotonic clock.

    All ranks do so at the same moments of the wall clock, as far as clocks agree: a server that is
    woken once for a thousand ranks has far less to do than if each one wakes it.
    """
    every = min(lease, SILENCE_S) / BEATS
    return time.monotonic() + every - time.time() % every


class MessageHandler(Protocol):
    """Handles a server's messages in the thread that receives.

    It must not refer to the connection.
    """

    def hear(self, message: FromServerToRank, payload: Bytes | None) -> None:
        """Handle a message that is complete."""

    def wants(self, request: int) -> bool:
        """Return whether anybody waits for the answer to a request."""

    def sink_for(self, answer: Answer, nbytes: int) -> Sink | None:
        """Return what takes the arrays of an answer as they come; None if nothing does."""

    @property
    def owed(self) -> bool:
        """Whether the server owes an answer or a batch: then silence means that it is gone."""

    def end(self, error: Exception) -> None:
        """Note that nothing more will come, and why."""


class Inbox:
    """Keeps the messages for one reader, who waits for a descriptor."""

    def __init__(self) -> None:
        self._nudge = eventfd()
        self.nudge = self._nudge.fileno()
        self.kept: deque[tuple[FromServerToRank, Any]] = deque()
        self.owed = False
        self.failure: Exception | None = None

    def hear(self, message: FromServerToRank, payload: Bytes | None) -> None:
        """Keep a message that is complete, and wake the reader."""
        if isinstance(message, EpochDone | ChannelBroken | Registered | Welcome | Refused):
            self.owed = False
        self.kept.append((message, payload if payload is not None else []))
        self.wake()

    def wants(self, request: int) -> bool:
        """Return True: whoever reads here waits for every answer."""
        return True

    def sink_for(self, answer: Answer, nbytes: int) -> None:
        """Return None: arrays are kept as they are."""

    def end(self, error: Exception) -> None:
        """Note that nothing more will come, and why. The first reason stands."""
        self.failure = self.failure or error
        self.wake()

    def wake(self) -> None:
        """Make the descriptor readable, which wakes the reader."""
        with suppress(OSError, ValueError):  # the descriptor is closed
            os.eventfd_write(self.nudge, 1)

    def clear(self) -> None:
        """Make the descriptor unreadable again, unless the connection has failed."""
        with suppress(BlockingIOError, OSError):
            os.eventfd_read(self.nudge)
        if self.failure is not None:  # checked last, because it may be set at any moment
            self.wake()

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        self.nudge = -1
        self._nudge.close()


class ServerLink:
    """A connected stream. `send`, `lose` and `close` are for any thread.

    The I/O thread receives what comes. If the link is `driven`, whoever calls `drive` does, one
    thread at a time: so an answer reaches the thread that waits for it sooner.
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
        self.leaving: Deadline | None = None  # set once the server has said that it will end
        self._batches: BufferPool | None = None
        self._answers = BufferPool(_ANSWERS_KEPT)
        self._most_bytes = 0
        self._over = self._closing = self._closed = False
        self._lease = SILENCE_S
        self._heard_at = self._owed_since = time.monotonic()
        self._asked = False  # whether the last heartbeat asked for a reply
        self._taking_in = False
        self._sent = 0  # bytes sent by the time of the last heartbeat
        self._poll = select.poll()
        self._poll.register(self._stream.fileno(), select.POLLIN)
        self._io: IoThread | None = None

    def start(self) -> None:
        """Have the I/O thread serve this link, until `close`."""
        io_thread.look_after(self, self._note_thread)

    def _note_thread(self, thread: IoThread) -> None:
        self._io = thread

    # --- for any thread ----------------------------------------------------------------------

    def send(self, message: FromRankToServer, packed: Packed = NOTHING, lane: int = 0) -> None:
        """Send a message without ever waiting; ValueError if it is too large.

        Arrays are sent without a copy, and must not change until they were sent.
        """
        stream, body = self._stream, encoded(message)
        self._conversation.rank_says(message)
        try:
            stream.send_encoded(body, payload=packed.views, lane=lane)
        finally:
            if stream.pending and self._io is not None:  # also after an interrupt
                self._io.flush(self)

    def keep_alive(self, lease: float) -> None:
        """Send heartbeats from now on, often enough for a lease."""
        self._lease = lease
        assert self._io is not None
        self._io.keep_alive(self, _next_beat(lease))

    def note_asked(self) -> None:
        """Note that the server owes something from now on: silence before that does not count."""
        self._owed_since = time.monotonic()

    def lose(self, error: Exception) -> None:
        """End the connection, and tell whoever waits."""
        self._over = True
        self.listener.end(error)
        if self._is_driven:
            self._stream.hang_up()  # wakes the thread that waits for the socket

    def close(self) -> None:
        """Say goodbye and close the socket. Idempotent; never waits.

        After an interrupt in here, call it again: else the I/O thread keeps the link for ever.
        """
        if self._closed:
            return
        self._closing = True
        self.take_leave()
        self._is_driven = False
        self.lose(ConnectionResetError("it was closed"))
        if self._io is None:
            self.shut()
        else:
            self._io.remove(self)
        self._closed = True

    def take_leave(self) -> None:
        """Send `Goodbye` and stop receiving, which wakes a thread that waits for the socket."""
        stream = self._stream
        if not (stream.broken or stream.ended):
            with suppress(ProtocolError):  # before Welcome, or after an earlier Goodbye
                self._conversation.rank_says(_GOODBYE)
                stream.drop_queued()
                stream.send(_GOODBYE, lane=CONTROL_LANE)
            # A thread that is in the middle of sending, such as a heartbeat, sends it afterwards:
            # then the socket is only closed, when nothing more is sent.
            if not stream.is_sending:
                stream.finish()
        stream.stop_receiving()

    # --- for the thread that receives --------------------------------------------------------

    def drive(self, timeout: float | None) -> bool:
        """Wait for something to come, and process it; return False if nothing came in time.

        A signal handler may call this while its thread waits here, but not while it receives: then
        the stream's state is unknown, and the connection is over.
        """
        if not self._taking_in:
            milliseconds = None if timeout is None else min(timeout * 1000, LONGEST_POLL)
            try:
                if not self._poll.poll(milliseconds):
                    return False
            except RuntimeError:  # the poll object is in use: we are in a signal handler
                if not poll(self._stream, select.POLLIN, timeout):
                    return False
        self.take_in()
        return True

    def take_in(self) -> None:
        """Process what has come, as `drive`, without waiting."""
        if self._taking_in:
            self.lose(ConnectionResetError("somebody called in the middle of receiving"))
            return
        self._taking_in = True
        try:
            self._take_in(time.monotonic())
        except BaseException:  # what was being read may have been anybody's answer
            self.lose(ConnectionResetError("it was interrupted while it was read"))
            raise
        finally:
            self._taking_in = False

    # --- for the I/O thread ------------------------------------------------------------------

    @property
    def descriptor(self) -> int:
        """The socket's descriptor."""
        return self._stream.fileno()

    @property
    def pending(self) -> bool:
        """Whether something waits for room in the socket."""
        return self._stream.pending

    @property
    def is_driven(self) -> bool:
        """Whether callers of `drive` receive what comes."""
        return self._is_driven

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._over

    @property
    def bytes_in(self) -> int:
        """How many bytes have come."""
        return self._stream.bytes_in

    @property
    def bytes_out(self) -> int:
        """How many bytes were sent."""
        return self._stream.bytes_out

    @property
    def is_heard(self) -> bool:
        """Whether the I/O thread must receive what comes."""
        return not (self._is_driven or self._over)

    def attend(self, *, readable: bool, now: float) -> None:
        """Send what waits; receive, if there is something."""
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
        except Exception as error:  # such as no memory: the reader may connect again
            log.exception("handling data from %s failed", self._address)
            self.lose(ConnectionResetError(f"handling received data failed: {error!r}"))
        if stream.ended or stream.broken:
            self.lose(ConnectionResetError(stream.reason or "the connection was lost"))

    def beat(self, now: float) -> float:
        """Send a heartbeat; if the server owes us something, ask for a reply.

        If the server owes something, was asked, and has been silent for too long, the connection is
        lost.
        """
        owed, stream = self.listener.owed, self._stream
        if stream.pending and stream.bytes_out != self._sent:
            self._heard_at = now  # the server reads what we send, if slowly
        self._sent = stream.bytes_out
        silent = now - max(self._heard_at, self._owed_since)
        if owed and self._asked and silent > SILENCE_S and not self._has_come():
            self.lose(ConnectionResetError(f"the server has said nothing for {silent:.1f} s"))
            self._stream.hang_up()  # if the server lives after all, it releases what is ours
        elif not (self._over or self._closing):
            if not owed:
                self._owed_since = now
            self._asked = owed
            stream.send(Heartbeat(reply=owed), lane=CONTROL_LANE)
        again = _next_beat(self._lease)
        if owed and not self._over:  # a server that is silent until then is given up
            silent_at = max(self._heard_at, self._owed_since) + SILENCE_S
            return min(again, silent_at + _MOMENT_S) if silent_at > now else again
        return again

    def _has_come(self) -> bool:
        """Return whether the socket has something that nobody has read yet."""
        return poll(self._stream, select.POLLIN, 0.0) != 0

    def shut(self) -> None:
        """Close the socket."""
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
                # As many as can be on their way at once, and those that the reader holds.
                self._batches, self._most_bytes = BufferPool(slots + _WITH_READER), most_bytes
            case BatchReady() if payload is None:
                payload = self._memory_for(message, 0)
        self.listener.hear(message, payload)

    def _reserve(self, message: Any, nbytes: int) -> Bytes | Sink | None:
        """Return where the payload of a message goes. Nothing that the server says is trusted."""
        match message:
            case BatchReady():
                return self._memory_for(message, nbytes)
            case Answer(request=request):
                if not self.listener.wants(request):
                    return None
                if (sink := self.listener.sink_for(message, nbytes)) is not None:
                    return sink
                # Large answers come one after the other: fresh memory would cost page faults.
                memory = self._answers if nbytes >= _LARGE else None
                return reserved(message.arrays, nbytes, memory)
        raise ProtocolError(f"{type(message).__name__} came with a payload, which it cannot have")

    def _memory_for(self, ready: BatchReady, nbytes: int) -> Bytes:
        if self._batches is None:
            raise ProtocolError("a batch came on a connection without a channel")
        if ready.nbytes != nbytes or nbytes > self._most_bytes:
            raise ProtocolError(
                f"{ready.batch} has {ready.nbytes} bytes, of {self._most_bytes}; {nbytes} came"
            )
        return self._batches.lend(nbytes)
