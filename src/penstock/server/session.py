"""A session: one rank's connection, how far the conversation has come, and what hangs on it.

The session is the lease: when it ends, however it ends, its channel goes, and what it has brought.
What a rank leaves unread is bounded: batches are by its credits, answers by the number of its
calls, and of other words it may leave so many. What has gone out counts no more, also where there
is always something left to send, because the network is what all wait for.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from penstock.errors import ProtocolError
from penstock.server.admission import Peer
from penstock.server.callers import Caller
from penstock.server.questions import Visit
from penstock.server.relay import Relay
from penstock.server.router import Router, Sent
from penstock.server.statistics import SessionStatistics
from penstock.wire.bulk import Assembly
from penstock.wire.conversation import Conversation
from penstock.wire.messages import BatchReady
from penstock.wire.remote import (
    UNTAKEN,
    Call,
    Enroll,
    FromServerToRank,
    Knock,
    Part,
    Piece,
    Taken,
)

# Words, other than batches and arrays, that may wait to be read.
TOO_MANY: Final = 1024
_UNCOUNTED: Final = (BatchReady, Piece, Part)
# A header, what follows it, and whether it is one of those words.
_Unsent: TypeAlias = tuple[bytes, memoryview | None, bool]
_SKIPPED: Final = 1024
_ENCODER: Final = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """A request whose arrays are on their way here."""

    request: Enroll | Call
    assembly: Assembly


class Session:
    """One rank's; `number` is never used again."""

    def __init__(
        self,
        number: int,
        identity: bytes,
        knock: Knock,
        peer: Peer,
        router: Router,
        touched: set[Session],
        caller: Caller | None = None,
    ) -> None:
        self.number = number
        self.identity = identity
        self.caller = caller  # its connection
        self.knock = knock
        self.peer = peer
        self.conversation = Conversation()
        self.relay: Relay | None = None
        self.visit: Visit | None = None  # who answers its questions, since it asked one
        self.uploads: dict[int, Upload] = {}
        # Requests that were refused, with the bytes of their arrays: what follows is on its way
        # already, and is dropped.
        self._skipped: dict[int, int] = {}
        self.calls: dict[int, int] = {}  # not answered yet, with the bytes of their arguments
        self.asked: set[int] = set()  # of those, the ones that make something
        self.input_bytes = 0  # of its channel
        self.enrolling = 0  # the number of its enrolment, while that lasts
        # Why it is over; None while it is well.
        self.ending: str | None = None
        self.lost = False  # it is over because the rank has gone, or might as well have
        self.disconnected = False
        self._router = router
        self._touched = touched  # those that the door is to look at: ended, or waiting for room
        self._since = time.monotonic()
        self._outbox: deque[_Unsent] = deque()
        self._moved = self._since  # when the outbox last got shorter, or the rank took something
        self._taken = 0  # bytes that its kernel has said to have
        self._words_waiting = 0
        self._unread = 0  # bytes of arrays that wait to be read
        self._part_at = self._since  # when something of an upload came last
        self._asked_in = self._asked_told = 0  # bytes of its requests and parts
        self._told_at = 0  # how many bytes had gone out before it was told last
        self._telling: _Unsent | None = None  # that, while it waits
        self.batches = self.calls_heard = self.bytes_in = self._bytes_out = 0

    # --- hearing -----------------------------------------------------------------------------

    def note_heard(self, nbytes: int, frames: int) -> None:
        """Something came."""
        self.bytes_in += nbytes
        if self.caller is not None:
            self.caller.note_heard(nbytes, frames)

    def begin_call(self, request: int, nbytes: int) -> None:
        """A question that is to be answered, with so many bytes of arguments."""
        self.calls[request] = nbytes
        self.calls_heard += 1

    def check_new(self, request: int) -> None:
        """ProtocolError for a number that cannot be told from others."""
        in_use = request in self.calls or request in self.uploads or request == self.enrolling
        if request < 1 or in_use:
            raise ProtocolError(f"request {request} cannot be used: it is 0, or not answered yet")

    def expect(self, upload: Upload) -> None:
        """The arrays of a request are to come."""
        self.uploads[upload.request.request] = upload
        self._part_at = time.monotonic()

    def note_part(self) -> None:
        """Some of them have."""
        self._part_at = time.monotonic()

    def skip(self, request: int, nbytes: int) -> None:
        """The arrays of a request are to come, and nobody wants them any more."""
        if nbytes > 0:
            self._skipped[request] = nbytes
        if len(self._skipped) > _SKIPPED:
            raise ProtocolError(f"of {_SKIPPED} requests that were refused the arrays do not come")

    def is_skipped(self, request: int, end: int) -> bool:
        """Whether a part, which ends there, is of those."""
        nbytes = self._skipped.get(request)
        if nbytes is not None and end >= nbytes:
            del self._skipped[request]
        return nbytes is not None

    def note_taken_in(self, nbytes: int) -> None:
        """A request, or a part, wanted or not: the rank may send as much more.

        It is told before whatever waits to be read, which may be much.
        """
        self._asked_in += nbytes
        if self._asked_in - self._asked_told >= UNTAKEN // 4 and self.ending is None:
            self._asked_told, self._told_at = self._asked_in, self._bytes_out
            taken = Taken(nbytes=self._asked_in)
            self.conversation.server_says(taken)
            self._send_first(_ENCODER.encode(taken))

    def keeps_waiting_for(self, now: float, acknowledged: int) -> float:
        """For how many seconds arrays have been on their way, and nothing of them has come.

        A rank may have to hear first that it can send more: while something waits here, or in
        ZeroMQ, no time goes by. `acknowledged`: bytes that its kernel has; 0 if nobody knows.
        """
        if self._outbox or 0 < acknowledged < self._told_at:
            self._part_at = now
        return now - self._part_at if self.uploads else 0.0

    # --- saying ------------------------------------------------------------------------------

    def say(self, message: FromServerToRank, data: memoryview | None = None) -> None:
        """Says something, without waiting. To one that is gone it is said in vain."""
        if self.ending is not None:
            return
        self.conversation.server_says(message)
        self.batches += isinstance(message, BatchReady)
        self._send(_ENCODER.encode(message), data, counts=not isinstance(message, _UNCOUNTED))

    def say_encoded(self, message: FromServerToRank, encoded: bytes) -> None:
        """The same of a message that is in bytes already."""
        self.conversation.server_says(message)
        self._send(encoded, None, counts=True)

    def _send(self, header: bytes, data: memoryview | None, *, counts: bool) -> None:
        if not self._outbox and self._sent(header, data):
            return
        if self.ending is None:
            if not self._outbox:
                self._moved = time.monotonic()
            self._outbox.append((header, data, counts))
            self._unread += 0 if data is None else data.nbytes
            self._touched.add(self)
            self._words_waiting += counts
            if self._words_waiting > TOO_MANY:
                self.end(f"it has left {self._words_waiting} words unread")

    def _send_first(self, header: bytes) -> None:
        """Before all that waits, and in the place of the same said earlier."""
        if self._outbox and self._outbox[0] is self._telling:
            self._outbox.popleft()
        elif not self._outbox:
            if self._sent(header, None):
                return
            self._moved = time.monotonic()
        if self.ending is None:
            self._telling = (header, None, False)
            self._outbox.appendleft(self._telling)
            self._touched.add(self)

    def flush(self) -> None:
        """Sends what waits, as far as there is room."""
        while self._outbox and self.ending is None:
            header, data, counts = self._outbox[0]
            if not self._sent(header, data):
                return
            self._outbox.popleft()
            self._words_waiting -= counts
            self._unread -= 0 if data is None else data.nbytes
            self._moved = time.monotonic()

    def _sent(self, header: bytes, data: memoryview | None) -> bool:
        match self._router.send(self.identity, header, data):
            case Sent.YES:
                nbytes = len(header) + (0 if data is None else data.nbytes)
                self._bytes_out += nbytes
                if self.caller is not None:
                    self.caller.said += nbytes
                return True
            case Sent.GONE:
                self.lost = self.disconnected = True
                self.end("it has gone")
        return False

    @property
    def unread(self) -> int:
        """Bytes of arrays that wait for the rank to read."""
        return self._unread

    @property
    def blocked(self) -> bool:
        """Whether something waits for the rank to read."""
        return bool(self._outbox)

    def note_taken(self, nbytes: int, now: float) -> None:
        """So many bytes have come to the rank's kernel since the connection began.

        ZeroMQ shows room for more only when half of its messages have gone, which may be a hundred
        megabytes: over a slow network that takes long, and is no sign that nobody reads.
        """
        if nbytes > self._taken:
            self._taken, self._moved = nbytes, now

    def stuck_for(self, now: float) -> float:
        """For how many seconds the rank has taken nothing of what waits for it."""
        return now - self._moved if self._outbox else 0.0

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
            name=self.knock.name,
            pid=self.knock.pid,
            host=self.knock.host,
            peer=self.peer.address,
            state=self.conversation.state.value,
            seconds=now - self._since,
            channel=0 if relay is None else relay.channel,
            job="" if relay is None else relay.job,
            slots=0 if relay is None else relay.slots,
            credits=0 if relay is None else relay.credits,
            batches=self.batches,
            calls=self.calls_heard,
            calls_in_flight=len(self.calls),
            bytes_in=self.bytes_in,
            bytes_out=self._bytes_out,
            unsent=len(self._outbox),
        )

    def __repr__(self) -> str:
        name = f" {self.knock.name!r}" if self.knock.name else ""
        return f"session {self.number}{name} (pid {self.knock.pid} at {self.peer.address})"
