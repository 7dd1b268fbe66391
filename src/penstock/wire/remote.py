"""Every message between a rank and a server, as a struct; a hub's own words among them.

A ZeroMQ message has one frame or two: the struct in msgpack, and, for `Piece` and `Part`, bytes. So
arrays travel in pieces of some megabytes each, which are sent from where they lie. A rank has one
connection (one DEALER socket) for each channel, and one for questions; the server has one ROUTER.

    rank                                   server
    Knock ──────────────────────────────▶        protocol, token
          ◀────────────────────────── Greeting   boot, graph, partition, the unix door
    Enroll, Part, Part … ───────────────▶        a spec, its inputs, terms
          ◀───────────────────────────── Taken   so many bytes of it: as many more may come
          ◀────────────────────────── Enrolled   a channel, so many slots
    StartEpoch ─────────────────────────▶
          ◀───── BatchReady, Piece, Piece …      one batch; a slot is a credit
    ReturnSlot ─────────────────────────▶        one credit more
          ◀────────────────────────── EpochDone
    Call, Part … ───────────────────────▶        a question about the data
          ◀──────────────────── Answer, Part …

Which word may follow which is a table in `wire.conversation`. Nothing here has behaviour.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from penstock.graph.schema import ArrayKey, Schema
from penstock.sampling.spec import Spec
from penstock.wire.messages import (
    BatchId,
    BatchLost,
    BatchReady,
    ChannelBroken,
    EpochDone,
    Message,
    Refused,
    Register,
    ReturnSlot,
    Reweigh,
    StartEpoch,
    Unregister,
)

# Both sides of a connection must say the same number.
REMOTE_PROTOCOL: Final = 1
# Bytes of a part: large ones are paid for in page faults at the other end, small ones in messages.
PIECE: Final = 4 << 20
# Bytes of a message's own fields, which become many times that when they are read: what is large
# belongs into arrays.
HEADER: Final = 1 << 20
# Bytes of requests and their parts that a rank may have on their way before the server says that it
# has taken some. Nothing else holds a rank back: what the server's socket has received is in its
# memory.
UNTAKEN: Final = 16 << 20


# --- parts of messages -----------------------------------------------------------------------


class ArrayInfo(msgspec.Struct, frozen=True, array_like=True):
    """One array among several that travel, and where in their bytes it begins."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class AbsentArray(msgspec.Struct, frozen=True, array_like=True):
    """An array of the server's graph, which stays there."""

    key: ArrayKey
    dtype: str
    shape: tuple[int, ...]


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """All of a graph but its numbers: enough to check arguments by, and to put batches together."""

    schema: Schema
    arrays: tuple[AbsentArray, ...]
    version: str | None = None  # of the content, where it is known


class PartitionNote(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a graph a server holds. `ranges`: [first, end) of node ids by type, where the
    partition is one of ranges. `sizes`: nodes of the whole graph by type, of a part; ids are always
    those of the whole. `peers`: addresses of the servers of all parts, in order."""

    number: int = 0
    of: int = 1
    method: str = "whole"
    ranges: dict[str, tuple[int, int]] = {}
    sizes: dict[str, int] = {}
    peers: tuple[str, ...] = ()


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """Arrays that follow in `Part`s: `nbytes` bytes in all."""

    arrays: tuple[ArrayInfo, ...] = ()
    nbytes: int = 0


# --- rank to server --------------------------------------------------------------------------


class Knock(Message, frozen=True, kw_only=True):
    """The first word of a connection. Answer: Greeting, or Refused."""

    protocol: int
    pid: int
    host: str  # of the machine's boot, so that neighbours are recognised
    name: str = ""  # for people: who is this
    token: str | None = None


class Enroll(Message, frozen=True, kw_only=True):
    """Opens the channel of this connection. Answer: Enrolled or Refused.

    The feed in `register` has no handles. Its inputs are those of `bulk` ("ids", "columns/NAME",
    "tables/NAME"), the ids of a `split`, those in a `file` that the server may read, or, with none
    of them, all there are.
    """

    request: int
    spec: Spec
    register: Register
    split: str | None = None
    file: str | None = None
    bulk: Bulk = Bulk()
    workers: int | None = None


class Part(Message, frozen=True, kw_only=True):
    """Some bytes of a `Bulk`, in order; they are the second frame."""

    request: int
    offset: int


class Call(Message, frozen=True, kw_only=True):
    """A question about the data, or for a backend: a verb of `DistServer`. Answer: Answer, Refused.

    `arguments` are plain data; arrays among them are in `bulk`, by the argument's name.
    """

    request: int
    verb: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    bulk: Bulk = Bulk()


class Goodbye(Message, frozen=True, kw_only=True):
    """The rank leaves on purpose: nothing of it need be kept."""


FromRankToServer: TypeAlias = (
    Knock | Enroll | Part | Call | StartEpoch | ReturnSlot | Unregister | Reweigh | Goodbye
)


# --- server to rank --------------------------------------------------------------------------


class Greeting(Message, frozen=True, kw_only=True):
    """The answer to Knock.

    `unix` is the hub's own address: a rank on the same `host` goes there. `lease` is after how many
    seconds without a sign of life the server lets go of what a rank has.
    """

    protocol: int
    boot: str
    pid: int
    host: str
    address: str
    outline: Outline
    partition: PartitionNote = PartitionNote()
    unix: str | None = None
    lease: float = 5.0


class Enrolled(Message, frozen=True, kw_only=True):
    """A channel's number on this boot, and its credits."""

    request: int
    channel: int
    slots: int
    most_bytes: int  # no batch is larger


class Piece(Message, frozen=True, kw_only=True):
    """Some bytes of a batch, in order, after its BatchReady; they are the second frame."""

    batch: BatchId
    offset: int


class Answer(Message, frozen=True, kw_only=True):
    """What a call came to: plain data, and arrays by name in the `Part`s that follow."""

    request: int
    value: Any = None
    bulk: Bulk = Bulk()


class Taken(Message, frozen=True, kw_only=True):
    """So many bytes of the rank's requests and parts were taken in, of all since it knocked: as
    many more may be sent. Said once a quarter of what may be on its way has come."""

    nbytes: int


class Pulse(Message, frozen=True, kw_only=True):
    """Nothing but a sign of life. Where it cannot be sent, the rank has gone."""


class Leaving(Message, frozen=True, kw_only=True):
    """The server ends: no new channels; those there are have `grace` seconds."""

    reason: str
    grace: float


FromServerToRank: TypeAlias = (
    Greeting
    | Enrolled
    | BatchReady
    | Piece
    | BatchLost
    | EpochDone
    | ChannelBroken
    | Answer
    | Part
    | Refused
    | Taken
    | Pulse
    | Leaving
)
