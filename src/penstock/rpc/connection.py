"""One connection to a server: `Hello`, one channel, one-way messages.

The process's I/O thread receives messages (`link`), batches into reused memory; readers take them
from here. It has the interface of `client.hub.connection.HubConnection`: only one thread at a time
may use it, except for `post` and `hang_up`. When the server or its hub ends, calls raise
`ConnectionError`. How to recover is the caller's decision.
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

from penstock.errors import AccessDenied, ProtocolError
from penstock.rpc.deadline import Deadline
from penstock.rpc.endpoint import Endpoint
from penstock.rpc.failures import error_of
from penstock.rpc.link import MessageHandler, ServerLink
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

# Each message comes with its payload: the memory of a batch, or nothing.
Received: TypeAlias = list[tuple[FromServerToRank, Any]]
_Wanted = TypeVar("_Wanted", Welcome, Registered)


class RemoteConnection:
    """A connection to a server on which both ends have said hello."""

    welcome: Welcome

    def __init__(self, endpoint: Endpoint, deadline: Deadline, *, driven: bool = False) -> None:
        self._endpoint = endpoint
        self._owner = os.getpid()
        self._link = ServerLink(endpoint, deadline, driven=driven)
        # They belong to the link: any thread may call `send`, which never waits; `drive` and
        # `take_in` receive if the connection is `driven`.
        self.send, self.drive, self.take_in = self._link.send, self._link.drive, self._link.take_in
        # Call it when the server owes an answer from now on: silence before that does not count.
        self.note_asked = self._link.note_asked
        self._inbox = self._link.inbox
        self._numbers = count(1)
        # This closes a connection that was left without an owner, by an interrupt or otherwise. At
        # exit the system closes it.
        self._let_go = weakref.finalize(self, _close, self._link, self._owner)
        self._let_go.atexit = False
        self._link.start()

    @classmethod
    def open(cls, endpoint: Endpoint, deadline: Deadline, *, driven: bool = False) -> Self:
        """Connect and say hello; `ConnectionError` with the reason if no server answers.

        Args:
            endpoint: The server's address and credentials.
            deadline: When to give up.
            driven: The I/O thread does not receive; whoever calls `drive` does.
        """
        connection = cls(endpoint, deadline, driven=driven)
        try:
            connection.greet(deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    def greet(self, deadline: Deadline) -> None:
        """Send `Hello`, check the server's `Welcome`, and begin to send heartbeats."""
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

    # --- sending -----------------------------------------------------------------------------

    def register(self, register: Register, inputs: Packed, deadline: Deadline) -> Registered:
        """Open the channel of this connection."""
        number = next(self._numbers)
        request = msgspec.structs.replace(register, request=number, arrays=inputs.arrays)
        self._note_owed()
        self.send(request, inputs)
        return self._answer_to(number, Registered, deadline)

    def post(self, message: FromRankToServer) -> None:
        """Send a small message without ever waiting; any thread, any time, also after the end."""
        if os.getpid() != self._owner:  # in a fork, the socket belongs to the parent
            return
        if isinstance(message, StartEpoch):
            self._note_owed()
        with suppress(ProtocolError):  # the conversation has ended meanwhile
            self._link.send(message)

    def flush(self) -> None:
        """Do nothing: the I/O thread sends what was posted."""

    @property
    def pending(self) -> bool:
        """Whether the reader must have something sent: never, the I/O thread does it."""
        return False

    def _note_owed(self) -> None:
        self.note_asked()
        self._inbox.owed = True

    # --- receiving ---------------------------------------------------------------------------

    def listen(self, listener: MessageHandler) -> None:
        """Pass what comes to a handler from now on, instead of keeping it for `receive`."""
        self._link.listener = listener
        if self._inbox.failure is not None:  # the connection has ended meanwhile
            listener.end(self._inbox.failure)

    def wait(self, deadline: Deadline) -> None:
        """Wait until there is something to receive or the connection ends; else `TimeoutError`."""
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
        """Return all that has come; `ConnectionError` if that is nothing and the server is gone."""
        inbox = self._inbox
        received: Received = []
        inbox.clear()
        while inbox.kept:
            received.append(inbox.kept.popleft())
        if not received:
            self._check_end()
        return received

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is something to receive."""
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

    # --- what it knows -----------------------------------------------------------------------

    @property
    def descriptor(self) -> int:
        """The socket's descriptor, to wait for what `take_in` processes; -1 once it is closed."""
        return self._link.descriptor

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._link.is_over

    @property
    def is_leaving(self) -> bool:
        """Whether the server has said that it will end."""
        return self._link.leaving is not None

    @property
    def bytes_moved(self) -> tuple[int, int]:
        """How many bytes have come, and how many were sent."""
        return self._link.bytes_in, self._link.bytes_out

    # --- the end -----------------------------------------------------------------------------

    def take_leave(self) -> None:
        """Say that nothing more will be sent, and wake a thread that drives it. Any thread."""
        if os.getpid() == self._owner:
            self._link.take_leave()

    def hang_up(self) -> None:
        """End the conversation, and wake a thread that waits here. Any thread."""
        if os.getpid() == self._owner:
            self._link.lose(ConnectionResetError("it was hung up here"))

    def close(self) -> None:
        """Say goodbye and close the socket. Idempotent; any thread; never waits."""
        _close(self._link, self._owner)
        self._let_go.detach()  # not before: after an interrupt it is still to be done


def _close(link: ServerLink, owner: int) -> None:
    if os.getpid() != owner:
        return
    try:
        link.close()
    except BaseException:  # an interrupt: nobody else may be there to close it
        link.close()
        raise
