"""The scheduler's input and output: all events it takes and all instructions it returns.

Both are small frozen records of plain values (see `Scheduler.handle`), so that a run can be
recorded, printed in an error and replayed. Times are seconds of any monotonic clock; they come with
the events, and nothing in this package reads a clock. Ids are increasing integers, never reused.

A *group* is a set of workers that serve the same channels. The built-in samplers share one group;
every user-written sampler has its own, so that it cannot harm the others.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import NamedTuple, TypeAlias

import msgspec

from penstock.errors import PenstockError
from penstock.options import ChannelOptions, fields_of


class Record(msgspec.Struct, frozen=True):
    """A small frozen record. Some are made for every batch: frozen dataclasses take much longer."""


class BatchKey(NamedTuple):
    """The identity of one batch: a step of a channel's epoch. The core does not know its seeds."""

    channel: int
    epoch: int
    step: int


class KillReason(Enum):
    """Why the scheduler has a worker killed, by what the worker reported or failed to report."""

    DEADLINE = "deadline"  # a batch took longer than the channel allows
    SILENCE = "silence"  # no heartbeat for too long
    START = "start"  # it did not become ready in time
    MEMORY = "memory"  # above the hard limit


class Leave(Enum):
    """Why a worker is asked to finish its batches and exit; none of these is a failure."""

    BATCHES = "batches"  # it has made as many batches as one worker may
    AGE = "age"
    MEMORY = "memory"  # above the soft limit
    SHRINK = "shrink"  # the group is to be smaller


# --- events ----------------------------------------------------------------------------------


class GroupSized(Record, frozen=True):
    """A group is to have this many workers; 0 keeps a group without workers.

    The first such event creates the group. A group that is not `kept` is removed some time after
    its last worker and its last channel have gone.
    """

    now: float
    group: str
    workers: int
    kept: bool = True


class ChannelRegistered(Record, frozen=True):
    """A rank opened a stream of batches. `channel` is larger than every id before it.

    `slots` is the number of its slots, whether or not the options set it.
    """

    now: float
    channel: int
    group: str
    slots: int
    options: ChannelOptions = msgspec.field(default_factory=ChannelOptions)
    estimate: float = 0.0  # seconds a batch is likely to cost; 0: unknown


class WeightChanged(Record, frozen=True):
    """A channel's share is proportional to this weight from now on."""

    now: float
    channel: int
    weight: float


class EpochStarted(Record, frozen=True):
    """A rank wants these steps of an epoch, in order. To resume, the range starts later."""

    now: float
    channel: int
    epoch: int
    steps: range


class SlotReturned(Record, frozen=True):
    """A rank no longer uses the batch in this slot."""

    now: float
    channel: int
    slot: int


class ChannelUnregistered(Record, frozen=True):
    """A rank left, or was lost."""

    now: float
    channel: int


class WorkerReady(Record, frozen=True):
    """A worker that was started can take batches."""

    now: float
    worker: int


class BatchBegun(Record, frozen=True):
    """A worker is about to begin one of its batches. From now on the attempt counts.

    It does not count if the worker is already being killed: this batch is not the cause then.
    """

    now: float
    worker: int
    batch: BatchKey


class BatchDone(Record, frozen=True):
    """A worker has written a batch; `cost` is what it took, in seconds."""

    now: float
    worker: int
    batch: BatchKey
    cost: float


class BatchFailed(Record, frozen=True):
    """A worker could not make a batch, and is still alive.

    `passing` means that the error is one of those that the channel wants tried again, because they
    may go away. Another attempt at any other error would end the same way.
    """

    now: float
    worker: int
    batch: BatchKey
    cost: float
    cause: str
    passing: bool = False


class WorkerBeat(Record, frozen=True):
    """A worker sent a heartbeat, with the bytes of its private memory."""

    now: float
    worker: int
    private_bytes: int = 0


class WorkerLost(Record, frozen=True):
    """A worker's process has ended and was reaped: it can no longer write to any memory."""

    now: float
    worker: int
    cause: str


class Tick(Record, frozen=True):
    """Time has passed. Sent only after all pending input has been handled."""

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


# --- instructions ----------------------------------------------------------------------------


class StartWorker(Record, frozen=True):
    """Start a process for this group, with this new id."""

    worker: int
    group: str


class RetireWorker(Record, frozen=True):
    """Ask a worker to exit once it has answered for every batch it holds."""

    worker: int
    reason: Leave


class KillWorker(Record, frozen=True):
    """Kill a worker now, after a dump of its stacks. `batch` is the one it had begun, if any."""

    worker: int
    fault: KillReason
    batch: BatchKey | None


class Assign(Record, frozen=True):
    """Give a batch to a worker, to be written into `slot`.

    `source` is the step whose seeds are sampled: the batch's own step, or that of its substitute.
    `attempt` counts from 1 for each source; an attempt that was never begun does not count.
    """

    worker: int
    batch: BatchKey
    slot: int
    source: int
    attempt: int


class Deliver(Record, frozen=True):
    """Tell the rank that a batch is in a slot. The rank owns the slot until it returns it.

    `retries` counts the attempts at its source that raised.
    """

    batch: BatchKey
    slot: int
    source: int
    worker: int
    retries: int = 0


class Fail(Record, frozen=True):
    """Tell the rank that it will not get a batch, and why. The batch's slot is free again.

    `attempts` counts those at the last source; 0 if that source had already failed as a substitute.
    """

    batch: BatchKey
    cause: str
    attempts: int


class FinishEpoch(Record, frozen=True):
    """Tell the rank that every batch of the epoch has ended; once per epoch, after the last one."""

    channel: int
    epoch: int
    delivered: int
    failed: int
    cancelled: int


class BreakChannel(Record, frozen=True):
    """Tell the rank that no worker can serve its channel, and why. Its epoch is cancelled."""

    channel: int
    epoch: int
    cause: str


class Forget(Record, frozen=True):
    """Release a channel's memory: no worker can access it any more."""

    channel: int


class TrimSlots(Record, frozen=True):
    """Give the pages of these free slots, unused for a while, back to the system."""

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
    """An event is not valid; the message names the field and the reason."""


class UnknownChannel(PenstockError, KeyError):
    """An event names a channel that was never registered."""

    def __init__(self, channel: int) -> None:
        super().__init__(channel)
        self.channel = channel

    def __str__(self) -> str:
        return f"channel {self.channel} was never registered"


def check_size(event: GroupSized) -> None:
    if event.workers < 0:
        raise InvalidEvent(f"group {event.group!r} cannot have {event.workers} workers")


def check_weight(weight: float) -> None:
    """Raise InvalidEvent if no channel can have this weight."""
    try:
        fields_of(ChannelOptions)["weight"].check(weight)
    except ValueError as error:
        raise InvalidEvent(str(error)) from None


def check_registration(event: ChannelRegistered, last: int) -> None:
    """Raise InvalidEvent if the registration is not valid; `last` is the newest channel's id."""
    if event.channel <= last:
        raise InvalidEvent(f"channel {event.channel} is not above {last}, the last one")
    try:
        event.options.check_fields()
    except ValueError as error:
        raise InvalidEvent(f"channel {event.channel}: {error}") from None
    wrong = {"slots": event.slots < 1, "estimate": not 0 <= event.estimate < inf}
    for name in (name for name, bad in wrong.items() if bad):
        raise InvalidEvent(f"channel {event.channel}: {name} cannot be {getattr(event, name)}")
