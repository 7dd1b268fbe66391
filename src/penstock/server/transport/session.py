"""A session: one rank's connection after Hello, and what hangs on it.

The session is the lease: when it ends, however it ends, its channel goes, and what it has brought.
What a rank leaves unread is bounded: batches by its credits, answers by their bytes, and other
messages by theirs.
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

# Of a lease: how long what was sent may stay unacknowledged. It begins with the next thing that is
# sent, which is half a lease later at the most, and is to end with the lease.
UNACKNOWLEDGED: Final = 0.6
# Bytes of messages, other than batches, that may wait to be read, and what each takes beside its
# own: the objects around it.
MOST_UNREAD: Final = 4 << 20
BESIDE_A_MESSAGE: Final = 512
_OF_CALLS: Final = (Answer, Refused)


def _nothing(events: int) -> None:
    """Nobody waits yet."""


def lane_of(request: int) -> int:
    """The lane of a call: answers of different calls do not wait for each other."""
    return 1 + request % CALL_LANES


class CallBytes(NamedTuple):
    """What the arguments of a call count for: by its session's limit, and by that of all."""

    of_session: int
    of_all: int


class Session:
    """One rank's; `number` is never used again."""

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
        self.rpc_session: RpcSession | None = None  # who answers its calls, since it made one
        self.calls: dict[int, CallBytes] = {}  # not answered yet
        self.granted: set[int] = set()  # requests that were granted, and have not come completely
        self.asked: set[int] = set()  # calls that make something, while they do
        # What the poller calls: for the rank's socket, and for the hub's.
        self.on_socket: Callable[[int], None] = _nothing
        self.on_relay: Callable[[int], None] | None = None
        self.input_bytes = 0  # of its channel
        self.registering = 0  # the number of its registration, while that lasts
        self.unread = Budget("bytes", max_answer_bytes, "max_answer_bytes")  # of answers
        self.partial = 0  # bytes of a message that has come in part, as they were counted
        # Why it is over; None while it is well.
        self.ending: str | None = None
        self.lost = False  # it is over because the rank has gone, or might as well have
        self.pauses = False  # whether it lives, and reads nothing
        self.in_writers = False  # whether a thread is encrypting for it
        self._touched = touched  # those that the loop is to look at: ended, or waiting for room
        self._since = self.heard_at = time.monotonic()
        self._payload_in = 0
        self._payload_at = self._since
        self.batches = self.calls_heard = 0
        self._kept = Budget("bytes of messages", MOST_UNREAD, "")

    # --- hearing -----------------------------------------------------------------------------

    def begin_call(self, request: int, nbytes: CallBytes) -> None:
        """A call is to be answered, with so many bytes of arguments."""
        self.calls[request] = nbytes
        self.calls_heard += 1

    def check_new(self, request: int) -> None:
        """ProtocolError for a number that cannot be told from others."""
        if request < 1 or request in self.calls or request == self.registering:
            raise ProtocolError(f"request {request} cannot be used: it is 0, or not answered yet")

    def stalled_for(self, now: float) -> float:
        """For how many seconds a payload has been on its way here, and nothing of it has come."""
        came = self.stream.payload_in
        if came != self._payload_in or not self.stream.is_open:
            self._payload_in, self._payload_at = came, now
        return now - self._payload_at

    # --- saying ------------------------------------------------------------------------------

    def say(
        self, message: FromServerToRank, packed: Packed = NOTHING, then: Then | None = None
    ) -> None:
        """Says something, without waiting. To one that is gone it is said in vain.

        `then` is called, in any thread, once nothing of it is kept.
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
        """Says what is in bytes already."""
        self.conversation.hub_says(message)
        self.stream.send_encoded(encoded)
        self._touched.add(self)

    def say_last(self, refused: Refused) -> None:
        """Says why it is over, before all that waits to be read: nobody will read that."""
        if self.ending is None and not self.stream.broken:
            with suppress(ProtocolError):  # it has taken leave, and hears nothing more
                self.conversation.hub_says(refused)
                self.stream.drop_queued()
                self.stream.send(refused, lane=CONTROL_LANE)

    # --- the end -----------------------------------------------------------------------------

    def end(self, reason: str) -> None:
        """Marks it as one to be closed; the first reason stands."""
        if self.ending is None:
            self.ending = reason
            self._touched.add(self)

    def statistics(self, now: float) -> SessionStatistics:
        """A snapshot."""
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
