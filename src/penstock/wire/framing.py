"""The format of frames: a header, the message in msgpack, and the bytes of its payload.

    ┌────────────┬────────────────┬─────────┬───────────────────┬─────────┬──────────────┐
    │ length u32 │ descriptors u16│ lane u16│ payload bytes u64 │ message │ payload …    │
    └────────────┴────────────────┴─────────┴───────────────────┴─────────┴──────────────┘

The header is the same on every medium. Descriptors exist on unix sockets only, payloads on TCP
only.

A payload of more than `CHUNK` bytes is divided. The first frame has the message, the size of the
whole payload and the first chunk. The next frames have no message (length 0) but the size of their
own chunk, and belong to the message that is open in their *lane*. Chunks of different lanes may
alternate, so that a small answer does not wait for a large one; within a lane, order is kept.
"""

from __future__ import annotations

import functools
import select
import struct
from typing import Any, Final

import msgspec

from penstock.core.known_types import known
from penstock.errors import ProtocolError
from penstock.wire.messages import Message

HEADER: Final = struct.Struct("<IHHQ")
CHUNK: Final = 1 << 20
# Lanes: 0 is for the channel. The last one is for messages about the connection itself (heartbeats,
# its end), which wait for no payload. Those between them are for calls.
CONTROL_LANE: Final = 0xFFFF
CALL_LANES: Final = CONTROL_LANE - 1
# The first bytes of a connection between hosts, in both directions. If a peer sends anything else,
# nothing from it is decoded.
PREAMBLE: Final = b"penstock"
# The longest timeout of `poll`, in milliseconds: 24 days.
LONGEST_POLL: Final = 2**31 - 1

# What the decoder raises for bytes that are not a message. The recursion limit bounds the depth.
_NO_MESSAGE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Decoder = msgspec.msgpack.Decoder
encode: Final = msgspec.msgpack.Encoder().encode


def head(body: bytes, descriptors: int = 0, lane: int = 0, payload: int = 0) -> bytes:
    """Return the first frame of a message, without its payload."""
    return HEADER.pack(len(body), descriptors, lane, payload) + body


def frame(message: Message, descriptors: int = 0) -> bytes:
    """Return the frame of a message that has no payload."""
    return head(encode(message), descriptors)


@functools.cache
def decoder_for(union: Any) -> Decoder[Any]:
    """Return the decoder for the messages of a union, which is made once."""
    return Decoder(known(union))


def decode(decoder: Decoder[Any], body: Any) -> Any:
    """Return the message in `body`; raise `ProtocolError` if it is not valid."""
    try:
        return decoder.decode(body)
    except _NO_MESSAGE as error:
        raise ProtocolError(f"a message makes no sense here: {error}") from None


def poll(descriptor: Any, events: int, timeout: float | None) -> int:
    """Wait for events on a descriptor, and return them; 0 after `timeout` seconds."""
    waiting = select.poll()
    waiting.register(descriptor, events)
    ready = waiting.poll(None if timeout is None else min(timeout * 1000, LONGEST_POLL))
    return ready[0][1] if ready else 0
