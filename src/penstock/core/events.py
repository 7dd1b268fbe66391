"""What can happen to the scheduler, and what it answers: the whole of its vocabulary.

Events go in, instructions come out (`Scheduler.handle`). Both are small frozen records of plain
values, so that a run can be written down, printed in an error and played again. Time is seconds on
any clock that never goes back; it arrives in events, nobody here reads a clock. Ids are integers
that count up and are never used again.

A *crew* is a set of workers that serve the same channels: the built-in samplers have one crew
together, every user-written sampler has its own, so that it can hurt nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias


class Batch(NamedTuple):
    """The name of one batch: a step of one channel's epoch. Where its seeds lie, others know."""

    channel: int
    epoch: int
    step: int


class OnError(Enum):
    """What a rank gets in the place of a batch that cannot be made (CONTRACT 19)."""

    RAISE = "raise"
    SUBSTITUTE = "substitute"


class Fault(Enum):
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
    SHRINK = "shrink"  # the crew is to be smaller


# --- events: what has happened ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrewSized:
    """A crew is to have this many workers. The first one makes the crew; 0 is a crew that rests.

    One that is not `kept` is forgotten, some time after its last worker has left.
    """

    now: float
    crew: str
    workers: int
    kept: bool = True


@dataclass(frozen=True, slots=True)
class ChannelRegistered:
    """A rank opened a stream of batches. `channel` is larger than every id before it."""

    now: float
    channel: int
    crew: str
    slots: int
    weight: float = 1.0
    estimate: float = 0.0  # seconds a batch is likely to cost; 0: nobody knows yet
    deadline: float | None = None  # seconds one attempt may take
    max_attempts: int = 3
    on_error: OnError = OnError.RAISE
    max_substitutes: int = 0  # per epoch


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
    batch: Batch


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A worker has written a batch; `cost` is what it took, in seconds."""

    now: float
    worker: int
    batch: Batch
    cost: float


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """A worker could not make a batch, and lives. Trying again would end the same way."""

    now: float
    worker: int
    batch: Batch
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
    CrewSized
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
    """Start a process for this crew under this new id."""

    worker: int
    crew: str


@dataclass(frozen=True, slots=True)
class RetireWorker:
    """Ask a worker to end once it has answered for every batch it holds."""

    worker: int
    reason: Leave


@dataclass(frozen=True, slots=True)
class KillWorker:
    """End a worker now (after a look at its stacks). `batch` is what it had begun, if anything."""

    worker: int
    fault: Fault
    batch: Batch | None


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a batch to a worker, to be written into `slot`.

    `source` is the step whose seeds are sampled: the batch's own, unless it is a substitute.
    `attempt` counts from 1, for each source; one that was never begun does not count.
    """

    worker: int
    batch: Batch
    slot: int
    source: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Tell the rank that a batch lies in a slot, which is the rank's until it returns it."""

    batch: Batch
    slot: int
    source: int
    worker: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Tell the rank that it will not get a batch, and why. Its slot is free again.

    `attempts` are those at its last source; 0 if that was known to be bad from another's failure.
    """

    batch: Batch
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
