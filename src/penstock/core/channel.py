"""One rank's stream of batches, as the scheduler sees it: its epoch, slots, share and waits.

This module must not know workers: a channel hands out tasks, and is told how each of them ended.
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

GROUP_FAILING = " (while the whole group was failing)"  # appended to the cause of a failure


class ChannelPhase(Enum):
    IDLE = "idle"
    ACTIVE = "active"  # an epoch is running
    LEAVING = "leaving"  # unregistered; workers still hold batches of it


class Wait(Enum):
    """What a channel waits for before its next batch can be handed out."""

    NOTHING = "nothing"  # there is no step left to hand out
    TURN = "turn"  # it could be served now, and is in the run queue
    CREDIT = "credit"  # every slot is taken


@dataclass(slots=True, eq=False)
class Task:
    """A batch that was handed out. It has a slot from that moment until it ends."""

    channel: ScheduledChannel
    epoch: Epoch
    batch: BatchKey
    slot: int
    source: int
    attempt: int = 1  # at this source; attempts that were never begun do not count
    charged: int = 0  # attempts at this source that count against the limit
    excused: int = 0  # attempts at this source lost while the whole group was failing
    errors: int = 0  # attempts at this source that raised, and were followed by another one
    until: float = -inf  # no worker gets it before this time
    avoids: int | None = None  # the worker that it raised in: another one is better
    began: float | None = None
    too_late: bool = False  # it began after its worker was condemned for another reason
    charge: float = 0.0  # virtual time that was charged and must be settled
    weight: float = 1.0  # the channel's weight when that was charged

    @property
    def attempted(self) -> bool:
        """Whether this batch counts as the cause if its worker dies now."""
        return self.began is not None and not self.too_late


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A batch that could not be made from `source`, which is its own step or a substitute."""

    batch: BatchKey
    source: int
    cause: str
    attempts: int


@dataclass(slots=True, eq=False, kw_only=True)
class ScheduledChannel(Flow):
    """The scheduler's state of one channel."""

    id: int
    group: str
    slots: Slots
    settings: Settings
    options: ChannelOptions
    costs: Mean
    group_costs: Mean
    first_estimate: float
    quarantine: deque[Quarantined]  # owned by the scheduler, shared by all channels
    story: Story
    epoch: Epoch = field(default_factory=lambda: Epoch.closed(-1))
    retries: deque[Task] = field(default_factory=deque)
    delayed: list[Task] = field(default_factory=list)  # to be retried at a later time
    in_flight: int = 0
    leaving: bool = False
    alarm: float = inf
    alarm_order: int = 0

    waits: Wait = Wait.NOTHING
    since: float = 0.0
    waited: dict[Wait, float] = field(default_factory=lambda: dict.fromkeys(Wait, 0.0))
    service: float = 0.0
    attempts_lost: int = 0
    errors_retried: int = 0
    substitutes: int = 0
    stray_returns: int = 0
    delivered: int = 0  # this and the next two: over all epochs before the current one
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

    # --- handing out batches -----------------------------------------------------------------

    def wants(self) -> Wait:
        """Return TURN if a batch could be handed out now, else what is missing."""
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
        """Return the seconds that the next batch is likely to cost."""
        if self.costs.count:
            return self.costs.value
        known = self.first_estimate or self.group_costs.value or self.settings.first_estimate
        return max(known, self.settings.least_cost)

    def hand_out(self, out: list[Instruction]) -> Task | None:
        """Return the next batch to make: a retry, or the next step unless that fails at once."""
        task = self.retries.popleft() if self.retries else self._next_task(out)
        if task is not None:
            self._charge_for(task)
        return task

    def _charge_for(self, task: Task) -> None:
        """Charge the channel the estimated cost of a task that a worker is about to get."""
        task.charge, task.weight = self.charge(self.estimate()), self.weight
        self.in_flight += 1

    def _next_task(self, out: list[Instruction]) -> Task | None:
        epoch = self.epoch
        step = epoch.next_step()
        batch, source = BatchKey(self.id, epoch.number, step), step
        if step in epoch.spoiled:  # it failed as another step's substitute, and would fail again
            stand_in = self._stand_in(step)
            if stand_in is None:
                self._fail(batch, epoch.spoiled[step], 0, out)
                return None
            source = stand_in
        return Task(self, epoch, batch, self.slots.reserve(), source)

    # --- ends of batches ---------------------------------------------------------------------

    def answered(self, task: Task, cost: float) -> None:
        """Settle the cost of a task that a worker has finished, whether made or failed."""
        self.costs.add(cost)
        self._take_back(task, cost)

    def deliver(self, task: Task, worker: int, now: float, out: list[Instruction]) -> None:
        if not task.epoch.open:
            self._drop(task, now, out)
            return
        self.slots.lend(task.slot)
        self.epoch.delivered += 1
        out.append(Deliver(task.batch, task.slot, task.source, worker, task.errors))
        self._finish(out)

    def raised(
        self, task: Task, worker: int, cause: str, passing: bool, now: float, out: list[Instruction]
    ) -> None:
        """Retry a task later that raised a passing error, as often as the options say, or fail it.

        It keeps its slot meanwhile. Later steps of the epoch need not wait for it.
        """
        if not task.epoch.open or not passing or task.errors == self.options.retry_errors:
            self.fail(task, cause, now, out)
            return
        task.errors += 1
        task.attempt += 1
        task.began, task.too_late, task.avoids = None, False, worker
        task.until = now + self.settings.error_delay(task.errors)
        self.delayed.append(task)
        self.errors_retried += 1

    def wake(self, now: float) -> None:
        """Let the delayed tasks that have waited long enough be handed out, in their order."""
        ready = [task for task in self.delayed if task.until <= now]
        self.delayed = [task for task in self.delayed if task.until > now]
        self.retries.extend(ready)

    def fail(self, task: Task, cause: str, now: float, out: list[Instruction]) -> None:
        """Substitute another source for one that cannot be made, or let the batch fail."""
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
        """Retry or fail a task whose worker has died.

        `excusable` means that the whole group is failing, so the batch is probably not the cause.
        """
        attempted = task.attempted
        if attempted and task.began is not None:
            self._take_back(task, now - task.began)
            self._charge(task, excusable)
        else:  # It was not begun, or too late: neither time nor an attempt is charged.
            self._take_back(task, 0.0)
        if not task.epoch.open:
            self._drop(task, now, out)
        elif task.charged < self.options.max_attempts:
            task.attempt += attempted
            self._try_again(task)
        else:
            self.fail(task, cause + (GROUP_FAILING if task.excused else ""), now, out)

    def _charge(self, task: Task, excusable: bool) -> None:
        """Count one lost attempt. The number of excused ones is limited, so that retries end."""
        self.attempts_lost += 1
        if excusable and task.excused < 2 * self.options.max_attempts:
            task.excused += 1
        else:
            task.charged += 1

    def _take_back(self, task: Task, seconds: float) -> None:
        """Settle a task that no worker holds any more; `seconds` were spent on it."""
        self.in_flight -= 1
        self.service += seconds
        self.settle(task.charge, seconds / task.weight, last=not self.in_flight)

    def _drop(self, task: Task, now: float, out: list[Instruction]) -> None:
        """Release the slot of a task whose epoch is over: no rank waits for it."""
        self.slots.release(task.slot, now)
        self._forget(out)

    def _try_again(self, task: Task) -> None:
        task.began, task.too_late = None, False
        self.retries.appendleft(task)

    def _substitute(self, task: Task, cause: str) -> bool:
        epoch, step = self.epoch, task.batch.step
        # Once no substitutes are left, a step that failed from its own source is never looked up
        # again, and need not be kept.
        if epoch.substitutes < self.options.substitutes or task.source != step:
            epoch.spoiled[task.source] = cause
        source = self._stand_in(step)
        if source is None:
            return False
        task.source, task.attempt, task.charged, task.excused = source, 1, 0, 0
        task.errors, task.avoids = 0, None
        self._try_again(task)
        return True

    def _stand_in(self, step: int) -> int | None:
        """Return another step to sample instead of this one; None if no substitute is left."""
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
        """Start a new epoch. The rest of the last one is cancelled without an announcement."""
        self._cancel(now)
        old = self.epoch
        self.delivered += old.delivered
        self.failed += old.failed
        self.cancelled += old.cancelled
        self.epoch = Epoch(number, steps)
        self._finish(out)

    def give_up(self, cause: str, now: float, out: list[Instruction]) -> None:
        """End the epoch because no worker can serve this channel."""
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
        """Cancel the epoch. Tasks that workers hold keep their slots until they are answered."""
        if self.epoch.open:
            self.epoch.close()
        for task in (*self.retries, *self.delayed):
            self.slots.release(task.slot, now)
        self.retries.clear()
        self.delayed.clear()

    def _forget(self, out: list[Instruction]) -> None:
        if self.gone:
            out.append(Forget(self.id))

    # --- time --------------------------------------------------------------------------------

    def due(self) -> float:
        """Return when the first unused slot is to be trimmed, or the first delayed task is due."""
        if self.leaving:
            return inf
        trim = self.slots.rested(self.settings.trim_after)
        return min([trim, *(task.until for task in self.delayed)]) if self.delayed else trim
