"""The half of the ledger that watches workers: who was started, asked to leave, killed, and why.

It checks that each such order had its reason at that moment, and that nobody who is past a limit is
forgotten. It must not know what the workers do: batches are the other half's.
"""

from __future__ import annotations

import math

from penstock.core.events import (
    Assign,
    ChannelRegistered,
    EpochStarted,
    Event,
    GroupSized,
    KillReason,
    KillWorker,
    Leave,
    RetireWorker,
    StartWorker,
    Tick,
)
from penstock.core.scheduler import Settings
from tests.core.scheduler_books import ChannelBook, CrewBook, WorkerBook


class CrewWatch:
    """All groups and workers of a run."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = -math.inf
        self.event: Event = Tick(-math.inf)  # the one being watched
        self.groups: dict[str, CrewBook] = {}
        self.channels: dict[int, ChannelBook] = {}
        self.workers: dict[int, WorkerBook] = {}  # those not lost yet
        self.last_worker = -math.inf

    def breaker_open(self, group: CrewBook) -> bool:
        """Whether so many starts failed in a row that no more are tried for a while."""
        return group.failed_starts >= self.settings.breaker_deaths

    # --- orders ------------------------------------------------------------------------------

    def start_worker(self, order: StartWorker) -> None:
        """A new worker: only where one is missing, and no storm of them where all fail."""
        assert order.worker > self.last_worker, f"{order}: ids count up"
        group = self.groups[order.group]
        assert group.strength < group.wanted, f"{order}: the group has all of its {group.wanted}"
        if self.breaker_open(group):
            self._is_a_trial(group, order)
        worker = WorkerBook(order.worker, order.group, started=self.now, heard=self.now)
        self.last_worker = order.worker
        self.workers[order.worker] = group.workers[order.worker] = worker

    def _is_a_trial(self, group: CrewBook, order: StartWorker) -> None:
        rested = group.last_failed_start + self.settings.breaker_rest <= self.now
        assert rested, f"{order}: {group.failed_starts} starts failed just now"
        asked = isinstance(self.event, EpochStarted | ChannelRegistered | GroupSized)
        assert asked, f"{order}: nobody asked for it"
        assert all(w.ready is not None for w in group.workers.values() if w.stays), f"{order}: two"

    def retire_worker(self, order: RetireWorker) -> None:
        """A worker is asked to leave: once, and with a reason."""
        worker = self._told(order)
        assert worker.leave is None, f"{order}: asked before"
        assert worker.fault is None, f"{order}: it was killed"
        assert self._may_leave(worker, order), f"{order}: there is no such reason"
        worker.leave = order.reason

    def _may_leave(self, worker: WorkerBook, order: RetireWorker) -> bool:
        settings, group = self.settings, self.groups[worker.group]
        match order.reason:
            case Leave.BATCHES:
                most = settings.max_batches
                return most is not None and worker.answered + len(worker.held) >= most
            case Leave.AGE:
                most_age = settings.max_age
                return most_age is not None and worker.started + most_age <= self.now
            case Leave.MEMORY:
                return self._over(worker, settings.soft_memory)
            case Leave.SHRINK:
                idle = [w.id for w in group.workers.values() if w.stays and not w.held]
                assert not worker.held or not idle, f"{order}: {idle} are idle"
                return group.strength > group.wanted

    def kill_worker(self, order: KillWorker) -> None:
        """A worker is ended: once, with a reason, and by the clock only when input was drained."""
        worker = self._told(order)
        assert worker.fault is None, f"{order}: killed before"
        begun = worker.begun
        assert order.batch == (begun.batch if begun else None), f"{order}: it is at {begun}"
        if order.fault is not KillReason.MEMORY:
            assert isinstance(self.event, Tick), f"{order}: input may still be waiting"
        assert self._is_past_hope(worker, order.fault), f"{order}: {worker}"
        worker.fault = order.fault

    def _is_past_hope(self, worker: WorkerBook, fault: KillReason) -> bool:
        match fault:
            case KillReason.DEADLINE:
                return self._overdue(worker) <= self.now
            case KillReason.SILENCE:
                return worker.ready is not None and self._quiet(worker) <= self.now
            case KillReason.START:
                return worker.ready is None and self._quiet(worker) <= self.now
            case KillReason.MEMORY:
                return self._over(worker, self.settings.hard_memory)

    def _told(self, order: RetireWorker | KillWorker | Assign) -> WorkerBook:
        assert order.worker in self.workers, f"{order}: there is no such worker"
        return self.workers[order.worker]

    # --- what is due -------------------------------------------------------------------------

    def in_time(self, worker: WorkerBook, wakeup: float | None) -> None:
        """Whoever is past a limit was told so by the last tick, or will be by the next."""
        if worker.fault is not None:
            return
        settings = self.settings
        due = min(self._overdue(worker), self._quiet(worker))
        # Where nobody can be started, a worn worker may stay: it is better than none.
        goes = worker.serves and not self.breaker_open(self.groups[worker.group])
        if goes and worker.ready is not None and settings.max_age is not None:
            due = min(due, worker.ready + settings.max_age)
        next_look = math.inf if wakeup is None else wakeup
        assert next_look <= due < math.inf, f"{worker}: due at {due}, looked at at {wakeup}"
        if goes and settings.max_batches is not None:
            assert worker.made < settings.max_batches, f"{worker}: has made its share"

    def _overdue(self, worker: WorkerBook) -> float:
        flight = worker.begun
        if flight is None or flight.begun is None:
            return math.inf
        limit = self.channels[flight.batch.channel].entry.options.deadline
        return math.inf if limit is None else flight.begun + limit

    def _quiet(self, worker: WorkerBook) -> float:
        if worker.ready is None:
            return worker.started + self.settings.start_limit
        return worker.heard + self.settings.silence

    def _over(self, worker: WorkerBook, limit: int | None) -> bool:
        return limit is not None and worker.bytes >= limit

    def heard(self, number: int) -> WorkerBook | None:
        """The worker an event is from; None if it is nobody's, or somebody's who is gone."""
        worker = self.workers.get(number)
        if worker is not None:
            worker.heard = self.now
        return worker
