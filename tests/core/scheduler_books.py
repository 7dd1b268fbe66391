"""What the ledger writes down: one record per batch in the making, worker, group and channel.

They hold facts that anybody could collect who sees the events and instructions go by. They must
not know anything of how the scheduler keeps its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from penstock.core.events import BatchKey, ChannelRegistered, KillReason, Leave
from penstock.options import OnError

NEVER = -math.inf


class Phase(Enum):
    """Where a channel is in its life."""

    IDLE = "idle"
    ACTIVE = "active"
    LEAVING = "leaving"
    GONE = "gone"


class Holder(Enum):
    """Whose a slot is."""

    NOBODY = "free"
    BATCH = "reserved"
    RANK = "with the rank"


@dataclass
class Flight:
    """A batch between its first hand-out and its end; its slot stays with it."""

    batch: BatchKey
    slot: int
    source: int
    charged: int = 0  # attempts that count, of this source
    excused: int = 0
    errors: int = 0  # passing ones, of this source, after which it was tried again
    until: float | None = None  # it is not to be handed out before a tick at this time
    avoids: int | None = None  # the worker it raised in
    begun: float | None = None  # at the worker that has it now
    too_late: bool = False  # that worker was to be killed before it began
    worker: int | None = None  # None: it waits to be handed out again
    waits_since: int = 0  # which event made it wait


@dataclass
class Slot:
    """One place for a batch in a channel's memory."""

    holder: Holder = Holder.NOBODY
    freed: tuple[int, float] = (-1, NEVER)  # by which event, and when
    used: bool = False
    trimmed: bool = False


@dataclass
class WorkerBook:
    """A worker from StartWorker to WorkerLost."""

    id: int
    group: str
    started: float
    heard: float
    ready: float | None = None
    held: list[Flight] = field(default_factory=list)
    made: int = 0
    answered: int = 0  # made or failed
    bytes: int = 0  # by its last beat
    leave: Leave | None = None
    fault: KillReason | None = None

    @property
    def stays(self) -> bool:
        """Whether its group can count on it: neither asked to leave nor killed."""
        return self.leave is None and self.fault is None

    @property
    def serves(self) -> bool:
        """Whether it may be given batches at all."""
        return self.ready is not None and self.stays

    @property
    def begun(self) -> Flight | None:
        """The batch it is at."""
        return next((flight for flight in self.held if flight.begun is not None), None)


@dataclass
class CrewBook:
    """A set of workers, and how it has fared."""

    name: str
    wanted: int = 0
    kept: bool = True
    workers: dict[int, WorkerBook] = field(default_factory=dict)
    done: int = 0
    losses: int = 0  # of workers, since a batch was completed
    losers: set[BatchKey] = field(default_factory=set)  # begun batches they held
    failed_starts: int = 0  # in a row
    last_failed_start: float = NEVER

    def serving(self) -> list[WorkerBook]:
        """The workers that may be given batches."""
        return [worker for worker in self.workers.values() if worker.serves]

    @property
    def strength(self) -> int:
        """How many workers it can count on, ready or not."""
        return sum(worker.stays for worker in self.workers.values())

    @property
    def dying(self) -> int:
        """How many were killed and are still to be reported lost."""
        return sum(worker.fault is not None for worker in self.workers.values())

    @property
    def failing(self) -> bool:
        """Whether it fails as a whole, so that no single batch is to blame."""
        return self.losses >= max(2, self.wanted) and len(self.losers) >= 2


@dataclass
class ChannelBook:
    """A channel and the epoch it is in."""

    id: int
    entry: ChannelRegistered
    slots: list[Slot]
    weight: float
    phase: Phase = Phase.IDLE
    epoch: int = -1
    steps: range = range(0)
    handed: int = 0  # how many steps were handed out at least once
    ended: dict[int, str] = field(default_factory=dict)  # step -> how
    flights: dict[BatchKey, Flight] = field(default_factory=dict)  # those of dead epochs too
    queued: int | None = None  # since when it waits for its turn, as the ledger counts
    front: BatchKey | None = None  # lost by the last worker that died at it: next to be handed out
    quarantined: set[int] = field(default_factory=set)  # sources, of this epoch
    substitutes: int = 0
    errors_retried: int = 0
    announced: set[int] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)
    strays: int = 0
    service: float = 0.0  # seconds workers spent on it, to an end or not
    totals: dict[str, int] = field(default_factory=dict)  # how -> steps of all its epochs

    def waiting(self) -> list[Flight]:
        """What is to be handed out again."""
        return [flight for flight in self.flights.values() if flight.worker is None]

    def due(self) -> list[Flight]:
        """What is to be handed out again now."""
        return [flight for flight in self.waiting() if flight.until is None]

    def alive(self, batch: BatchKey) -> bool:
        """Whether the rank still waits for this batch."""
        return self.phase is Phase.ACTIVE and batch.epoch == self.epoch

    @property
    def has_free_slot(self) -> bool:
        """Whether it has credit for one more."""
        return any(slot.holder is Holder.NOBODY for slot in self.slots)

    @property
    def can_give(self) -> bool:
        """Whether it has a batch that could be handed out now."""
        if self.phase is not Phase.ACTIVE:
            return False
        fresh = self.handed < len(self.steps) and self.has_free_slot
        return fresh or bool(self.due())

    def count(self, how: str) -> int:
        """How many steps of this epoch ended so."""
        return sum(end == how for end in self.ended.values())

    def substitute(self, step: int) -> int | None:
        """What may stand in for this step: the next good one, round and round, up to a limit."""
        options = self.entry.options
        most = options.max_substitutes if options.on_error == OnError.SUBSTITUTE else 0
        if self.substitutes >= most:
            return None
        at = self.steps.index(step)
        around = [*self.steps[at + 1 :], *self.steps[:at]]
        return next((source for source in around if source not in self.quarantined), None)
