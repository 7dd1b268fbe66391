"""Tells clients of earlier versions, which speak ZeroMQ, that they are too old.

Such clients exchange a handshake (ZMTP 3.0) first: each side sends a greeting of 64 bytes, then a
command. Ours are constant. When theirs have come, we send a message that the client raises as an
error. A client that uses encryption (CURVE) cannot be told.
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

# The first byte that such a client sends.
FIRST: Final = 0xFF
_GREETING: Final = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_COMMAND, _LONG = 4, 2
# More bytes than their handshake has; after that many the client is told without waiting for the
# end of its handshake.
_MOST: Final = 1024
_WORDS: Final = (
    f"you speak protocol 1, over ZeroMQ; this server speaks {PROTOCOL}, over TCP and TLS: install "
    "the same version of penstock on both sides"
)


class OldClient:
    """A connection of such a client, from its first byte to the end; a `connections.End`."""

    pending = False

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._heard = bytearray()
        self._told = False
        self.broken = False
        self._send(_GREETING + _ready())

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def flush_some(self, nbytes: int) -> None:
        """Do nothing: nothing is queued."""

    def finish(self) -> None:
        """Shut down the sending side, but not before the client was told."""
        if self._told:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    def discard(self, scratch: memoryview) -> bool:
        """Read the client's handshake, then tell it; return False once it has closed."""
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
        """Close the connection."""
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError:
            self.broken = True


def _is_shaken(heard: bytearray) -> bool:
    """Return whether a greeting and a command have come."""
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
