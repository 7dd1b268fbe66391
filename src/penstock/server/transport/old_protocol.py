"""What those are told who speak as versions before this one did, over ZeroMQ.

They take part in a handshake (ZMTP 3.0) before anything is said: a greeting of 64 bytes each, then
a command each. Ours are always the same. Once theirs have come, a message follows that their side
raises as an error. Whoever encrypted (CURVE) cannot be told.
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Final

from penstock.errors import ProtocolError
from penstock.hub.reports import report_of
from penstock.wire.framing import encode
from penstock.wire.messages import PROTOCOL, Refused

# The first byte of whoever speaks it.
FIRST: Final = 0xFF
_GREETING: Final = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_COMMAND, _LONG = 4, 2
# More than their handshake has; who sends as much without an end of it is not waited for.
_MOST: Final = 1024
_WORDS: Final = (
    f"you speak protocol 1, over ZeroMQ; this server speaks {PROTOCOL}, over TCP and TLS: install "
    "the same version of penstock on both sides"
)


class OldClient:
    """A connection of such a client, from its first byte to the end: see `connections.End`."""

    pending = False

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._heard = bytearray()
        self._told = False
        self.broken = False
        self._send(_GREETING + _ready())

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def flush_some(self, nbytes: int) -> None:
        """Nothing waits."""

    def finish(self) -> None:
        """Not before it was told."""
        if self._told:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def discard(self, scratch: memoryview) -> bool:
        """Listens for its handshake, and then tells it; False once it has hung up."""
        try:
            nbytes = self._socket.recv_into(scratch)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not self._told:
            self._heard += scratch[:nbytes]
            if _is_shaken(self._heard) or len(self._heard) > _MOST:
                self._told = True
                refused = Refused(request=0, report=report_of(ProtocolError(_WORDS)))
                self._send(_frame(encode(refused), 0))
                self.finish()
        return nbytes > 0

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError:
            self.broken = True


def _is_shaken(heard: bytearray) -> bool:
    """Whether a greeting has come, and a command behind it."""
    size = len(_GREETING)
    return len(heard) > size + 1 and len(heard) >= size + 2 + heard[size + 1]


def _ready() -> bytes:
    properties = b"".join(
        bytes((len(name),)) + name + struct.pack(">I", len(value)) + value
        for name, value in ((b"Socket-Type", b"ROUTER"), (b"Identity", b""))
    )
    return _frame(b"\x05READY" + properties, _COMMAND)


def _frame(body: bytes, flags: int) -> bytes:
    if len(body) < 256:
        return bytes((flags, len(body))) + body
    return bytes((flags | _LONG,)) + struct.pack(">Q", len(body)) + body
