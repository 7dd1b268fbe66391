"""Unix sockets on one host: where a hub is found, listening there, and knowing who answers.

An address is "unix://@name" (no file; Linux) or "unix:///path/to/socket". Any user may bind a name
that is free, so both ends look at whose process the other one is: a rank speaks to hubs of its own
user only, and a hub to ranks of its own.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from contextlib import suppress
from typing import Final

SCHEME: Final = "unix://"
# The kernel keeps a socket's address in 108 bytes, one of them for a closing or leading zero.
LONGEST: Final = 107
BACKLOG: Final = 512

_CREDENTIALS: Final = struct.Struct("iII")  # pid, uid, gid, as SO_PEERCRED gives them


def socket_address(address: str) -> str:
    """What `bind` and `connect` take for `address`; ValueError if it is none."""
    name = address.removeprefix(SCHEME)
    if name == address or not name or name[0] not in "@/" or len(name) < 2 or "\0" in name:
        raise ValueError(
            f"address is {address!r}; expected 'unix://@name' or 'unix:///path/to/socket'"
        )
    if len(name.encode()) > LONGEST:
        raise ValueError(f"address is {address!r}: longer than {LONGEST} bytes")
    return "\0" + name[1:] if name[0] == "@" else name


def socket_file(address: str) -> str | None:
    """The file that listening at `address` makes; None where it makes none."""
    name = socket_address(address)
    return None if name.startswith("\0") else name


# --- who is there ------------------------------------------------------------------------------


def peer_user(connected: socket.socket) -> int:
    """The user whose process connected, or listened, at the other end: by the kernel's word."""
    return _credentials(connected)[1]


def peer_process(connected: socket.socket) -> int:
    """A descriptor for the process at the other end; -1 where there is none to be had."""
    try:
        return os.pidfd_open(_credentials(connected)[0])
    except (AttributeError, OSError):  # an old kernel, another namespace, no descriptors left
        return -1


def _credentials(connected: socket.socket) -> tuple[int, int, int]:
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, group = _CREDENTIALS.unpack(raw)
    return pid, user, group


# --- connecting --------------------------------------------------------------------------------


def connect(address: str) -> socket.socket:
    """A connection to the hub at `address`, which does not block.

    `ConnectionError` where nobody listens, or somebody does who is another user: nothing is said to
    that one.
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
        if isinstance(error, BlockingIOError):  # its queue of visitors is full
            raise ConnectionRefusedError(f"the hub at {address} is too busy to answer") from None
        if isinstance(error, FileNotFoundError):
            raise ConnectionRefusedError(f"there is no socket at {address}") from None
        raise
    return connected


# --- listening ---------------------------------------------------------------------------------


class UnixListener:
    """A listening socket at an address, and its file, if it has one.

    It belongs to whoever starts hubs, and is handed on to each of them in turn. So nobody else can
    take the address while one hub has died and the next one has not come; who connects meanwhile
    waits for the next one.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._file = socket_file(address)
        self._owner = os.getpid()
        self._socket = _listen(socket_address(address), self._file)

    def fileno(self) -> int:
        """The socket's descriptor; -1 once closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Nobody can connect any more; takes the file away. Idempotent."""
        if self._socket.fileno() < 0:
            return
        # The name goes first: whoever finds it can still connect. A fork's copy is not the owner.
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
