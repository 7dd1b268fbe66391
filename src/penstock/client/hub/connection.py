"""One connection to a hub: the hello, requests with their answers, and small words in passing.

Everything here is done by one thread at a time, but for `post` and `hang_up`: those may be called
from any thread, `post` also from within itself by way of the garbage collector, after `close()` and
at exit. What is posted is of a few bytes, and its order does not matter.

The hub's end shows as `ConnectionError`; what to do about it, others know.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Self, TypeAlias, TypeVar

import msgspec

from penstock.client.deadline import Deadline
from penstock.client.failures import error_of
from penstock.errors import ProtocolError
from penstock.wire.conversation import Conversation, Medium
from penstock.wire.messages import (
    PROTOCOL,
    AskGraph,
    AskStatistics,
    AskWorkers,
    CreateBackend,
    FromHubToRank,
    FromRankToHub,
    Hello,
    Refused,
    Register,
    Resize,
    Welcome,
)
from penstock.wire.stream import Stream
from penstock.wire.transport import unix

Request: TypeAlias = CreateBackend | Register | Resize | AskWorkers | AskStatistics | AskGraph
Received: TypeAlias = list[tuple[FromHubToRank, list[int]]]
Answer = TypeVar("Answer", bound=FromHubToRank)


class HubConnection:
    """A connected socket whose two ends have greeted each other."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._stream: Stream[FromHubToRank] = Stream(sock, FromHubToRank)
        self._conversation = Conversation(Medium.UNIX)
        self._numbers = count(1)
        self._unheard: Received = []  # came in one go with an answer, and after it
        self._owner = os.getpid()
        self.welcome: Welcome | None = None

    @classmethod
    def open(cls, address: str, deadline: Deadline) -> Self:
        """Connects and greets. `ConnectionError` where no hub answers."""
        connection = cls(unix.connect(address))
        try:
            connection.greet(deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    def greet(self, deadline: Deadline) -> Welcome:
        """Says hello, and hears whether both speak the same language."""
        self.say(Hello(protocol=PROTOCOL, pid=os.getpid()), (), deadline)
        welcome, _ = self._answer_to(0, Welcome, deadline)
        if welcome.protocol != PROTOCOL:
            raise ProtocolError(f"the hub speaks protocol {welcome.protocol}, this is {PROTOCOL}")
        self.welcome = welcome
        return welcome

    def ask(
        self,
        request: Request,
        answer: type[Answer],
        deadline: Deadline,
        fds: Sequence[int] = (),
    ) -> tuple[Answer, list[int]]:
        """The answer to a request, and its descriptors. A refusal is raised as what it says."""
        number = next(self._numbers)
        self.say(msgspec.structs.replace(request, request=number), fds, deadline)
        return self._answer_to(number, answer, deadline)

    def say(self, message: FromRankToHub, fds: Sequence[int], deadline: Deadline) -> None:
        """Sends a message of any size; returns when the kernel has all of it."""
        self._conversation.rank_says(message)
        self._stream.send(message, fds)
        while not self._stream.flush(_seconds(deadline)):
            if deadline.passed:
                raise TimeoutError("the hub has not listened in time")

    def post(self, message: FromRankToHub) -> None:
        """Sends a small message without ever waiting: now, or before the next wait."""
        if not self._is_in_a_fork:
            with suppress(ProtocolError):  # it has ended meanwhile
                self._conversation.rank_says(message)
                self._stream.send(message)

    def flush(self) -> None:
        """Sends what `post` could not, as far as there is room."""
        self._stream.flush()

    @property
    def queued(self) -> int:
        """How many messages wait for room on the way to the hub."""
        return self._stream.queued

    @property
    def pending(self) -> bool:
        """Whether something that was posted waits for room."""
        return self._stream.pending

    def wait(self, deadline: Deadline) -> None:
        """Until there is something to receive, the end included; `TimeoutError` if there is not."""
        if not self._unheard and not self._stream.wait(deadline.remaining):
            raise TimeoutError("the hub has not answered in time")

    def receive(self) -> Received:
        """Everything that has come. At the end, when nothing is left, `ConnectionError`."""
        came = self._stream.receive()
        for message, _ in came:
            self._conversation.hub_says(message)
        received, self._unheard = self._unheard + came, []
        if not received and self._stream.ended:
            raise ConnectionResetError("the hub closed the connection")
        return received

    def fileno(self) -> int:
        """Readable when there is something to receive."""
        return self._socket.fileno()

    def hang_up(self) -> None:
        """Ends the conversation; a thread that waits here wakes. The descriptor stays open."""
        if not self._is_in_a_fork:
            with suppress(OSError):  # it had ended already
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the conversation and lets go of the socket. Idempotent.

        A fork may have a copy of the socket: only if we hang up, the hub hears that it is over.
        """
        self.hang_up()
        unheard, self._unheard = self._unheard, []
        for _, fds in unheard:
            for fd in fds:
                os.close(fd)
        self._stream.close()

    def __del__(self) -> None:
        # One that an interrupt left without an owner; in a fork this closes its copy only.
        self.hang_up()
        self._stream.close()

    @property
    def _is_in_a_fork(self) -> bool:
        # The parent goes on using this very socket: a fork must not say a word on it.
        return os.getpid() != self._owner

    def _answer_to(
        self, number: int, kind: type[Answer], deadline: Deadline
    ) -> tuple[Answer, list[int]]:
        self.wait(deadline)
        while not (received := self.receive()):  # part of a message
            self.wait(deadline)
        (message, fds), self._unheard = received[0], received[1:]
        if isinstance(message, kind) and getattr(message, "request", 0) == number:
            return message, fds
        for fd in fds:
            os.close(fd)
        if isinstance(message, Refused):
            raise error_of(message.report)
        raise ProtocolError(f"expected {kind.__name__}, got {type(message).__name__}")


def _seconds(deadline: Deadline) -> float:
    """How long to wait at a time; not for ever, so that there is a number."""
    left = deadline.remaining
    return 60.0 if left is None else min(left, 60.0)
