"""The hub's listening socket, and refusals with a reason.

Only the hub's own user may connect. Connections above the limit are refused here, with a reason,
before they use any resources. The rank that started the hub owns the socket, and hands it to each
hub that replaces an earlier one.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from contextlib import suppress
from typing import Final

from penstock.errors import Overloaded, ProtocolError
from penstock.hub.reports import report_of
from penstock.wire.framing import frame
from penstock.wire.messages import FromRankToHub, Refused
from penstock.wire.stream import Stream
from penstock.wire.transport.spare import SpareDescriptor
from penstock.wire.transport.unix import peer_user

log = logging.getLogger(__name__)

# How many connections are accepted in one turn of the loop, so that others are served in between.
AT_ONCE: Final = 16

_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


class HubListener:
    """Owns the descriptor of a listening socket. `admit()` never blocks."""

    def __init__(self, descriptor: int, address: str) -> None:
        self.address = address
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._spare = SpareDescriptor()

    def fileno(self) -> int:
        """Return the descriptor, which is readable when a client wants to connect."""
        return self._socket.fileno()

    def admit(self, room: int) -> list[socket.socket]:
        """Accept at most `AT_ONCE` connections, and return them; refuse those above `room`."""
        admitted: list[socket.socket] = []
        for _ in range(AT_ONCE):
            try:
                visitor, _ = self._socket.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    self._refuse_without_descriptors()
                # Otherwise the client was gone before it was accepted.
                continue
            if reason := self._objection(visitor, room - len(admitted)):
                if isinstance(reason, PermissionError):
                    hang_up_on(visitor, reason)
                else:
                    turn_away(visitor, reason)
            else:
                admitted.append(visitor)
        return admitted

    def close(self) -> None:
        """Stop accepting connections; existing ones are not affected. Idempotent."""
        if self._socket.fileno() >= 0:
            self._socket.close()
            self._spare.close()

    def _objection(self, visitor: socket.socket, room: int) -> Exception | None:
        user = peer_user(visitor)
        if user != os.geteuid():
            return PermissionError(f"this hub serves user {os.geteuid()}, and you are user {user}")
        if room <= 0:
            return Overloaded(
                f"the hub at {self.address} has as many connections as it may have "
                "(setting: max_connections)"
            )
        return None

    def _refuse_without_descriptors(self) -> None:
        with self._spare.given_up(), suppress(OSError):
            visitor, _ = self._socket.accept()
            turn_away(visitor, Overloaded("the hub has no descriptors left (see `ulimit -n`)"))


def hang_up_on(visitor: socket.socket, reason: Exception) -> None:
    """Send the refusal to another user and close, without reading what that user has sent."""
    log.info("a connection is refused: %s", reason)
    with visitor, suppress(OSError):
        visitor.setblocking(False)
        visitor.send(frame(Refused(request=0, report=report_of(reason))))


def turn_away(visitor: socket.socket, reason: Exception) -> None:
    """Send the refusal and close."""
    log.info("a connection is refused: %s", reason)
    stream: Stream[FromRankToHub] = Stream(visitor, FromRankToHub)
    with suppress(OSError, ProtocolError):
        stream.send(Refused(request=0, report=report_of(reason)))
        # What the client has already sent must be read, or the kernel would reset the connection.
        for _, fds in stream.receive():
            for fd in fds:
                os.close(fd)
    stream.close()
