"""One connection to a server: Hello, a channel, messages in passing.

What comes is received by the process's I/O thread (`link`), batches into memory that is used again;
whoever reads takes it from here. To readers of a channel it looks as `client.connection.Connection`
does: everything is done by one thread at a time but `post` and `hang_up`. The server's end, and
that of its hub, show as `ConnectionError`; what to do about it, others know.
"""

from __future__ import annotations

import math
import os
import select
import weakref
from contextlib import suppress
from itertools import count
from typing import Any, Self, TypeAlias, TypeVar

import msgspec

from penstock.client.deadline import Deadline
from penstock.client.failures import error_of
from penstock.client.remote.endpoint import Endpoint
from penstock.client.remote.link import MessageHandler, ServerLink
from penstock.errors import AccessDenied, ProtocolError
from penstock.wire.framing import poll
from penstock.wire.host import this_host
from penstock.wire.messages import (
    PROTOCOL,
    FromRankToServer,
    FromServerToRank,
    Hello,
    Refused,
    Register,
    Registered,
    StartEpoch,
    Welcome,
)
from penstock.wire.payload import Packed
from penstock.wire.transport.tls import is_about_certificates

# Each with its payload: the memory of a batch, or nothing.
Received: TypeAlias = list[tuple[FromServerToRank, Any]]
_Wanted = TypeVar("_Wanted", Welcome, Registered)


class RemoteConnection:
    """A connection on which both ends have greeted each other."""

    welcome: Welcome

    def __init__(self, endpoint: Endpoint, deadline: Deadline, *, driven: bool = False) -> None:
        self._endpoint = endpoint
        self._owner = os.getpid()
        self._link = ServerLink(endpoint, deadline, driven=driven)
        # As its link does: `send` never waits, and is for any thread; `drive`, where it is driven.
        self.send, self.drive = self._link.send, self._link.drive
        # The server owes something from now on: that it was silent before does not count.
        self.note_asked = self._link.note_asked
        self._inbox = self._link.inbox
        self._numbers = count(1)
        # One that an interrupt, or anybody, left without an owner; at exit the system does it.
        self._let_go = weakref.finalize(self, _close, self._link, self._owner)
        self._let_go.atexit = False
        self._link.start()

    @classmethod
    def open(cls, endpoint: Endpoint, deadline: Deadline, *, driven: bool = False) -> Self:
        """Connects and says Hello. `ConnectionError` where no server answers, with the reason.

        `driven`: what comes is not received by itself, but by whoever calls `drive`.
        """
        connection = cls(endpoint, deadline, driven=driven)
        try:
            connection.greet(deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    def greet(self, deadline: Deadline) -> None:
        """Says Hello, and hears who answers."""
        endpoint = self._endpoint
        self.send(
            Hello(
                protocol=PROTOCOL,
                pid=os.getpid(),
                host=this_host(),
                name=endpoint.name,
                token=endpoint.token,
            )
        )
        try:
            self.welcome = self._answer_to(0, Welcome, deadline)
        except ConnectionError as error:
            if not is_about_certificates(str(error)):
                raise
            raise AccessDenied(
                f"{endpoint.address} does not trust our certificate, or wants one: {error} "
                "(settings: certificate, key)"
            ) from None
        if self.welcome.protocol != PROTOCOL:
            theirs = self.welcome.protocol
            raise ProtocolError(
                f"the server at {endpoint.address} speaks protocol {theirs}, this is {PROTOCOL}"
            )
        if not 0 < self.welcome.lease < math.inf:
            lease = self.welcome.lease
            raise ProtocolError(f"the server at {endpoint.address} gives a lease of {lease} s")
        self._link.keep_alive(self.welcome.lease)

    # --- saying ------------------------------------------------------------------------------

    def register(self, register: Register, inputs: Packed, deadline: Deadline) -> Registered:
        """Opens the channel of this connection."""
        number = next(self._numbers)
        request = msgspec.structs.replace(register, request=number, arrays=inputs.arrays)
        self._note_owed()
        self.send(request, inputs)
        return self._answer_to(number, Registered, deadline)

    def post(self, message: FromRankToServer) -> None:
        """Sends a small message without ever waiting; any thread, any time, also after the end."""
        if os.getpid() != self._owner:  # in a fork the socket is the parent's
            return
        if isinstance(message, StartEpoch):
            self._note_owed()
        with suppress(ProtocolError):  # it has ended meanwhile
            self._link.send(message)

    def flush(self) -> None:
        """What was posted is sent by itself."""

    @property
    def pending(self) -> bool:
        """Whether a reader has to see to it that something is sent: the I/O thread does."""
        return False

    def _note_owed(self) -> None:
        self.note_asked()
        self._inbox.owed = True

    # --- hearing -----------------------------------------------------------------------------

    def listen(self, listener: MessageHandler) -> None:
        """Has somebody else hear what comes, in the I/O thread."""
        self._link.listener = listener
        if self._inbox.failure is not None:  # it has ended meanwhile
            listener.end(self._inbox.failure)

    def wait(self, deadline: Deadline) -> None:
        """Until there is something to receive, the end included; `TimeoutError` if there is not."""
        inbox = self._inbox
        while not inbox.kept and inbox.failure is None:
            leaving = self._link.leaving
            until = deadline if leaving is None else deadline.or_sooner(leaving)
            if until.passed:
                if deadline.passed:
                    raise TimeoutError("the server has not answered in time")
                return
            if self._link.is_driven:
                self.drive(until.remaining)
            else:
                poll(inbox.nudge, select.POLLIN, until.remaining)
            if not inbox.kept:
                inbox.clear()

    def receive(self) -> Received:
        """What has come. At the end, when nothing is left, `ConnectionError`."""
        inbox = self._inbox
        received: Received = []
        inbox.clear()
        while inbox.kept:
            received.append(inbox.kept.popleft())
        if not received:
            self._check_end()
        return received

    def fileno(self) -> int:
        """Readable when there is something to receive."""
        return self._inbox.nudge

    def _answer_to(self, number: int, kind: type[_Wanted], deadline: Deadline) -> _Wanted:
        while not (received := self.receive()):
            self.wait(deadline)
        message, _ = received[0]
        self._inbox.kept.extendleft(reversed(received[1:]))
        self._inbox.wake()
        if isinstance(message, kind) and getattr(message, "request", 0) == number:
            return message
        if isinstance(message, Refused):
            raise error_of(message.report)
        raise ProtocolError(f"expected {kind.__name__}, got {type(message).__name__}")

    def _check_end(self) -> None:
        failure, leaving = self._inbox.failure, self._link.leaving
        if failure is not None:
            raise type(failure)(*failure.args)
        if leaving is not None and leaving.passed:
            raise ConnectionResetError("the server has left")

    # --- the end -----------------------------------------------------------------------------

    def take_leave(self) -> None:
        """Says that nothing more will be said; a thread that drives it wakes. Any thread."""
        if os.getpid() == self._owner:
            self._link.take_leave()

    def hang_up(self) -> None:
        """Ends the conversation; a thread that waits here wakes. Any thread."""
        if os.getpid() == self._owner:
            self._link.lose(ConnectionResetError("it was hung up here"))

    def close(self) -> None:
        """Takes leave, and lets go of the socket. Idempotent; any thread, never waits."""
        self._let_go()


def _close(link: ServerLink, owner: int) -> None:
    if os.getpid() == owner:
        link.close()
