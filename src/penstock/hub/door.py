"""The door: where ranks come in, and where those who may not are told so.

It listens, looks at who is there (only the user the hub belongs to may come in), and hands over a
connected socket. Too many are refused here, with a reason, before they cost anything. What they
say once they are in is not its business.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import struct
from contextlib import suppress
from typing import Final

from penstock.errors import Overloaded, ProtocolError
from penstock.hub.address import socket_address, socket_file
from penstock.hub.reports import report_of
from penstock.wire.messages import FromRankToHub, Refused
from penstock.wire.stream import Stream

log = logging.getLogger(__name__)

# How many are let in at a time; whoever is already inside is served in between.
AT_ONCE: Final = 16
BACKLOG: Final = 512

_CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid, as SO_PEERCRED gives them
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


class Door:
    """A listening socket. `admit()` never waits."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._file = socket_file(address)
        self._socket = _listen(socket_address(address), self._file)
        self._spare = os.open(os.devnull, os.O_RDONLY)

    def fileno(self) -> int:
        """For a selector: readable when somebody is at the door."""
        return self._socket.fileno()

    def admit(self, room: int) -> list[socket.socket]:
        """Those who are at the door, at most `AT_ONCE`; past `room` they are refused."""
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
                turn_away(visitor, reason)
            else:
                admitted.append(visitor)
        return admitted

    def close(self) -> None:
        """Nobody comes in any more. Those inside are not concerned. Idempotent."""
        if self._socket.fileno() < 0:
            return
        # The name goes first: whoever finds it can still connect.
        if self._file is not None:
            with suppress(FileNotFoundError):
                os.unlink(self._file)
        self._socket.close()
        os.close(self._spare)

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
        # Left in the queue, the visitor would wake the hub for ever: one descriptor is kept for it.
        os.close(self._spare)
        try:
            visitor, _ = self._socket.accept()
            turn_away(visitor, Overloaded("the hub has no descriptors left (see `ulimit -n`)"))
        except OSError:
            pass
        finally:
            self._spare = os.open(os.devnull, os.O_RDONLY)


def peer_user(connected: socket.socket) -> int:
    """The user id of whoever is at the other end, by the kernel's word."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


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


def _listen(name: str, file: str | None) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        if file is not None:
            _remove_if_abandoned(file)
        listening.bind(name)
        if file is not None:
            os.chmod(file, 0o600)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _remove_if_abandoned(file: str) -> None:
    """Takes away the socket of a hub that was killed; nobody answers at it any more."""
    try:
        if not stat.S_ISSOCK(os.lstat(file).st_mode):
            return  # somebody's file: `bind` will complain
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(file)
        except ConnectionRefusedError:
            os.unlink(file)
        except OSError:
            pass  # in use, or not ours: `bind` will complain
