"""Starts, retires and kills the workers of all groups. It must not handle batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.channel import ScheduledChannel
from penstock.core.events import (
    Instruction,
    KillReason,
    KillWorker,
    Leave,
    RetireWorker,
    StartWorker,
)
from penstock.core.restarts import BreakerState
from penstock.core.settings import Settings
from penstock.core.timers import Timers
from penstock.core.worker_group import ScheduledWorker, WorkerGroup, WorkerState


@dataclass(slots=True, eq=False)
class WorkerLifecycle:
    """The workers of all groups. Ids are increasing and never reused."""

    settings: Settings
    timers: Timers[ScheduledWorker | WorkerGroup | ScheduledChannel]
    workers: dict[int, ScheduledWorker] = field(default_factory=dict)
    last_id: int = 0

    # --- number of workers -------------------------------------------------------------------

    def resize(self, group: WorkerGroup, wanted: int, now: float, out: list[Instruction]) -> None:
        group.wanted = wanted
        surplus = group.starting + group.ready - wanted
        if surplus > 0:
            for worker in self._least_needed(group)[:surplus]:
                self.retire(worker, Leave.SHRINK, now, out)
        self.fill(group, now, out)

    def _least_needed(self, group: WorkerGroup) -> list[ScheduledWorker]:
        """Return workers, not yet ready ones first, then by load; the youngest first of equals."""
        able = WorkerState.STARTING, WorkerState.READY
        there = [worker for worker in group.workers.values() if worker.state in able]
        return sorted(there, key=lambda worker: (worker.was_ready, len(worker.tasks), -worker.id))

    def fill(self, group: WorkerGroup, now: float, out: list[Instruction]) -> None:
        """Start the missing workers, if breaker and back-off allow it now."""
        if group.breaker.state is BreakerState.CLOSED and now >= group.held_until():
            for _ in range(group.missing):
                self._start(group, now, out)
        self.timers.arm(group)

    def ask(self, group: WorkerGroup, now: float, out: list[Instruction]) -> None:
        """Start one worker as a trial if the breaker is open and has rested.

        Called when a channel or a change of size asks for workers.
        """
        if group.breaker.may_try(now) and group.starting + group.ready < group.wanted:
            group.breaker.state = BreakerState.TRIAL
            if not group.starting:
                self._start(group, now, out)

    def _start(self, group: WorkerGroup, now: float, out: list[Instruction]) -> None:
        self.last_id += 1
        worker = ScheduledWorker(self.last_id, group, started=now, heard=now)
        self.workers[worker.id] = worker
        group.hire(worker)
        self.timers.arm(worker)
        out.append(StartWorker(worker.id, group.name))

    # --- state changes -----------------------------------------------------------------------

    def ready(self, worker: ScheduledWorker, now: float, out: list[Instruction]) -> None:
        """Mark a worker as ready; that ends the back-off of starts and closes the breaker."""
        if worker.was_ready:
            return
        group = worker.group
        worker.was_ready = True
        if worker.state is WorkerState.STARTING:
            group.move(worker, WorkerState.READY)
        group.starts.reset()
        if group.breaker.state is not BreakerState.CLOSED:
            self._close_breaker(group, now, out)
        self.fill(group, now, out)
        self.timers.arm(worker)

    def _close_breaker(self, group: WorkerGroup, now: float, out: list[Instruction]) -> None:
        """Close the breaker, and retire workers kept only because none could be started."""
        group.breaker.close()
        for worker in list(group.workers.values()):
            self.inspect(worker, now, out)
            self.timers.arm(worker)

    def retire(
        self, worker: ScheduledWorker, reason: Leave, now: float, out: list[Instruction]
    ) -> None:
        """Ask a worker to exit. It is replaced at once, unless the group is to be smaller."""
        group = worker.group
        group.move(worker, WorkerState.LEAVING)
        group.retired[reason] += 1
        out.append(RetireWorker(worker.id, reason))
        if group.breaker.state is BreakerState.TRIAL and not group.starting:
            group.breaker.state = BreakerState.OPEN  # the retired worker was the trial
        if group.breaker.state is BreakerState.CLOSED and group.missing > 0:
            self._start(group, now, out)

    def kill(
        self, worker: ScheduledWorker, fault: KillReason, now: float, out: list[Instruction]
    ) -> None:
        """Kill a worker. It gets no more batches, and is replaced once it is known to be dead."""
        group, begun = worker.group, worker.begun
        group.move(worker, WorkerState.DOOMED)
        group.killed[fault] += 1
        out.append(KillWorker(worker.id, fault, begun.batch if begun else None))
        if group.breaker.state is BreakerState.TRIAL and not group.starting:
            cause = f"a worker was killed before it was ready ({fault.value})"
            group.breaker.failed(group.starts.count, now, cause)

    def lost(self, worker: ScheduledWorker, cause: str, now: float) -> None:
        """Remove a worker whose process has ended. The caller handles the tasks that it held."""
        group, begun = worker.group, worker.begun
        group.dismiss(worker)
        del self.workers[worker.id]
        if worker.retired and not worker.tasks:
            return
        group.lost += 1
        if worker.was_ready:
            group.deaths.lost(now)
            group.streak.add(begun.batch if begun and begun.attempted else None)
        elif not worker.retired:
            group.starts.lost(now)
            group.breaker.failed(group.starts.count, now, cause)

    # --- limits ------------------------------------------------------------------------------

    def weigh(
        self, worker: ScheduledWorker, private: int, now: float, out: list[Instruction]
    ) -> None:
        """Record a worker's private memory; kill or retire it above the limits."""
        worker.private_bytes = private
        limit = self.settings.hard_memory
        if limit is None or private <= limit:
            self.inspect(worker, now, out)
        elif worker.state is not WorkerState.DOOMED:
            self.kill(worker, KillReason.MEMORY, now, out)

    def inspect(self, worker: ScheduledWorker, now: float, out: list[Instruction]) -> None:
        """Retire a worker that reached its limit of batches, memory or age."""
        if worker.replaceable:
            reason = self._worn(worker, now)
            if reason is not None:
                self.retire(worker, reason, now, out)

    def _worn(self, worker: ScheduledWorker, now: float) -> Leave | None:
        settings = self.settings
        if settings.max_batches is not None and worker.made >= settings.max_batches:
            return Leave.BATCHES
        if settings.soft_memory is not None and worker.private_bytes > settings.soft_memory:
            return Leave.MEMORY
        if settings.max_age is None:
            return None
        return Leave.AGE if worker.must_leave() <= now else None

    def overdue(self, worker: ScheduledWorker, now: float, out: list[Instruction]) -> None:
        """Kill or retire a worker that has exceeded one of its time limits."""
        if worker.must_be_done() <= now:
            self.kill(worker, KillReason.DEADLINE, now, out)
        elif worker.must_be_heard() <= now:
            fault = KillReason.SILENCE if worker.was_ready else KillReason.START
            self.kill(worker, fault, now, out)
        else:
            self.inspect(worker, now, out)
