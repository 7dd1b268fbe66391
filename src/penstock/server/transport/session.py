"""A session: one rank's connection after `Hello`, and everything that belongs to it.

The session is the lease: when it ends, for whatever reason, its channel and its inputs are
released. What a rank may leave unread is bounded: batches by its credits, answers and other
messages by their bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from penstock.errors import ProtocolError
from penstock.server.dist.rpc import RpcSession
from penstock.server.limits import Budget
from penstock.server.ops.statistics import SessionStatistics
from penstock.server.transport.access import Peer
from penstock.server.transport.relay import Relay
from penstock.wire.conversation import Conversation, Medium
from penstock.wire.framing import CALL_LANES, CONTROL_LANE, encode
from penstock.wire.messages import Answer, BatchReady, FromServerToRank, Hello, Refused
from penstock.wire.payload import NOTHING, Packed
from penstock.wire.tcp_stream import TcpStream, Then

# Share of a lease for which sent data may stay unacknowledged. This time begins with the next send,
# at most half a lease later, and has to end with the lease.
UNACKNOWLEDGED: Final = 0.6
# Bytes of messages, other than batches, that may wait to be read, and the overhead of each: the
# objects around it.
MOST_UNREAD: Final = 4 << 20
BESIDE_A_MESSAGE: Final = 512
_OF_CALLS: Final = (Answer, Refused)


def _nothing(events: int) -> None:
    """Do nothing; the default before a handler is set."""


def lane_of(request: int) -> int:
    """Return the lane of a call: answers of different calls do not wait for each other."""
    return 1 + request % CALL_LANES


class CallBytes(NamedTuple):
    """The bytes that a call's arguments count towards its session's limit and the limit of all."""

    of_session: int
    of_all: int


class Session:
    """One rank's session. Its `number` is never used again."""

    def __init__(
        self,
        number: int,
        hello: Hello,
        peer: Peer,
        stream: TcpStream[Any],
        touched: set[Session],
        *,
        encrypted: bool = False,
        max_answer_bytes: int,
    ) -> None:
        self.number = number
        self.hello = hello
        self.peer = peer
        self.stream = stream
        self.encrypted = encrypted
        self.conversation = Conversation(Medium.TCP)
        self.relay: Relay | None = None
        self.rpc_session: RpcSession | None = None  # answers its calls; made with the first one
        self.calls: dict[int, CallBytes] = {}  # not answered yet
        self.granted: set[int] = set()  # requests that were granted but have not arrived completely
        self.asked: set[int] = set()  # calls that are making something now
        self.has_made = False  # it has asked for something that it holds here
        # The poller's handlers for the rank's socket and for the hub's.
        self.on_socket: Callable[[int], None] = _nothing
        self.on_relay: Callable[[int], None] | None = None
        self.input_bytes = 0  # of its channel
        self.registering = 0  # the request number of its registration, while that is in progress
        self.unread = Budget("bytes", max_answer_bytes, "max_answer_bytes")  # of answers
        self.partial = 0  # bytes of a partly received message that were counted
        # Why the session has ended; None while it has not.
        self.ending: str | None = None
        self.lost = False  # it ended because the rank has gone, or must be taken to have
        self.pauses = False  # whether the rank is alive but does not read
        self.in_writers = False  # whether a thread is encrypting for it
        self._touched = touched  # sessions the loop must look at: ended, or waiting for room
        self._since = self.heard_at = time.monotonic()
        self._payload_in = 0
        self._payload_at = self._since
        self.batches = self.calls_heard = 0
        self._kept = Budget("bytes of messages", MOST_UNREAD, "")

    # --- receiving ---------------------------------------------------------------------------

    def begin_call(self, request: int, nbytes: CallBytes) -> None:
        """Record a call that is to be answered, and the bytes of its arguments."""
        self.calls[request] = nbytes
        self.calls_heard += 1

    def check_new(self, request: int) -> None:
        """Raise `ProtocolError` for a request number that is 0 or in use."""
        if request < 1 or request in self.calls or request == self.registering:
            raise ProtocolError(f"request {request} cannot be used: it is 0, or not answered yet")

    @property
    def needs_nothing(self) -> bool:
        """Whether it holds nothing here, and waits for nothing."""
        holds = self.has_made or self.relay is not None or self.registering or self.granted
        stream = self.stream
        waits = self.calls or stream.is_open or stream.held or stream.has_more or stream.pending
        return not (holds or waits)

    def stalled_for(self, now: float) -> float:
        """Return for how many seconds an incoming payload has made no progress."""
        came = self.stream.payload_in
        if came != self._payload_in or not self.stream.is_open:
            self._payload_in, self._payload_at = came, now
        return now - self._payload_at

    # --- sending -----------------------------------------------------------------------------

    def say(
        self, message: FromServerToRank, packed: Packed = NOTHING, then: Then | None = None
    ) -> None:
        """Send a message without waiting. Does nothing if the session has ended.

        `then` is called, in any thread, once no part of the message is kept any more.
        """
        if self.ending is not None:
            if then is not None:
                then()
            return
        self.conversation.hub_says(message)
        if type(message) is BatchReady:
            self.batches += 1
            self.stream.send_encoded(encode(message), payload=packed.views, then=then)
        else:
            lane = lane_of(message.request) if isinstance(message, _OF_CALLS) else 0
            self._send(message, packed, lane, then)
        if self.stream.pending or self.stream.broken:
            self._touched.add(self)

    def _send(
        self, message: FromServerToRank, packed: Packed, lane: int, then: Then | None
    ) -> None:
        body = encode(message)
        if not packed.views and self.stream.try_send(body, lane):
            if then is not None:
                then()
            return
        kept, nbytes = self._kept, len(body) + BESIDE_A_MESSAGE
        if kept.taken > MOST_UNREAD:
            self.lost = True
            self.end(f"it has left {kept.taken} bytes of messages unread")
            if then is not None:
                then()
            return
        kept.add(nbytes)
        if packed.nbytes:
            self.unread.add(packed.nbytes)

        def gone() -> None:
            kept.give(nbytes)
            if packed.nbytes:
                self.unread.give(packed.nbytes)
            if then is not None:
                then()

        self.stream.send_encoded(body, payload=packed.views, lane=lane, then=gone)

    def say_encoded(self, message: FromServerToRank, encoded: bytes) -> None:
        """Send a message that is encoded already."""
        self.conversation.hub_says(message)
        self.stream.send_encoded(encoded)
        self._touched.add(self)

    def say_last(self, refused: Refused) -> None:
        """Send why the session ends, and drop all that is queued, since it will not be read."""
        if self.ending is None and not self.stream.broken:
            with suppress(ProtocolError):  # the rank has said Goodbye and may be sent nothing
                self.conversation.hub_says(refused)
                self.stream.drop_queued()
                self.stream.send(refused, lane=CONTROL_LANE)

    # --- the end -----------------------------------------------------------------------------

    def end(self, reason: str) -> None:
        """Mark the session to be closed; the first reason is kept."""
        if self.ending is None:
            self.ending = reason
            self._touched.add(self)

    def statistics(self, now: float) -> SessionStatistics:
        """Return a snapshot."""
        relay = self.relay
        return SessionStatistics(
            number=self.number,
            name=self.hello.name,
            pid=self.hello.pid,
            host=self.hello.host,
            peer=self.peer.host,
            state=self.conversation.state.value,
            seconds=now - self._since,
            channel=0 if relay is None else relay.channel,
            job="" if relay is None else relay.job,
            slots=0 if relay is None else relay.slots,
            credits=0 if relay is None else relay.credits,
            batches=self.batches,
            calls=self.calls_heard,
            calls_in_flight=len(self.calls),
            bytes_in=self.stream.bytes_in,
            bytes_out=self.stream.bytes_out,
            unsent=self.stream.queued,
        )

    def __repr__(self) -> str:
        name = f" {self.hello.name!r}" if self.hello.name else ""
        return f"session {self.number}{name} (pid {self.hello.pid} at {self.peer.host})"
