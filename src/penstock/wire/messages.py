"""Every message of the protocol, as a struct.

Ranks talk to a hub on their host over a unix socket, and to a server over TCP. Both use these
messages; `wire.conversation` has the table that says who may send which one, and when. A hub and
its workers use the first two unions below.

Large data is sent next to a message, never inside it. Over a unix socket that is descriptors: a
batch is in a slot of shared memory, and the message says where. Over TCP it is a payload: the
bytes of arrays, one after the other, at the offsets in the message (`ArrayLayout`).

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

Messages have no behaviour. `wire.framing` converts them to bytes and back.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from penstock.graph.handles import SegmentHandle
from penstock.graph.schema import ArrayKey, Schema
from penstock.graph.sharing import GraphHandle
from penstock.options import ChannelOptions, PoolOptions
from penstock.sampling.spec import CustomSpec, Feed, Spec

# Both ends of a connection must have the same number. 1 was the protocol over ZeroMQ, 2 had no
# stores, 3 no codecs: who does not know them would take stored numbers for those meant. 4 had no
# ids of users, which are arrays that an outline names.
PROTOCOL: Final = 5
# The most bytes of one message between hosts, without its payload. Decoded plain data takes many
# times its bytes, so large data belongs in arrays.
MOST_MESSAGE: Final = 1 << 20
# The same limit for the first message, which any client can send.
MOST_HELLO: Final = 8 << 10


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The base class of all messages; each is tagged with its own name."""


# --- parts of messages -----------------------------------------------------------------------


class ArrayLayout(msgspec.Struct, frozen=True, array_like=True):
    """One array, and its offset in a slot or payload.

    In a batch, `name` is that of the attribute ("n_id", "x"); in a heterogeneous one the type comes
    first ("paper/n_id", "author,writes,paper/edge_index").
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class BatchId(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a batch: `core.events.BatchKey` in messages."""

    channel: int
    epoch: int
    step: int


class SlotPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of a channel's mapping. `Arena` knows the offsets and gaps between them."""

    memory: SegmentHandle
    slots: int
    slot_bytes: int
    most_bytes: int  # the largest batch; one that does not fit a slot gets separate memory


# The key in a report's details for the error's `__cause__`, shortened.
CAUSE: Final = "cause_of"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """An error for the rank to raise. `kind` is the name of its class, as in `penstock.errors`."""

    kind: str
    message: str
    details: dict[str, Any] = {}


class AbsentArray(msgspec.Struct, frozen=True, array_like=True):
    """An array of the server's graph that is not sent: its key, dtype and shape only."""

    key: ArrayKey
    dtype: str
    shape: tuple[int, ...]


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """A graph without its arrays: enough to check arguments and to assemble batches."""

    schema: Schema
    arrays: tuple[AbsentArray, ...]
    version: str | None = None  # of the content, if it is known

    @property
    def is_one_of_several(self) -> bool:
        """Whether it is a part whose batches are made from all parts, wherever they are read."""
        part = self.schema.part
        return part is not None and part.of > 1 and not part.alone


class PartitionNote(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a graph a server holds. Ids are always those of the whole graph.

    `ranges` is [first, end) of node ids by type, if the partition is by ranges. `sizes` is the
    number of nodes of the whole graph by type, if the server holds a part, and `edge_dir` which
    edges of its nodes the part has. `version` is that of the whole graph; parts with equal `cut`
    fit together. `topology` says whether a part has the edges of its own nodes ("parts") or all
    ("whole"). `peers` are the addresses of the store's servers that this one knows of, its own
    included.
    """

    number: int = 0
    of: int = 1
    method: str = "whole"
    ranges: dict[str, tuple[int, int]] = {}
    sizes: dict[str, int] = {}
    edge_dir: Literal["in", "out"] | None = None
    version: str = ""
    cut: str = ""
    topology: Literal["parts", "whole"] = "whole"
    peers: tuple[str, ...] = ()


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What was moved to make batches of a graph in parts.

    Attributes:
        bytes_in: Bytes of arrays that came from parts.
        bytes_out: Bytes of arrays that were sent to parts.
        rows: Rows of attributes that came.
        hits: Rows that were here already, in the cache.
        calls: Questions that were asked.
        waited: Seconds that were spent waiting for answers.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    rows: int = 0
    hits: int = 0
    calls: int = 0
    waited: float = 0.0

    def since(self, before: Moved) -> Moved:
        """Return what was added since."""
        return Moved(
            **{name: getattr(self, name) - getattr(before, name) for name in self.__struct_fields__}
        )

    def plus(self, other: Moved) -> Moved:
        """Return the sum of both."""
        return Moved(
            **{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        )


class Heartbeat(Message, frozen=True, kw_only=True):
    """The sender is alive. With `reply`, the receiver must answer with a heartbeat at once.

    A worker adds more: `private` is memory that no other process shares, `cpu` the seconds used,
    `batches` how many it has made, `batch` the one it is making.
    """

    reply: bool = False
    private: int = 0
    cpu: float = 0.0
    batches: int = 0
    batch: BatchId | None = None


# --- hub to worker ---------------------------------------------------------------------------


class WorkerConfig(Message, frozen=True, kw_only=True):
    """The first message to a worker. Descriptors: those of the graph."""

    worker: int
    graph: GraphHandle
    search_path: tuple[str, ...] = ()  # for importing the user's modules
    pool: PoolOptions = PoolOptions()
    sampler: CustomSpec | None = None  # the user's sampler of this worker, loaded before Ready


class Supplement(Message, frozen=True, kw_only=True):
    """Derived arrays of the graph that were added later. Descriptors: those of its segments."""

    graph: GraphHandle


class OpenBackend(Message, frozen=True, kw_only=True):
    """A way of sampling; channels refer to it by number."""

    backend: int
    spec: Spec


class OpenChannel(Message, frozen=True, kw_only=True):
    """The inputs and the arena of a channel.

    Descriptors: the arena's, then that of the inputs if they are in a memfd.
    """

    channel: int
    backend: int
    feed: Feed
    arena: SlotPlan


class CloseChannel(Message, frozen=True, kw_only=True):
    """No more batches of this channel will be requested."""

    channel: int


class CloseBackend(Message, frozen=True, kw_only=True):
    """No more batches of this backend will be requested."""

    backend: int


class SampleBatch(Message, frozen=True, kw_only=True):
    """Sample batch `index` of the epoch's global list into `slot`."""

    batch: BatchId
    index: int
    slot: int
    attempt: int


class Retire(Message, frozen=True, kw_only=True):
    """Answer for the batches in hand, then exit."""


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
    """The worker is ready to sample."""

    pid: int


class Begun(Message, frozen=True, kw_only=True):
    """Sent before a batch is begun, so that no kind of death can hide the attempt."""

    batch: BatchId


class Done(Message, frozen=True, kw_only=True):
    """A batch is in its slot or, with `one_off`, in separate memory, whose descriptor is attached.

    `nbytes` is the end of the batch in the slot. `begins` is the batch that the worker is about to
    begin, if it has one; no separate Begun is sent for it. `moved` is what making it has moved.
    """

    batch: BatchId
    cost: float
    layouts: tuple[ArrayLayout, ...]
    nbytes: int
    facts: dict[str, Any] = {}  # values that are not arrays: counts per hop, batch size
    one_off: SegmentHandle | None = None
    begins: BatchId | None = None
    moved: Moved | None = None  # of a graph in parts
    notices: tuple[str, ...] = ()  # of a graph in parts: what people should know


class Failed(Message, frozen=True, kw_only=True):
    """A batch cannot be made; the worker is still alive.

    `classes` are the names of the exception's class and of those that it is derived from, `private`
    the bytes of memory that no other process shares.
    """

    batch: BatchId
    cost: float
    report: Report
    classes: tuple[str, ...] = ()
    private: int = 0


class OutOfMemory(Message, frozen=True, kw_only=True):
    """The last message of a worker that has reached its own memory limit."""

    batch: BatchId | None
    limit: int
    private: int


FromWorkerToHub: TypeAlias = Ready | Begun | Done | Failed | Heartbeat | OutOfMemory


# --- rank to hub, rank to server -------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """The first message of a connection. Answer: Welcome, or Refused and the end.

    `host` is from `wire.host`; two processes with equal ones can share memory. `name` is for logs
    and views. `tenant`, `graph` (one of several in a server) and `trace` are reserved.
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
    """The configuration of a hub, sent once, before Hello, by the rank that started it.

    Descriptors: the socket that listens at `address`, then those of the graph.
    """

    address: str
    graph: GraphHandle
    workers: int
    search_path: tuple[str, ...] = ()
    pool: PoolOptions = PoolOptions()


class CreateBackend(Message, frozen=True, kw_only=True):
    """Request for a backend; equal specs share one. Answer: BackendCreated or Refused.

    `supplement` has derived arrays that this spec needs and the hub lacks (out-edges). Descriptors:
    those of its segments.
    """

    request: int
    spec: Spec
    supplement: GraphHandle | None = None
    workers: int | None = None  # for a user's sampler: the size of its own worker group


class Register(Message, frozen=True, kw_only=True):
    """Request to open a channel. Answer: Registered or Refused.

    To a hub: a channel of `backend`, with the inputs of `feed`. Descriptors: that of the inputs, if
    they are in a memfd.

    To a server: `spec` says how to sample, and the feed has no handles. The inputs are the arrays
    of the payload ("ids", "columns/NAME", "tables/NAME"), the ids of a `split`, those in a `file`
    that the server may read, or, with none of these, all ids. `workers` is for a user's sampler:
    the size of its own worker group.

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
    """Start an epoch of a channel: the rank's steps from `first_step` on.

    `first` is the index in the global list where the plan begins (`EpochPlan.first`).
    """

    channel: int
    epoch: int
    first: int = 0
    first_step: int = 0


class ReturnSlot(Message, frozen=True, kw_only=True):
    """The rank no longer uses the batch in a slot."""

    channel: int
    slot: int


class Unregister(Message, frozen=True, kw_only=True):
    """Close a channel. No answer."""

    channel: int


class Reweigh(Message, frozen=True, kw_only=True):
    """Set a channel's weight, to which its share is proportional."""

    channel: int
    weight: float


class Resize(Message, frozen=True, kw_only=True):
    """Set the size of the pool. Answer: Resized, when its workers are ready, or Refused."""

    request: int
    workers: int


class AskWorkers(Message, frozen=True, kw_only=True):
    """Wait for workers. Answer: Resized once all wanted ones are ready, or Refused."""

    request: int
    backend: int | None = None


class AskStatistics(Message, frozen=True, kw_only=True):
    """Request for statistics. Answer: Statistics."""

    request: int


class AskGraph(Message, frozen=True, kw_only=True):
    """Request for the graph. Answer: GraphHere, with its descriptors."""

    request: int


class Stop(Message, frozen=True, kw_only=True):
    """End the hub; only the rank that started it may send this."""


class Call(Message, frozen=True, kw_only=True):
    """Call a method of `DistServer`. Answer: Answer or Refused.

    `arguments` are plain data; their arrays are in the payload, by the names in `arrays`.
    """

    request: int
    verb: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    arrays: tuple[ArrayLayout, ...] = ()


class Goodbye(Message, frozen=True, kw_only=True):
    """The rank leaves on purpose: the server need not keep anything for it."""


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

    The fields from `host` on are set by servers only. `unix` is the address of its hub, for a rank
    on the same `host`. If the server hears nothing from a rank for `lease` seconds, it closes what
    the rank has there.
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
    """The number of a backend, on this boot of the hub."""

    request: int
    backend: int


class Registered(Message, frozen=True, kw_only=True):
    """The number of a channel, on this boot.

    From a hub, with the channel's memory (`arena`). Descriptor: the arena's. From a server, with
    the number of batches that may be under way at once (`slots`) and the largest size of one.
    """

    request: int
    channel: int
    arena: SlotPlan | None = None
    slots: int = 0
    most_bytes: int = 0


class Resized(Message, frozen=True, kw_only=True):
    """This many workers are ready."""

    request: int
    workers: int


class Statistics(Message, frozen=True, kw_only=True):
    """The statistics of the scheduler, the pool and the hub, as plain data."""

    request: int
    numbers: dict[str, Any]


class GraphHere(Message, frozen=True, kw_only=True):
    """The graph's handle. Descriptors: those of its segments."""

    request: int
    graph: GraphHandle


class Refused(Message, frozen=True, kw_only=True):
    """The answer to a request that cannot be granted."""

    request: int
    report: Report


class BatchReady(Message, frozen=True, kw_only=True):
    """A batch is in a slot, in memory whose descriptor is attached, or in this message's payload.

    It holds its slot until the rank returns it, even if the batch is elsewhere: slots are credits.
    `index` is its place in the global list; if `substitute` is true, that of the batch which was
    really sampled. `retries` counts the attempts before that raised an error.
    """

    batch: BatchId
    index: int
    slot: int
    layouts: tuple[ArrayLayout, ...]
    nbytes: int
    facts: dict[str, Any] = {}
    cost: float = 0.0
    substitute: bool = False
    retries: int = 0
    one_off: SegmentHandle | None = None


class BatchLost(Message, frozen=True, kw_only=True):
    """A batch will not be delivered, and why. The next ones will."""

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
    """No worker can serve this channel; its epoch ends here. A new one may be started later."""

    channel: int
    epoch: int
    report: Report


class WorkerGone(Message, frozen=True, kw_only=True):
    """A worker died unexpectedly, or could not be started (then it has no `pid`), and why.

    Sent at once, and only to the rank that started the hub. `batch` is what it was making.
    """

    worker: int
    verdict: str
    pid: int | None = None
    batch: str | None = None


class Notice(Message, frozen=True, kw_only=True):
    """What a worker has noticed and people should know, such as the loss of a store's server.

    Sent only to the rank that started the hub, which logs it.
    """

    text: str


class Answer(Message, frozen=True, kw_only=True):
    """The result of a call: plain data, with its arrays in the payload."""

    request: int
    value: Any = None
    arrays: tuple[ArrayLayout, ...] = ()


class Leaving(Message, frozen=True, kw_only=True):
    """The server is ending: it opens no new channels; existing ones have `grace` seconds left."""

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
    | Notice
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
