"""One connection to a hub: `Hello`, requests with their answers, and small one-way messages.

Only one thread at a time may use a connection, except for `post` and `hang_up`, which any thread
may call. `post` may also be called by a finalizer while the same thread is inside `post`, after
`close()` and at exit. Posted messages have a few bytes each, and their order does not matter.

When the hub ends, calls raise `ConnectionError`. How to recover is the caller's decision.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Self, TypeAlias, TypeVar

import msgspec

from penstock.errors import ProtocolError
from penstock.rpc.deadline import Deadline
from penstock.rpc.failures import error_of
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
    """A connected socket on which both ends have said hello."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._stream: Stream[FromHubToRank] = Stream(sock, FromHubToRank)
        self._conversation = Conversation(Medium.UNIX)
        self._numbers = count(1)
        self._unheard: Received = []  # received together with an answer, and after it
        self._owner = os.getpid()
        self.welcome: Welcome | None = None

    @classmethod
    def open(cls, address: str, deadline: Deadline) -> Self:
        """Connect and say hello; `ConnectionError` if no hub answers."""
        connection = cls(unix.connect(address))
        try:
            connection.greet(deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    def greet(self, deadline: Deadline) -> Welcome:
        """Send `Hello`, and return the hub's `Welcome`; `ProtocolError` if the versions differ."""
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
        """Send a request, and return its answer with its descriptors.

        Raises:
            Exception: The hub refused; the error is the one in its report.
        """
        number = next(self._numbers)
        self.say(msgspec.structs.replace(request, request=number), fds, deadline)
        return self._answer_to(number, answer, deadline)

    def say(self, message: FromRankToHub, fds: Sequence[int], deadline: Deadline) -> None:
        """Send a message of any size, and return when the kernel has all of it."""
        self._conversation.rank_says(message)
        self._stream.send(message, fds)
        while not self._stream.flush(_seconds(deadline)):
            if deadline.passed:
                raise TimeoutError("the hub has not listened in time")

    def post(self, message: FromRankToHub) -> None:
        """Send a small message without ever waiting: now, or before the next wait."""
        if not self._is_in_a_fork:
            with suppress(ProtocolError):  # the conversation has ended meanwhile
                self._conversation.rank_says(message)
                self._stream.send(message)

    def flush(self) -> None:
        """Send what `post` could not send, as far as the socket has room."""
        self._stream.flush()

    @property
    def queued(self) -> int:
        """How many messages wait for room in the socket."""
        return self._stream.queued

    @property
    def pending(self) -> bool:
        """Whether a posted message waits for room in the socket."""
        return self._stream.pending

    def wait(self, deadline: Deadline) -> None:
        """Wait until there is something to receive or the connection ends; else `TimeoutError`."""
        if not self._unheard and not self._stream.wait(deadline.remaining):
            raise TimeoutError("the hub has not answered in time")

    def receive(self) -> Received:
        """Return all that has come; `ConnectionError` if that is nothing and the hub is gone."""
        came = self._stream.receive()
        for message, _ in came:
            self._conversation.hub_says(message)
        received, self._unheard = self._unheard + came, []
        if not received and self._stream.ended:
            raise ConnectionResetError("the hub closed the connection")
        return received

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is something to receive."""
        return self._socket.fileno()

    def hang_up(self) -> None:
        """End the conversation, and wake a thread that waits here. The descriptor stays open."""
        if not self._is_in_a_fork:
            with suppress(OSError):  # the connection had ended already
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the conversation and close the socket. Idempotent.

        A fork may have a copy of the socket, so closing alone does not tell the hub that the
        conversation is over; `hang_up` does.
        """
        self.hang_up()
        unheard, self._unheard = self._unheard, []
        for _, fds in unheard:
            for fd in fds:
                os.close(fd)
        self._stream.close()

    def __del__(self) -> None:
        # An interrupt may have left the connection without an owner. In a fork, this closes only
        # the fork's copy.
        self.hang_up()
        self._stream.close()

    @property
    def _is_in_a_fork(self) -> bool:
        # The parent goes on using the same socket, so a fork must not send anything on it.
        return os.getpid() != self._owner

    def _answer_to(
        self, number: int, kind: type[Answer], deadline: Deadline
    ) -> tuple[Answer, list[int]]:
        self.wait(deadline)
        while not (received := self.receive()):  # only part of a message has come
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
    """Return how long to wait at a time; bounded, because `flush` takes a number."""
    left = deadline.remaining
    return 60.0 if left is None else min(left, 60.0)
