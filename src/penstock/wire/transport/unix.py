"""Unix sockets on one host: addresses, connecting, listening, and the user at the other end.

An address is "unix://@name" (no file; Linux) or "unix:///path/to/socket". Any user may bind a free
name, so both ends check the user of the other process: a rank talks only to hubs of its own user,
and a hub only to ranks of its own.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from contextlib import suppress
from typing import Final

SCHEME: Final = "unix://"
# The kernel stores a socket's address in 108 bytes, one of them for a leading or trailing zero.
LONGEST: Final = 107
BACKLOG: Final = 512

_CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid, as SO_PEERCRED gives them


def socket_address(address: str) -> str:
    """Return `address` as `bind` and `connect` take it; raise ValueError if it is not valid."""
    name = address.removeprefix(SCHEME)
    if name == address or not name or name[0] not in "@/" or len(name) < 2 or "\0" in name:
        raise ValueError(
            f"address is {address!r}; expected 'unix://@name' or 'unix:///path/to/socket'"
        )
    if len(name.encode()) > LONGEST:
        raise ValueError(f"address is {address!r}: longer than {LONGEST} bytes")
    return "\0" + name[1:] if name[0] == "@" else name


def socket_file(address: str) -> str | None:
    """Return the file that listening at `address` makes; None if it makes none."""
    name = socket_address(address)
    return None if name.startswith("\0") else name


# --- the other end ---------------------------------------------------------------------------


def peer_user(connected: socket.socket) -> int:
    """Return the user of the process that connected or listened at the other end.

    The kernel reports it, so it can be trusted.
    """
    return _credentials(connected)[1]


def peer_process(connected: socket.socket) -> int:
    """Return a pidfd of the process at the other end; -1 if that is not possible."""
    try:
        return os.pidfd_open(_credentials(connected)[0])
    except (AttributeError, OSError):  # an old kernel, another namespace, no descriptors left
        return -1


def _credentials(connected: socket.socket) -> tuple[int, int, int]:
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, group = _CREDENTIALS.unpack(raw)
    return pid, user, group


# --- connecting ------------------------------------------------------------------------------


def connect(address: str) -> socket.socket:
    """Return a connection to the hub at `address`, which does not block.

    Raises:
        ConnectionError: No process listens there, or that of another user, to which nothing is
            sent.
    """
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)
        connected.connect(socket_address(address))
        user = peer_user(connected)
        if user != os.geteuid():
            raise ConnectionRefusedError(
                f"user {user} listens at {address}, and you are user {os.geteuid()}: that is not "
                "your hub"
            )
    except BaseException as error:
        connected.close()
        if isinstance(error, BlockingIOError):  # the queue of the listening socket is full
            raise ConnectionRefusedError(f"the hub at {address} is too busy to answer") from None
        if isinstance(error, FileNotFoundError):
            raise ConnectionRefusedError(f"there is no socket at {address}") from None
        raise
    return connected


# --- listening -------------------------------------------------------------------------------


class UnixListener:
    """A listening socket at an address, and its file, if it has one.

    The process that starts hubs owns it, and hands it to each of them in turn. So no other process
    can take the address between the death of one hub and the start of the next; clients that
    connect meanwhile wait for the next hub.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._file = socket_file(address)
        self._owner = os.getpid()
        self._socket = _listen(socket_address(address), self._file)

    def fileno(self) -> int:
        """Return the socket's descriptor; -1 once closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Stop listening, and remove the file. Idempotent."""
        if self._socket.fileno() < 0:
            return
        # The file is removed first, so that a client which finds it can still connect. The copy of
        # this object in a forked process does not own the file.
        if self._file is not None and os.getpid() == self._owner:
            with suppress(FileNotFoundError):
                os.unlink(self._file)
        self._socket.close()


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
    """Remove the socket file of a hub that was killed, at which no process listens."""
    try:
        if not stat.S_ISSOCK(os.lstat(file).st_mode):
            return  # another kind of file: `bind` will raise
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(file)
        except ConnectionRefusedError:
            os.unlink(file)
        except OSError:
            pass  # in use, or not ours: `bind` will raise
