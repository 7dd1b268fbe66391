"""One connection to a server: the knock, requests with their answers, small words in passing.

As `client.connection.Connection`, to those who read a channel: everything is done by one thread at
a time but `post`, `has_sent` and `hang_up`. What comes in pieces is put together here. The server's
end, and that of its hub, show as `ConnectionError`; what to do about it, others know.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from itertools import count
from typing import Any, Final, Self, TypeAlias, TypeVar

import msgspec
import zmq

from penstock.client.deadline import Deadline
from penstock.client.failures import error_of
from penstock.client.remote.arrivals import Answers, Batches
from penstock.client.remote.dealer import Dealer
from penstock.client.remote.door import Door
from penstock.errors import HubGone, ProtocolError
from penstock.wire.bulk import Arrays, Packed
from penstock.wire.host import this_host
from penstock.wire.messages import BatchReady, Refused
from penstock.wire.remote import (
    HEADER,
    REMOTE_PROTOCOL,
    Answer,
    Enroll,
    Enrolled,
    FromRankToServer,
    FromServerToRank,
    Goodbye,
    Greeting,
    Knock,
    Leaving,
    Part,
    Piece,
    Pulse,
    Taken,
)

log = logging.getLogger(__name__)

Received: TypeAlias = list[tuple[FromServerToRank, list[int]]]
_Wanted = TypeVar("_Wanted", Greeting, Enrolled)

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODER: Final[msgspec.msgpack.Decoder[FromServerToRank]] = msgspec.msgpack.Decoder(
    FromServerToRank
)
# Seconds for finding out why nobody answers.
_LOOK_S: Final = 1.0
# Batches that a reader has at a time, mostly.
_WITH_READER: Final = 2


class RemoteConnection:
    """A connection on which both ends have greeted each other."""

    greeting: Greeting

    def __init__(self, door: Door) -> None:
        self._door = door
        self._dealer = Dealer(door)
        self._numbers = count(1)
        self._unheard: Received = []
        self._batches: Batches | None = None
        self._answers = Answers()
        self._leaving: Deadline | None = None  # the server has said that it ends
        self._has_said_why = False  # that there is nobody to talk to

    @classmethod
    def open(cls, door: Door, deadline: Deadline) -> Self:
        """Connects and knocks. `ConnectionError` where no server answers, with the reason."""
        door.check_name()
        connection = cls(door)
        try:
            connection._knock(deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    def _knock(self, deadline: Deadline) -> None:
        door = self._door
        knock = Knock(
            protocol=REMOTE_PROTOCOL,
            pid=os.getpid(),
            host=this_host(),
            name=door.name,
            token=door.token,
        )
        self.say(knock, deadline)
        try:
            self.greeting = self._answer_to(0, Greeting, deadline)
        except ConnectionError:
            dealer = self._dealer
            if dealer.is_refused:
                raise ProtocolError(f"{door.address} refuses us: {dealer.end}") from None
            if self._has_said_why or not dealer.is_lost:
                raise
            raise ConnectionRefusedError(door.why_not(_LOOK_S)) from None
        if self.greeting.protocol != REMOTE_PROTOCOL:
            theirs = self.greeting.protocol
            raise ProtocolError(
                f"the server at {door.address} speaks protocol {theirs}, this is {REMOTE_PROTOCOL}"
            )

    # --- asking ------------------------------------------------------------------------------

    def enroll(self, enroll: Enroll, inputs: Packed, deadline: Deadline) -> Enrolled:
        """Opens the channel of this connection."""
        number = next(self._numbers)
        request = msgspec.structs.replace(enroll, request=number, bulk=inputs.bulk)
        self.say(request, deadline, _parts_of(number, inputs))
        enrolled = self._answer_to(number, Enrolled, deadline)
        # As many as can be here at once, and some that the reader has.
        self._batches = Batches(enrolled.most_bytes, kept=enrolled.slots + _WITH_READER)
        return enrolled

    def say(
        self,
        message: FromRankToServer,
        deadline: Deadline,
        parts: Iterable[tuple[Part, memoryview]] = (),
    ) -> None:
        """Sends a message, and the bytes that follow it; returns when all is on its way."""
        self._send(deadline, message)
        for part, data in parts:
            self._send(deadline, part, data)

    def _send(self, deadline: Deadline, message: FromRankToServer, *data: memoryview) -> None:
        while not self.has_sent(message, *data):
            if deadline.passed:
                raise TimeoutError("the server has not listened in time")
            self._dealer.wait(deadline.remaining)
            self._take_in()  # or what has come would keep us awake
            self._check_refusal()
            self._check_end()

    def _answer_to(self, number: int, kind: type[_Wanted], deadline: Deadline) -> _Wanted:
        while not (received := self.receive()):
            self.wait(deadline)
        (message, _), self._unheard = received[0], received[1:]
        if isinstance(message, kind) and getattr(message, "request", 0) == number:
            return message
        if isinstance(message, Refused):
            raise error_of(message.report)
        raise ProtocolError(f"expected {kind.__name__}, got {type(message).__name__}")

    # --- what a switchboard does --------------------------------------------------------------

    def has_sent(self, message: FromRankToServer, *data: memoryview) -> bool:
        """Sends a request, or some bytes of one; False if there is no room now. Any thread.

        ValueError for one that the server would not take.
        """
        header = _ENCODE(message)
        if len(header) > HEADER:
            raise ValueError(
                f"a {type(message).__name__} has {len(header)} bytes beside its arrays, and at "
                f"most {HEADER} may be sent: give arrays in the place of long lists"
            )
        nbytes = len(header) + sum(part.nbytes for part in data)
        return self._dealer.send((header, *data), 0 if isinstance(message, Knock) else nbytes)

    def arrays_of(self, number: int) -> Arrays:
        """The arrays of an answer that was received."""
        return self._answers.take(number)

    # --- what a channel's reader does --------------------------------------------------------

    def post(self, message: FromRankToServer) -> None:
        """Sends a small message without ever waiting. Any thread, any time."""
        self._dealer.post(_ENCODE(message))

    def flush(self) -> None:
        """Sends what `post` could not, as far as there is room."""
        self._dealer.flush()

    @property
    def pending(self) -> bool:
        """Whether something that was posted waits for room."""
        return self._dealer.pending

    def wait(self, deadline: Deadline) -> None:
        """Until there is something to receive, the end included; `TimeoutError` if there is not."""
        if self._unheard:
            return
        until = deadline if self._leaving is None else deadline.or_sooner(self._leaving)
        if not self._dealer.wait(until.remaining) and deadline.passed:
            raise TimeoutError("the server has not answered in time")

    def receive(self) -> Received:
        """What has come, as far as the next batch. At the end, `ConnectionError`."""
        if not self._unheard:
            self._take_in()
        received, self._unheard = self._unheard, []
        if not received:
            self._check_end()
        return received

    def take(self, ready: BatchReady) -> Any:
        """The memory of a batch that was received."""
        assert self._batches is not None
        return self._batches.take(ready.batch)

    def fileno(self) -> int:
        """Readable when there is something to receive."""
        return self._dealer.fileno()

    def hang_up(self) -> None:
        """Ends the conversation; a thread that waits here wakes."""
        self._dealer.hang_up("it was hung up here")

    def close(self) -> None:
        """Takes leave, and lets go of the socket. Idempotent."""
        self._dealer.close(_ENCODE(Goodbye()))

    def __del__(self) -> None:
        # One that an interrupt left without an owner.
        if (dealer := getattr(self, "_dealer", None)) is not None:
            dealer.close()

    # --- what the server says ----------------------------------------------------------------

    def _take_in(self) -> None:
        """Hears what has come, up to a batch or an answer: more might keep that waiting."""
        for frames in self._dealer.messages():
            message = self._heard(_decoded(frames), frames)
            if message is not None:
                self._unheard.append((message, []))
            if isinstance(message, BatchReady | Answer) or self._dealer.end is not None:
                return  # after the end, words of ours and theirs have only missed each other

    def _heard(self, message: FromServerToRank, frames: list[zmq.Frame]) -> Any:
        """The message, if it is complete, and not for us alone."""
        match message:
            case BatchReady():
                return self._known_batches().announce(message)
            case Piece():
                return self._known_batches().add(message, _data(frames))
            case Answer():
                return self._answers.announce(message)
            case Part():
                return self._answers.add(message, _data(frames))
            case Taken(nbytes=nbytes):
                self._dealer.note_taken(nbytes)
                return None
            case Pulse():
                return None
            case Leaving(reason=reason, grace=grace):
                log.info("the server at %s is leaving: %s", self._door.address, reason)
                self._leaving = Deadline(max(0.0, grace))
                return None
            case Refused(request=0, report=report) if report.kind == HubGone.__name__:
                self._dealer.end, self._has_said_why = report.message, True
                return None
        return message

    def _known_batches(self) -> Batches:
        if self._batches is None:
            raise ProtocolError("a batch came on a connection without a channel")
        return self._batches

    def _check_refusal(self) -> None:
        """Raises what the server says instead of an answer, before that is drowned by the end."""
        for message, _ in self._unheard:
            if isinstance(message, Refused):
                raise error_of(message.report)

    def _check_end(self) -> None:
        if self._dealer.end is not None:
            raise ConnectionResetError(self._dealer.end)
        if self._leaving is not None and self._leaving.passed:
            raise ConnectionResetError("the server has left")


def _parts_of(number: int, packed: Packed) -> Iterable[tuple[Part, memoryview]]:
    return ((Part(request=number, offset=offset), data) for offset, data in packed.parts())


def _decoded(frames: list[zmq.Frame]) -> FromServerToRank:
    try:
        return _DECODER.decode(frames[0].buffer)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"the server sent something that is no message: {error}") from None


def _data(frames: list[zmq.Frame]) -> memoryview:
    if len(frames) != 2:
        raise ProtocolError(f"a piece came in {len(frames)} frames; expected 2")
    return frames[1].buffer
