"""How a message lies on a connection: a header, the message in msgpack, the bytes of its payload.

    ┌────────────┬────────────────┬─────────┬───────────────────┬─────────┬──────────────┐
    │ length u32 │ descriptors u16│ lane u16│ payload bytes u64 │ message │ payload …    │
    └────────────┴────────────────┴─────────┴───────────────────┴─────────┴──────────────┘

The header is the same on every medium. Descriptors exist on unix sockets only, payloads on TCP
only.

A payload of more than `CHUNK` bytes is cut. The first frame has the message and the first chunk,
and names the size of the whole payload. The next ones have no message (length 0), name the size of
their own chunk, and belong to the message that is open in their *lane*. Chunks of different lanes
may alternate, so that a small answer does not wait for a large one; within a lane everything comes
in the order in which it was sent.
"""

from __future__ import annotations

import functools
import select
import struct
from typing import Any, Final

import msgspec

from penstock.errors import ProtocolError
from penstock.wire.messages import Message

HEADER: Final = struct.Struct("<IHHQ")
CHUNK: Final = 1 << 20
# Lanes: 0 is the channel's, the last one that of words about the connection itself (signs of life,
# last words), which wait for no payload; those between them are for calls.
CONTROL_LANE: Final = 0xFFFF
CALL_LANES: Final = CONTROL_LANE - 1
# What the first bytes of a connection between hosts are, in both directions. Whoever says
# something else is no peer of ours, and nothing of it is decoded.
PREAMBLE: Final = b"penstock"
# In milliseconds, what `poll` takes: 24 days.
LONGEST_POLL: Final = 2**31 - 1

# What the decoder raises for bytes that are no message. Depth is limited by recursion.
_NO_MESSAGE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Decoder = msgspec.msgpack.Decoder
encode: Final = msgspec.msgpack.Encoder().encode


def head(body: bytes, descriptors: int = 0, lane: int = 0, payload: int = 0) -> bytes:
    """The first frame of a message without its payload."""
    return HEADER.pack(len(body), descriptors, lane, payload) + body


def frame(message: Message, descriptors: int = 0) -> bytes:
    """The frame of a message that has no payload."""
    return head(encode(message), descriptors)


@functools.cache
def decoder_for(union: Any) -> Decoder[Any]:
    """A decoder for the messages of a union, made once."""
    return Decoder(union)


def decode(decoder: Decoder[Any], body: Any) -> Any:
    """The message in `body`; `ProtocolError` if there is none."""
    try:
        return decoder.decode(body)
    except _NO_MESSAGE as error:
        raise ProtocolError(f"a message makes no sense here: {error}") from None


def poll(descriptor: Any, events: int, timeout: float | None) -> int:
    """The events that have come, 0 after `timeout` seconds."""
    waiting = select.poll()
    waiting.register(descriptor, events)
    ready = waiting.poll(None if timeout is None else min(timeout * 1000, LONGEST_POLL))
    return ready[0][1] if ready else 0
