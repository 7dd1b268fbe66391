"""Where ranks come in: a listening socket, and a refusal in words for those who may not.

Only the user the hub belongs to may come in. Too many are refused here, with a reason, before they
cost anything. The socket is the founder's, who hands it to one hub after the other.
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

# How many are let in at a time; whoever is already inside is served in between.
AT_ONCE: Final = 16

_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


class HubListener:
    """Takes over the descriptor of a listening socket. `admit()` never waits."""

    def __init__(self, descriptor: int, address: str) -> None:
        self.address = address
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._spare = SpareDescriptor()

    def fileno(self) -> int:
        """For a selector: readable when somebody wants to connect."""
        return self._socket.fileno()

    def admit(self, room: int) -> list[socket.socket]:
        """Those who want to come in, at most `AT_ONCE`; past `room` they are refused."""
        admitted: list[socket.socket] = []
        for _ in range(AT_ONCE):
            try:
                visitor, _ = self._socket.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    self._refuse_without_descriptors()
                # Else the visitor was gone before it was let in.
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
        """This hub lets nobody in any more. Those inside are not concerned. Idempotent."""
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
    """Says why not to another user, and closes. Nothing of what that one has said is looked at."""
    log.info("a connection is refused: %s", reason)
    with visitor, suppress(OSError):
        visitor.setblocking(False)
        visitor.send(frame(Refused(request=0, report=report_of(reason))))


def turn_away(visitor: socket.socket, reason: Exception) -> None:
    """Says why not, and closes."""
    log.info("a connection is refused: %s", reason)
    stream: Stream[FromRankToHub] = Stream(visitor, FromRankToHub)
    with suppress(OSError, ProtocolError):
        stream.send(Refused(request=0, report=report_of(reason)))
        # What it has said already must be read: unread, the kernel would reset the connection.
        for _, fds in stream.receive():
            for fd in fds:
                os.close(fd)
    stream.close()
