"""One rank's stream of batches: its epoch, its slots, what it is owed and what it waits for.

A channel knows nothing of workers: it gives out tasks, and is told how each of them ended.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from penstock.core.epoch import Epoch
from penstock.core.events import (
    BatchKey,
    BreakChannel,
    ChannelRegistered,
    Deliver,
    Fail,
    FinishEpoch,
    Forget,
    Instruction,
)
from penstock.core.fair import Flow, Mean
from penstock.core.settings import Settings
from penstock.core.slots import Slots
from penstock.core.story import Story
from penstock.options import ChannelOptions

CREW_FAILING = " (while the whole group was failing)"  # added to the cause of a batch's end


class ChannelPhase(Enum):
    IDLE = "idle"
    ACTIVE = "active"  # an epoch is running
    LEAVING = "leaving"  # unregistered; workers still hold batches of it


class Wait(Enum):
    """What keeps a channel from having more batches made."""

    NOTHING = "nothing"  # there is no step left to give
    TURN = "turn"
    CREDIT = "credit"  # every slot is taken


@dataclass(slots=True, eq=False)
class Task:
    """A batch on its way: it has a slot from the moment it is given out until it ends."""

    channel: ScheduledChannel
    epoch: Epoch
    batch: BatchKey
    slot: int
    source: int
    attempt: int = 1  # at this source; those that were never begun do not count
    charged: int = 0  # attempts at this source that count against the limit
    excused: int = 0  # attempts at this source lost while the whole group was failing
    began: float | None = None
    too_late: bool = False  # its worker was to be killed, for something else, before it began
    charge: float = 0.0  # virtual time, to be settled
    weight: float = 1.0  # the channel's, when that was charged

    @property
    def attempted(self) -> bool:
        """Whether the worker that has it would die of it, if it died now."""
        return self.began is not None and not self.too_late


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A batch that could not be made from `source`, its own step or one put in its place."""

    batch: BatchKey
    source: int
    cause: str
    attempts: int


@dataclass(slots=True, eq=False, kw_only=True)
class ScheduledChannel(Flow):
    """Everything known about one rank's stream."""

    id: int
    group: str
    slots: Slots
    settings: Settings
    options: ChannelOptions
    costs: Mean
    group_costs: Mean
    first_estimate: float
    quarantine: deque[Quarantined]  # the scheduler's, shared by all channels
    story: Story
    epoch: Epoch = field(default_factory=lambda: Epoch.closed(-1))
    retries: deque[Task] = field(default_factory=deque)
    in_flight: int = 0
    leaving: bool = False
    alarm: float = inf
    alarm_order: int = 0

    waits: Wait = Wait.NOTHING
    since: float = 0.0
    waited: dict[Wait, float] = field(default_factory=lambda: dict.fromkeys(Wait, 0.0))
    service: float = 0.0
    attempts_lost: int = 0
    substitutes: int = 0
    stray_returns: int = 0
    delivered: int = 0  # these three over all epochs before this one
    failed: int = 0
    cancelled: int = 0

    @classmethod
    def open(
        cls,
        event: ChannelRegistered,
        settings: Settings,
        group_costs: Mean,
        quarantine: deque[Quarantined],
    ) -> ScheduledChannel:
        return cls(
            id=event.channel,
            group=event.group,
            slots=Slots(event.slots),
            settings=settings,
            weight=event.options.weight,
            options=event.options,
            costs=Mean(settings.cost_memory),
            group_costs=group_costs,
            first_estimate=event.estimate,
            quarantine=quarantine,
            story=Story(settings.story_length),
        )

    @property
    def phase(self) -> ChannelPhase:
        if self.leaving:
            return ChannelPhase.LEAVING
        return ChannelPhase.ACTIVE if self.epoch.open else ChannelPhase.IDLE

    # --- what it could give ------------------------------------------------------------------

    def wants(self) -> Wait:
        """TURN if a batch could be handed out now; else what is missing."""
        if self.retries:
            return Wait.TURN
        epoch = self.epoch
        if not epoch.open or epoch.given == epoch.total:
            return Wait.NOTHING
        return Wait.TURN if self.slots.free else Wait.CREDIT

    def wait_for(self, wait: Wait, now: float) -> None:
        if wait is not self.waits:
            self.waited[self.waits] += now - self.since
            self.waits, self.since = wait, now

    def estimate(self) -> float:
        """What the next batch is likely to cost, in seconds."""
        if self.costs.count:
            return self.costs.value
        known = self.first_estimate or self.group_costs.value or self.settings.first_estimate
        return max(known, self.settings.least_cost)

    def hand_out(self, out: list[Instruction]) -> Task | None:
        """The next batch to be made: one to be tried again, or the next step, if it can be made."""
        task = self.retries.popleft() if self.retries else self._next_task(out)
        if task is not None:
            self._charge_for(task)
        return task

    def _charge_for(self, task: Task) -> None:
        """A worker is to have it."""
        task.charge, task.weight = self.charge(self.estimate()), self.weight
        self.in_flight += 1

    def _next_task(self, out: list[Instruction]) -> Task | None:
        epoch = self.epoch
        step = epoch.next_step()
        batch, source = BatchKey(self.id, epoch.number, step), step
        if step in epoch.spoiled:  # it failed when it stood in for another, and would again
            stand_in = self._stand_in(step)
            if stand_in is None:
                self._fail(batch, epoch.spoiled[step], 0, out)
                return None
            source = stand_in
        return Task(self, epoch, batch, self.slots.reserve(), source)

    # --- how its batches end -----------------------------------------------------------------

    def answered(self, task: Task, cost: float) -> None:
        """A worker is done with this task, whatever came of it."""
        self.costs.add(cost)
        self._take_back(task, cost)

    def deliver(self, task: Task, worker: int, now: float, out: list[Instruction]) -> None:
        if not task.epoch.open:
            self._drop(task, now, out)
            return
        self.slots.lend(task.slot)
        self.epoch.delivered += 1
        out.append(Deliver(task.batch, task.slot, task.source, worker))
        self._finish(out)

    def fail(self, task: Task, cause: str, now: float, out: list[Instruction]) -> None:
        """It cannot be made from its source: another is taken, or the batch fails."""
        if not task.epoch.open:
            self._drop(task, now, out)
            return
        self.quarantine.append(Quarantined(task.batch, task.source, cause, task.attempt))
        if not self._substitute(task, cause):
            self.slots.release(task.slot, now)
            self._fail(task.batch, cause, task.attempt, out)

    def lost(
        self, task: Task, cause: str, now: float, out: list[Instruction], *, excusable: bool
    ) -> None:
        """The worker that had it is dead. `excusable`: so is every other one of its group."""
        attempted = task.attempted
        if attempted and task.began is not None:
            self._take_back(task, now - task.began)
            self._charge(task, excusable)
        else:  # merely queued there, or as good as: not charged, in any sense
            self._take_back(task, 0.0)
        if not task.epoch.open:
            self._drop(task, now, out)
        elif task.charged < self.options.max_attempts:
            task.attempt += attempted
            self._try_again(task)
        else:
            self.fail(task, cause + (CREW_FAILING if task.excused else ""), now, out)

    def _charge(self, task: Task, excusable: bool) -> None:
        """One attempt more. An excuse is good only so often, so that everything ends."""
        self.attempts_lost += 1
        if excusable and task.excused < 2 * self.options.max_attempts:
            task.excused += 1
        else:
            task.charged += 1

    def _take_back(self, task: Task, seconds: float) -> None:
        """No worker has this task any more; so long was spent on it."""
        self.in_flight -= 1
        self.service += seconds
        self.settle(task.charge, seconds / task.weight, last=not self.in_flight)

    def _drop(self, task: Task, now: float, out: list[Instruction]) -> None:
        """Nobody waits for this one any more."""
        self.slots.release(task.slot, now)
        self._forget(out)

    def _try_again(self, task: Task) -> None:
        task.began, task.too_late = None, False
        self.retries.appendleft(task)

    def _substitute(self, task: Task, cause: str) -> bool:
        epoch, step = self.epoch, task.batch.step
        # Later failures of a step's own are never asked for again, and need not be kept.
        if epoch.substitutes < self.options.substitutes or task.source != step:
            epoch.spoiled[task.source] = cause
        source = self._stand_in(step)
        if source is None:
            return False
        task.source, task.attempt, task.charged, task.excused = source, 1, 0, 0
        self._try_again(task)
        return True

    def _stand_in(self, step: int) -> int | None:
        """Another step to sample in the place of this one, while there may be one."""
        epoch = self.epoch
        if epoch.substitutes == self.options.substitutes:
            return None
        source = epoch.next_source(step)
        if source is not None:
            epoch.substitutes += 1
            self.substitutes += 1
        return source

    def _fail(self, batch: BatchKey, cause: str, attempts: int, out: list[Instruction]) -> None:
        self.epoch.failed += 1
        out.append(Fail(batch, cause, attempts))
        self._finish(out)

    def _finish(self, out: list[Instruction]) -> None:
        epoch = self.epoch
        if epoch.ended == epoch.total:
            epoch.open = False
            counts = epoch.delivered, epoch.failed, epoch.cancelled
            out.append(FinishEpoch(self.id, epoch.number, *counts))

    # --- epochs ------------------------------------------------------------------------------

    def start(self, number: int, steps: range, now: float, out: list[Instruction]) -> None:
        """A new epoch; what is left of the last one is cancelled, and not announced."""
        self._cancel(now)
        old = self.epoch
        self.delivered += old.delivered
        self.failed += old.failed
        self.cancelled += old.cancelled
        self.epoch = Epoch(number, steps)
        self._finish(out)

    def give_up(self, cause: str, now: float, out: list[Instruction]) -> None:
        """Nobody can serve this channel: its epoch ends here."""
        self._cancel(now)
        out.append(BreakChannel(self.id, self.epoch.number, cause))

    def leave(self, now: float, out: list[Instruction]) -> None:
        self.leaving = True
        self._cancel(now)
        self._forget(out)

    @property
    def gone(self) -> bool:
        return self.leaving and not self.in_flight

    def _cancel(self, now: float) -> None:
        """Tasks with workers keep their slots until they come back; nobody waits for them."""
        if self.epoch.open:
            self.epoch.close()
        for task in self.retries:
            self.slots.release(task.slot, now)
        self.retries.clear()

    def _forget(self, out: list[Instruction]) -> None:
        if self.gone:
            out.append(Forget(self.id))

    # --- slots that rest ---------------------------------------------------------------------

    def due(self) -> float:
        return inf if self.leaving else self.slots.rested(self.settings.trim_after)
