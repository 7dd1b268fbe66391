"""Every message of the protocol, as a struct.

Ranks speak to a hub on their host over a unix socket, and to a server over TCP. Both use these
messages; `wire.conversation` has the table that says who may send which one, and when. A hub and
its workers use the first two unions below.

What is large travels beside a message, never inside it. Over a unix socket that is descriptors: a
batch lies in a slot of shared memory, and the message says where. Over TCP it is a payload: the
bytes of arrays, one after the other, at the offsets that the message names (`ArrayLayout`).

    rank                                     server (TCP)
    Hello ──────────────────────────────▶         protocol, token
          ◀─────────────────────────── Welcome    boot, graph, partition, lease
    Register + payload ─────────────────▶         a spec and its inputs
          ◀──────────────────────── Registered    a channel, so many slots
    StartEpoch ─────────────────────────▶
          ◀────────────── BatchReady + payload    one batch; it uses up one slot
    ReturnSlot ─────────────────────────▶         the slot is free again
          ◀───────────────────────── EpochDone
    Call + payload ─────────────────────▶         a method of DistServer
          ◀────────────────── Answer + payload

Nothing here has behaviour. How bytes become messages is the business of `wire.framing`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from penstock.graph.handles import SegmentHandle
from penstock.graph.schema import ArrayKey, Schema
from penstock.graph.sharing import GraphHandle
from penstock.options import ChannelOptions, PoolOptions
from penstock.sampling.spec import CustomSpec, Feed, Spec

# Both sides of a connection must say the same number. 1 was ZeroMQ's, between hosts.
PROTOCOL: Final = 2
# Bytes of one message between hosts, without its payload. Plain data takes many times its bytes
# once it is decoded, so what is large belongs into arrays.
MOST_MESSAGE: Final = 1 << 20
# The same of the first message, which anybody can send.
MOST_HELLO: Final = 8 << 10


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The root of all messages; each carries its own name."""


# --- parts of messages -----------------------------------------------------------------------


class ArrayLayout(msgspec.Struct, frozen=True, array_like=True):
    """One array, and where in its slot or payload it begins.

    In a batch, `name` is the attribute's ("n_id", "x"); heterogeneous ones have their type in front
    ("paper/n_id", "author,writes,paper/edge_index").
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class BatchId(msgspec.Struct, frozen=True, array_like=True):
    """The name of a batch: `core.events.Batch` on the wire."""

    channel: int
    epoch: int
    step: int


class SlotPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a channel's mapping is cut; where a slot begins, and what lies between, `Arena` knows."""

    memory: SegmentHandle
    slots: int
    slot_bytes: int
    most_bytes: int  # a batch may need at most this much; beyond a slot, it gets memory of its own


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """An error on its way to the rank: `kind` is the name of a class in `penstock.errors`."""

    kind: str
    message: str
    details: dict[str, Any] = {}


class AbsentArray(msgspec.Struct, frozen=True, array_like=True):
    """An array of the server's graph, which stays there."""

    key: ArrayKey
    dtype: str
    shape: tuple[int, ...]


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """A graph without its arrays: enough to check arguments and to put batches together."""

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


class Heartbeat(Message, frozen=True, kw_only=True):
    """The sender is alive. With `reply` the receiver answers with one of its own, at once.

    A worker tells its hub more: `private` is memory that no other process shares, `cpu` seconds
    used, `batches` how many it has made, `batch` the one it is making.
    """

    reply: bool = False
    private: int = 0
    cpu: float = 0.0
    batches: int = 0
    batch: BatchId | None = None


# --- hub to worker ---------------------------------------------------------------------------


class WorkerConfig(Message, frozen=True, kw_only=True):
    """The first thing a worker hears. Descriptors: those of the graph."""

    worker: int
    graph: GraphHandle
    search_path: tuple[str, ...] = ()  # where the user's modules are found
    pool: PoolOptions = PoolOptions()
    sampler: CustomSpec | None = None  # the user's, that this worker is for: loaded before Ready


class Supplement(Message, frozen=True, kw_only=True):
    """More arrays of the graph, made since. Descriptors: those of its segments."""

    graph: GraphHandle


class OpenBackend(Message, frozen=True, kw_only=True):
    """How to sample; channels refer to it by number."""

    backend: int
    spec: Spec


class OpenChannel(Message, frozen=True, kw_only=True):
    """Where batches of a channel come from and go to.

    Descriptors: the arena's, then that of the inputs if they lie in a memfd.
    """

    channel: int
    backend: int
    feed: Feed
    arena: SlotPlan


class CloseChannel(Message, frozen=True, kw_only=True):
    """Nothing more of this channel will be asked for."""

    channel: int


class CloseBackend(Message, frozen=True, kw_only=True):
    """Nothing more of this backend will be asked for."""

    backend: int


class SampleBatch(Message, frozen=True, kw_only=True):
    """Make batch `index` of the epoch's global list, into `slot`."""

    batch: BatchId
    index: int
    slot: int
    attempt: int


class Retire(Message, frozen=True, kw_only=True):
    """Answer for what you have, and go."""


FromHubToWorker: TypeAlias = (
    WorkerConfig
    | Supplement
    | OpenBackend
    | OpenChannel
    | CloseChannel
    | CloseBackend
    | SampleBatch
    | Retire
)


# --- worker to hub ---------------------------------------------------------------------------


class Ready(Message, frozen=True, kw_only=True):
    """The worker has all it needs."""

    pid: int


class Begun(Message, frozen=True, kw_only=True):
    """Said before a batch is begun, so that no kind of death can hide the attempt."""

    batch: BatchId


class Done(Message, frozen=True, kw_only=True):
    """A batch lies in its slot; or, `one_off`, in memory of its own, whose descriptor comes along.

    `nbytes` is how far into the slot it reaches. `begins` is the batch that the worker is about to
    begin, if it has one in hand: then no Begun comes for that.
    """

    batch: BatchId
    cost: float
    layouts: tuple[ArrayLayout, ...]
    nbytes: int
    facts: dict[str, Any] = {}  # what is no array: numbers per hop, batch size
    one_off: SegmentHandle | None = None
    begins: BatchId | None = None


class Failed(Message, frozen=True, kw_only=True):
    """A batch cannot be made; the worker lives."""

    batch: BatchId
    cost: float
    report: Report


class OutOfMemory(Message, frozen=True, kw_only=True):
    """Last words of a worker that met its own memory limit."""

    batch: BatchId | None
    limit: int
    private: int


FromWorkerToHub: TypeAlias = Ready | Begun | Done | Failed | Heartbeat | OutOfMemory


# --- rank to hub, rank to server -------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """The first message of a connection. Answer: Welcome, or Refused and the end.

    `host` is that of `wire.host`, by which two processes know that they can share memory. `name` is
    for people. `tenant`, `graph` (of several in one server) and `trace` are reserved.
    """

    protocol: int
    pid: int
    host: str = ""
    name: str = ""
    token: str | None = None
    tenant: str = ""
    graph: str = ""
    trace: str = ""


class HubConfig(Message, frozen=True, kw_only=True):
    """Said once, before Hello, by the rank that started the hub.

    Descriptors: the socket that listens at `address`, then the graph's.
    """

    address: str
    graph: GraphHandle
    workers: int
    search_path: tuple[str, ...] = ()
    pool: PoolOptions = PoolOptions()


class CreateBackend(Message, frozen=True, kw_only=True):
    """Asks for a way of sampling; equal specs share one. Answer: BackendCreated or Refused.

    `supplement` has arrays of the graph that this spec needs and the hub has not (out-edges);
    descriptors: those of its segments.
    """

    request: int
    spec: Spec
    supplement: GraphHandle | None = None
    workers: int | None = None  # for a user's sampler: how many of its own


class Register(Message, frozen=True, kw_only=True):
    """Opens a channel. Answer: Registered or Refused.

    To a hub: a channel of `backend`, with the inputs of `feed`. Descriptors: that of the inputs, if
    they lie in a memfd.

    To a server: `spec` says how to sample, and the feed has no handles. The inputs are the arrays
    of the payload ("ids", "columns/NAME", "tables/NAME"), the ids of a `split`, those in a `file`
    that the server may read, or, with none of them, all there are. `workers` is for a user's
    sampler: how many of its own.

    `tenant`, `graph` and `trace` are reserved, as in `Hello`.
    """

    request: int
    feed: Feed
    backend: int = 0
    spec: Spec | None = None
    split: str | None = None
    file: str | None = None
    arrays: tuple[ArrayLayout, ...] = ()
    workers: int | None = None
    options: ChannelOptions = ChannelOptions()
    tenant: str = ""
    graph: str = ""
    trace: str = ""


class StartEpoch(Message, frozen=True, kw_only=True):
    """Wants an epoch of a channel: the share's steps from `first_step` on.

    `first` is where the plan begins in the global list (`EpochPlan.first`).
    """

    channel: int
    epoch: int
    first: int = 0
    first_step: int = 0


class ReturnSlot(Message, frozen=True, kw_only=True):
    """The rank is done with the batch in a slot."""

    channel: int
    slot: int


class Unregister(Message, frozen=True, kw_only=True):
    """The rank wants nothing more of a channel. No answer."""

    channel: int


class Reweigh(Message, frozen=True, kw_only=True):
    """A channel's share is to be in proportion to this."""

    channel: int
    weight: float


class Resize(Message, frozen=True, kw_only=True):
    """The pool is to have so many workers. Answer: Resized, when they are ready, or Refused."""

    request: int
    workers: int


class AskWorkers(Message, frozen=True, kw_only=True):
    """Answer: Resized once all workers wanted are ready, or Refused with the cause."""

    request: int
    backend: int | None = None


class AskStatistics(Message, frozen=True, kw_only=True):
    """Answer: Statistics."""

    request: int


class AskGraph(Message, frozen=True, kw_only=True):
    """Answer: GraphHere, with its descriptors."""

    request: int


class Stop(Message, frozen=True, kw_only=True):
    """Ends the hub; only the rank that started it may say so."""


class Call(Message, frozen=True, kw_only=True):
    """Calls a method of `DistServer`. Answer: Answer or Refused.

    `arguments` are plain data; arrays among them are in the payload, by the names in `arrays`.
    """

    request: int
    verb: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    arrays: tuple[ArrayLayout, ...] = ()


class Goodbye(Message, frozen=True, kw_only=True):
    """The rank leaves on purpose: the server need not keep anything of it."""


FromRankToHub: TypeAlias = (
    HubConfig
    | Hello
    | CreateBackend
    | Register
    | StartEpoch
    | ReturnSlot
    | Unregister
    | Reweigh
    | Resize
    | AskWorkers
    | AskStatistics
    | AskGraph
    | Stop
)

FromRankToServer: TypeAlias = (
    Hello | Register | Call | StartEpoch | ReturnSlot | Unregister | Reweigh | Heartbeat | Goodbye
)


# --- hub to rank, server to rank -------------------------------------------------------------


class Welcome(Message, frozen=True, kw_only=True):
    """The answer to Hello. `boot` differs after every start of a hub or server.

    The rest is a server's. `unix` is the address of its hub, for a rank on the same `host`. A rank
    that the server has not heard for `lease` seconds loses what it has there.
    """

    protocol: int
    boot: str
    pid: int
    address: str
    host: str = ""
    outline: Outline | None = None
    partition: PartitionNote = PartitionNote()
    unix: str | None = None
    lease: float = 5.0


class BackendCreated(Message, frozen=True, kw_only=True):
    """A backend's number, on this boot of the hub."""

    request: int
    backend: int


class Registered(Message, frozen=True, kw_only=True):
    """A channel's number on this boot.

    From a hub, with its memory (`arena`). Descriptor: the arena's. From a server, with the number
    of batches that may be on their way at once (`slots`) and the largest size of one.
    """

    request: int
    channel: int
    arena: SlotPlan | None = None
    slots: int = 0
    most_bytes: int = 0


class Resized(Message, frozen=True, kw_only=True):
    """So many workers are ready."""

    request: int
    workers: int


class Statistics(Message, frozen=True, kw_only=True):
    """The scheduler's, the pool's and the hub's numbers, as plain data."""

    request: int
    numbers: dict[str, Any]


class GraphHere(Message, frozen=True, kw_only=True):
    """The graph. Descriptors: those of its segments."""

    request: int
    graph: GraphHandle


class Refused(Message, frozen=True, kw_only=True):
    """The answer to a request that cannot be granted."""

    request: int
    report: Report


class BatchReady(Message, frozen=True, kw_only=True):
    """A batch lies in a slot, came along by descriptor, or is the payload of this message.

    It holds its slot until the rank returns that, also where it lies elsewhere: slots are credits.
    `index` is its place in the global list; of a substitute, that of the batch really sampled, and
    `substitute` is true.
    """

    batch: BatchId
    index: int
    slot: int
    layouts: tuple[ArrayLayout, ...]
    nbytes: int
    facts: dict[str, Any] = {}
    cost: float = 0.0
    substitute: bool = False
    one_off: SegmentHandle | None = None


class BatchLost(Message, frozen=True, kw_only=True):
    """A batch will not come, and why. The next ones will."""

    batch: BatchId
    index: int
    report: Report


class EpochDone(Message, frozen=True, kw_only=True):
    """Every batch of the epoch has ended, and all that were delivered can be read."""

    channel: int
    epoch: int
    delivered: int
    failed: int
    cancelled: int


class ChannelBroken(Message, frozen=True, kw_only=True):
    """Nobody can serve this channel; its epoch ends here. A new one may be tried later."""

    channel: int
    epoch: int
    report: Report


class WorkerGone(Message, frozen=True, kw_only=True):
    """A worker died unasked, or could not even be started (then it has no `pid`), and why.

    Said at once, to the rank that started the hub and to no other. `batch` is what it was making.
    """

    worker: int
    verdict: str
    pid: int | None = None
    batch: str | None = None


class Answer(Message, frozen=True, kw_only=True):
    """What a call returned: plain data; arrays among it are in the payload."""

    request: int
    value: Any = None
    arrays: tuple[ArrayLayout, ...] = ()


class Leaving(Message, frozen=True, kw_only=True):
    """The server ends: it opens no new channels; those there are have `grace` seconds."""

    reason: str
    grace: float


FromHubToRank: TypeAlias = (
    Welcome
    | BackendCreated
    | Registered
    | Resized
    | Statistics
    | GraphHere
    | Refused
    | BatchReady
    | BatchLost
    | EpochDone
    | ChannelBroken
    | WorkerGone
)

FromServerToRank: TypeAlias = (
    Welcome
    | Registered
    | BatchReady
    | BatchLost
    | EpochDone
    | ChannelBroken
    | Answer
    | Refused
    | Heartbeat
    | Leaving
)
