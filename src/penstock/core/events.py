"""What can happen to the scheduler, and what it answers: the whole of its vocabulary.

Events go in, instructions come out (`Scheduler.handle`). Both are small frozen records of plain
values, so that a run can be written down, printed in an error and played again. Time is seconds on
any clock that never goes back; it arrives in events, nobody here reads a clock. Ids are integers
that count up and are never used again.

A *group* is a set of workers that serve the same channels: the built-in samplers have one group
together, every user-written sampler has its own, so that it can hurt nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import NamedTuple, TypeAlias

from penstock.errors import PenstockError
from penstock.options import ChannelOptions, fields_of


class BatchKey(NamedTuple):
    """The name of one batch: a step of one channel's epoch. Where its seeds lie, others know."""

    channel: int
    epoch: int
    step: int


class KillReason(Enum):
    """Why a worker is killed by us: it told, or failed to tell, that it is past hope."""

    DEADLINE = "deadline"  # a batch took longer than it may
    SILENCE = "silence"  # no heartbeat for too long
    START = "start"  # started, and never became ready
    MEMORY = "memory"  # past its hard limit


class Leave(Enum):
    """Why a worker is asked to finish what it has and go; none of these is a failure."""

    BATCHES = "batches"  # has made as many as one worker may
    AGE = "age"
    MEMORY = "memory"  # past its soft limit
    SHRINK = "shrink"  # the group is to be smaller


# --- events: what has happened ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupSized:
    """A group is to have this many workers. The first one makes the group; 0 is a group that rests.

    One that is not `kept` is forgotten, some time after its last worker has left.
    """

    now: float
    group: str
    workers: int
    kept: bool = True


@dataclass(frozen=True, slots=True)
class ChannelRegistered:
    """A rank opened a stream of batches. `channel` is larger than every id before it.

    `slots` is how many it has, whether its options say it or not.
    """

    now: float
    channel: int
    group: str
    slots: int
    options: ChannelOptions = field(default_factory=ChannelOptions)
    estimate: float = 0.0  # seconds a batch is likely to cost; 0: nobody knows yet


@dataclass(frozen=True, slots=True)
class WeightChanged:
    """A channel's share is to be in proportion to this from now on."""

    now: float
    channel: int
    weight: float


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """A rank wants these steps of an epoch, in order. A later start of the range resumes one."""

    now: float
    channel: int
    epoch: int
    steps: range


@dataclass(frozen=True, slots=True)
class SlotReturned:
    """A rank is done with the batch that lies in this slot."""

    now: float
    channel: int
    slot: int


@dataclass(frozen=True, slots=True)
class ChannelUnregistered:
    """A rank left, or was lost."""

    now: float
    channel: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker that was started can take batches."""

    now: float
    worker: int


@dataclass(frozen=True, slots=True)
class BatchBegun:
    """A worker is about to begin one of the batches it has. From here on the attempt counts.

    Not that of a worker which is being killed: whatever ends it, this batch is not to blame.
    """

    now: float
    worker: int
    batch: BatchKey


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A worker has written a batch; `cost` is what it took, in seconds."""

    now: float
    worker: int
    batch: BatchKey
    cost: float


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """A worker could not make a batch, and lives. Trying again would end the same way."""

    now: float
    worker: int
    batch: BatchKey
    cost: float
    cause: str


@dataclass(frozen=True, slots=True)
class WorkerBeat:
    """A worker is alive and well; what it holds for itself, in bytes."""

    now: float
    worker: int
    private_bytes: int = 0


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker's process has ended and been reaped: nothing of it can write any more."""

    now: float
    worker: int
    cause: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing but the passing of time. Comes after all input that was waiting has been handled."""

    now: float


Event: TypeAlias = (
    GroupSized
    | ChannelRegistered
    | WeightChanged
    | EpochStarted
    | SlotReturned
    | ChannelUnregistered
    | WorkerReady
    | BatchBegun
    | BatchDone
    | BatchFailed
    | WorkerBeat
    | WorkerLost
    | Tick
)


# --- instructions: what to do about it -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a process for this group under this new id."""

    worker: int
    group: str


@dataclass(frozen=True, slots=True)
class RetireWorker:
    """Ask a worker to end once it has answered for every batch it holds."""

    worker: int
    reason: Leave


@dataclass(frozen=True, slots=True)
class KillWorker:
    """End a worker now (after a look at its stacks). `batch` is what it had begun, if anything."""

    worker: int
    fault: KillReason
    batch: BatchKey | None


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a batch to a worker, to be written into `slot`.

    `source` is the step whose seeds are sampled: the batch's own, unless it is a substitute.
    `attempt` counts from 1, for each source; one that was never begun does not count.
    """

    worker: int
    batch: BatchKey
    slot: int
    source: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Tell the rank that a batch lies in a slot, which is the rank's until it returns it."""

    batch: BatchKey
    slot: int
    source: int
    worker: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Tell the rank that it will not get a batch, and why. Its slot is free again.

    `attempts` are those at its last source; 0 if that was known to be bad from another's failure.
    """

    batch: BatchKey
    cause: str
    attempts: int


@dataclass(frozen=True, slots=True)
class FinishEpoch:
    """Tell the rank that every batch of the epoch has ended. Once per epoch, after the last."""

    channel: int
    epoch: int
    delivered: int
    failed: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class BreakChannel:
    """Tell the rank that nobody can serve its channel, and why. Its epoch ends here, cancelled."""

    channel: int
    epoch: int
    cause: str


@dataclass(frozen=True, slots=True)
class Forget:
    """No worker can touch this channel any more: its memory may go."""

    channel: int


@dataclass(frozen=True, slots=True)
class TrimSlots:
    """These free slots have not been used for a while: give their pages back to the system."""

    channel: int
    slots: tuple[int, ...]


Instruction: TypeAlias = (
    StartWorker
    | RetireWorker
    | KillWorker
    | Assign
    | Deliver
    | Fail
    | FinishEpoch
    | BreakChannel
    | Forget
    | TrimSlots
)


class InvalidEvent(ValueError):
    """An event that makes no sense; says which of its fields, and why."""


class UnknownChannel(PenstockError, KeyError):
    """Somebody named a channel that was never registered."""

    def __init__(self, channel: int) -> None:
        super().__init__(channel)
        self.channel = channel

    def __str__(self) -> str:
        return f"channel {self.channel} was never registered"


def check_size(event: GroupSized) -> None:
    if event.workers < 0:
        raise InvalidEvent(f"group {event.group!r} cannot have {event.workers} workers")


def check_weight(weight: float) -> None:
    """InvalidEvent for a weight that no channel can have."""
    try:
        fields_of(ChannelOptions)["weight"].check(weight)
    except ValueError as error:
        raise InvalidEvent(str(error)) from None


def check_registration(event: ChannelRegistered, last: int) -> None:
    """`last`: the id of the channel registered last."""
    if event.channel <= last:
        raise InvalidEvent(f"channel {event.channel} is not above {last}, the last one")
    try:
        event.options.check_fields()
    except ValueError as error:
        raise InvalidEvent(f"channel {event.channel}: {error}") from None
    wrong = {"slots": event.slots < 1, "estimate": not 0 <= event.estimate < inf}
    for name in (name for name, bad in wrong.items() if bad):
        raise InvalidEvent(f"channel {event.channel}: {name} cannot be {getattr(event, name)}")
