"""What those are told who speak as versions before this one did, over ZeroMQ.

They take part in a handshake (ZMTP 3.0) before anything is said. Ours is the same for everybody:
all of it is sent at once, with a message behind it that their side raises as an error. Whoever
encrypted (CURVE) cannot be told.
"""

from __future__ import annotations

import struct
from typing import Final

from penstock.errors import ProtocolError
from penstock.hub.reports import report_of
from penstock.wire.framing import encode
from penstock.wire.messages import PROTOCOL, Refused

# The first byte of whoever speaks it.
FIRST: Final = 0xFF
_GREETING: Final = (
    b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\x01" + bytes(31)
)
_COMMAND, _LONG = 4, 2
_WORDS: Final = (
    f"you speak protocol 1, over ZeroMQ; this server speaks {PROTOCOL}, over TCP and TLS: install "
    "the same version of penstock on both sides"
)


def farewell() -> bytes:
    """All that is sent."""
    properties = b"".join(
        bytes((len(name),)) + name + struct.pack(">I", len(value)) + value
        for name, value in ((b"Socket-Type", b"ROUTER"), (b"Identity", b""))
    )
    refused = encode(Refused(request=0, report=report_of(ProtocolError(_WORDS))))
    return _GREETING + _frame(b"\x05READY" + properties, _COMMAND) + _frame(refused, 0)


def _frame(body: bytes, flags: int) -> bytes:
    if len(body) < 256:
        return bytes((flags, len(body))) + body
    return bytes((flags | _LONG,)) + struct.pack(">Q", len(body)) + body
