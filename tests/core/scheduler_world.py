"""A world for the scheduler: workers and ranks that live by a clock of their own making.

Time is a number that jumps to the next thing to happen. Workers start, run their batches one after
another, beat, hang, die; ranks take what they are given and hand its slot back; `Nature` says who
does which. The scheduler is whatever has `handle` and `next_wakeup`, so that another one can be put
in its place. It must not know what is to be proved.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Protocol

from penstock.core.events import (
    Assign,
    BatchBegun,
    BatchDone,
    BatchFailed,
    BatchKey,
    BreakChannel,
    ChannelRegistered,
    ChannelUnregistered,
    Deliver,
    EpochStarted,
    Event,
    Fail,
    FinishEpoch,
    Forget,
    Instruction,
    KillWorker,
    RetireWorker,
    SlotReturned,
    StartWorker,
    Tick,
    TrimSlots,
    WorkerBeat,
    WorkerLost,
    WorkerReady,
)


class Party(Protocol):
    """What takes events: a scheduler, with or without somebody watching it."""

    def handle(self, event: Event) -> list[Instruction]: ...
    def next_wakeup(self) -> float | None: ...


class Fate(Enum):
    """What becomes of a worker at a batch, or at its start."""

    WELL = "does it"
    DIES = "dies in the middle of it"
    RAISES = "answers that it cannot"
    FALTERS = "answers that it cannot now"
    HANGS = "never ends, and says that it is well"
    FALLS_SILENT = "is never heard of again"
    GROWS = "does it, and is past its soft limit afterwards"
    BURSTS = "is past its hard limit before it is done"


class Nature:
    """How long things take and what goes wrong. This one: nothing."""

    beat_every = 3.0
    start_takes = 0.5
    dying_takes = 0.125

    def cost(self, batch: BatchKey, source: int) -> float:
        return 1.0

    def fate(self, order: Assign) -> Fate:
        return Fate.WELL

    def start(self, order: StartWorker) -> Fate:
        return Fate.WELL

    def reading(self, batch: BatchKey) -> float | None:
        """Seconds until a rank hands a slot back; None: it does not before it is woken."""
        return 0.0


@dataclass
class FakeWorker:
    """A process that never was."""

    id: int
    queue: deque[Assign] = field(default_factory=deque)
    at: Assign | None = None
    since: float = 0.0  # when it began that
    ready: bool = False
    silent: bool = False
    leaving: bool = False
    alive: bool = True
    bytes: int = 0


@dataclass
class FakeRank:
    """What one rank has seen of its channel."""

    channel: int
    epoch: int = -1
    running: bool = False
    steps: range = range(0)
    in_order: bool = False  # hands a slot back only when it has had every step before
    at: int = 0  # the place in `steps` of the one it waits for, if it goes by order
    early: dict[int, int | None] = field(default_factory=dict)  # step -> slot, if it has one
    paused: bool = False
    kept: list[int] = field(default_factory=list)  # slots it will hand back when woken
    got: Counter[BatchKey] = field(default_factory=Counter)
    done: Counter[int] = field(default_factory=Counter)
    broken: int = 0
    gone: bool = False


class World:
    """The clock, everybody in it, and what is to happen next."""

    def __init__(self, party: Party, nature: Nature) -> None:
        self.party, self.nature = party, nature
        self.now = 0.0
        self.workers: dict[int, FakeWorker] = {}
        self.ranks: dict[int, FakeRank] = {}
        self.service: Counter[int] = Counter()  # seconds of completed work, by channel
        self.lost_time: Counter[int] = Counter()  # seconds that came to nothing, by channel
        self.starts = 0
        self.events = 0
        self.on_finish: Callable[[FakeRank], None] = lambda rank: None
        self.on_done: Callable[[BatchKey], None] = lambda batch: None
        self.on_assign: Callable[[Assign], None] = lambda order: None
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._wake = float("inf")

    # --- the clock ---------------------------------------------------------------------------

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Puts something on the agenda. What falls on the same moment comes in this order."""
        heapq.heappush(self._agenda, (when, next(self._order), what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.now + seconds, what)

    def run(self, until: float) -> None:
        """Lets everything happen up to then."""
        while self._agenda and self._agenda[0][0] <= until:
            when, _, what = heapq.heappop(self._agenda)
            self.now = max(self.now, when)
            what()
        self.now = max(self.now, until)

    def send(self, event: Event) -> None:
        """Something happens; what the party answers is carried out at once."""
        self.events += 1
        for instruction in self.party.handle(event):
            self._carry_out(instruction)
        self._set_alarm()

    def _set_alarm(self) -> None:
        wakeup = self.party.next_wakeup()
        if wakeup is not None and wakeup < self._wake:
            self._wake = max(wakeup, self.now)
            self.at(self._wake, self._alarm)

    def _alarm(self) -> None:
        if self.now < self._wake:
            return  # an older alarm; an earlier one took its place
        self._wake = float("inf")
        # A tick comes after all that was waiting: whatever else happens at this moment goes first.
        self.at(self.now, lambda: self.send(Tick(self.now)))

    # --- instructions ------------------------------------------------------------------------

    def _carry_out(self, order: Instruction) -> None:
        match order:
            case StartWorker():
                self._start(order)
            case Assign():
                worker = self.workers[order.worker]
                worker.queue.append(order)
                self.on_assign(order)
                self.at(self.now, lambda: self._begin(worker))
            case RetireWorker():
                self.workers[order.worker].leaving = True
                self.at(self.now, lambda: self._leave(self.workers[order.worker]))
            case KillWorker():
                self.lose(order.worker, f"killed: {order.fault.value}", self.nature.dying_takes)
            case Deliver():
                self._delivered(order)
            case Fail():
                rank = self.ranks[order.batch.channel]
                rank.got[order.batch] += 1
                self._takes(rank, order.batch, None)
            case FinishEpoch():
                rank = self.ranks[order.channel]
                rank.done[order.epoch] += 1
                self._over(rank)
            case BreakChannel():
                rank = self.ranks[order.channel]
                rank.broken += 1
                self._over(rank)
            case Forget():
                self.ranks[order.channel].gone = True
            case TrimSlots():
                pass

    def _over(self, rank: FakeRank) -> None:
        rank.running = False
        self.at(self.now, lambda: self.on_finish(rank))

    # --- workers -----------------------------------------------------------------------------

    def _start(self, order: StartWorker) -> None:
        worker = self.workers[order.worker] = FakeWorker(order.worker)
        self.starts += 1
        match self.nature.start(order):
            case Fate.WELL:
                self.after(self.nature.start_takes, lambda: self._ready(worker))
            case Fate.FALLS_SILENT:
                pass
            case _:
                self.lose(worker.id, "died at its start", self.nature.start_takes)

    def _ready(self, worker: FakeWorker) -> None:
        if worker.alive:
            worker.ready = True
            self.send(WorkerReady(self.now, worker.id))
            self.after(self.nature.beat_every, lambda: self._beat(worker))

    def _beat(self, worker: FakeWorker) -> None:
        if worker.alive and not worker.silent:
            self.send(WorkerBeat(self.now, worker.id, worker.bytes))
            self.after(self.nature.beat_every, lambda: self._beat(worker))

    def _begin(self, worker: FakeWorker) -> None:
        if worker.at is not None or not worker.queue or not worker.alive or worker.silent:
            return
        order = worker.at = worker.queue.popleft()
        worker.since = self.now
        self.send(BatchBegun(self.now, worker.id, order.batch))
        cost = self.nature.cost(order.batch, order.source)
        match self.nature.fate(order):
            case Fate.WELL:
                self.after(cost, lambda: self._done(worker, order, cost))
            case Fate.RAISES | Fate.FALTERS as fate:
                passing = fate is Fate.FALTERS
                self.after(cost, lambda: self._failed(worker, order, cost, passing))
            case Fate.DIES:
                self.lose(worker.id, "killed by SIGKILL", cost / 2)
            case Fate.HANGS:
                pass
            case Fate.FALLS_SILENT:
                worker.silent = True
            case Fate.GROWS:
                worker.bytes = 150
                self.after(cost, lambda: self._done(worker, order, cost))
            case Fate.BURSTS:
                worker.bytes = 1000

    def _done(self, worker: FakeWorker, order: Assign, cost: float) -> None:
        if not worker.alive:
            return
        worker.at = None
        self.service[order.batch.channel] += cost
        self.send(BatchDone(self.now, worker.id, order.batch, cost))
        self.on_done(order.batch)
        self._go_on(worker)

    def _failed(self, worker: FakeWorker, order: Assign, cost: float, passing: bool) -> None:
        if worker.alive:
            worker.at = None
            failed = BatchFailed(self.now, worker.id, order.batch, cost, "a bad seed", passing)
            self.send(failed)
            self._go_on(worker)

    def _go_on(self, worker: FakeWorker) -> None:
        self._begin(worker)
        self._leave(worker)

    def _leave(self, worker: FakeWorker) -> None:
        if worker.leaving and worker.at is None and not worker.queue and not worker.silent:
            self.lose(worker.id, "left", 0.0)

    def lose(self, number: int, cause: str, after: float = 0.0) -> None:
        """A worker's process ends, and is reported."""
        self.after(after, lambda: self._lost(self.workers[number], cause))

    def _lost(self, worker: FakeWorker, cause: str) -> None:
        if worker.alive:
            worker.alive = False
            if worker.at is not None:
                self.lost_time[worker.at.batch.channel] += self.now - worker.since
            self.send(WorkerLost(self.now, worker.id, cause))

    # --- ranks -------------------------------------------------------------------------------

    def register(self, entry: ChannelRegistered) -> FakeRank:
        """A rank comes."""
        rank = self.ranks[entry.channel] = FakeRank(entry.channel)
        self.send(entry)
        return rank

    def start_epoch(self, rank: FakeRank, steps: range) -> None:
        """A rank asks for its next epoch; what it had of the last one it hands back."""
        rank.epoch += 1
        rank.running = True
        rank.steps, rank.at = steps, 0
        early, rank.early = rank.early, {}
        for slot in early.values():
            if slot is not None:
                self.send(SlotReturned(self.now, rank.channel, slot))
        self.send(EpochStarted(self.now, rank.channel, rank.epoch, steps))

    def unregister(self, rank: FakeRank) -> None:
        """A rank goes, in the middle of whatever it is at."""
        rank.running = False
        self.send(ChannelUnregistered(self.now, rank.channel))

    def wake(self, rank: FakeRank) -> None:
        """A rank that had stopped reading hands everything back."""
        rank.paused = False
        kept, rank.kept = rank.kept, []
        for slot in kept:
            self.send(SlotReturned(self.now, rank.channel, slot))

    def _delivered(self, order: Deliver) -> None:
        rank = self.ranks[order.batch.channel]
        rank.got[order.batch] += 1
        self._takes(rank, order.batch, order.slot)

    def _takes(self, rank: FakeRank, batch: BatchKey, slot: int | None) -> None:
        """A step has ended, with a batch or without. Who goes by order may have to wait for it."""
        if not rank.in_order:
            self._reads(rank, batch, slot)
            return
        rank.early[batch.step] = slot
        while rank.at < len(rank.steps) and rank.steps[rank.at] in rank.early:
            step = rank.steps[rank.at]
            self._reads(rank, batch._replace(step=step), rank.early.pop(step))
            rank.at += 1

    def _reads(self, rank: FakeRank, batch: BatchKey, slot: int | None) -> None:
        if slot is None:
            return
        wait = None if rank.paused else self.nature.reading(batch)
        if wait is None:
            rank.kept.append(slot)
        else:
            self.after(wait, lambda: self.send(SlotReturned(self.now, rank.channel, slot)))
