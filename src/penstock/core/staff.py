"""Starting, retiring and killing workers, of all crews. Batches are no business of this module."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.channel import Channel
from penstock.core.crew import Crew, Worker, WorkerState
from penstock.core.events import (
    Fault,
    Instruction,
    KillWorker,
    Leave,
    RetireWorker,
    StartWorker,
)
from penstock.core.restarts import BreakerState
from penstock.core.settings import Settings
from penstock.core.timers import Timers


@dataclass(slots=True, eq=False)
class Staff:
    """All workers there are. Ids count up and are never used again."""

    settings: Settings
    timers: Timers[Worker | Crew | Channel]
    workers: dict[int, Worker] = field(default_factory=dict)
    last_id: int = 0

    # --- how many ----------------------------------------------------------------------------

    def resize(self, crew: Crew, wanted: int, now: float, out: list[Instruction]) -> None:
        crew.wanted = wanted
        surplus = crew.starting + crew.ready - wanted
        if surplus > 0:
            for worker in self._least_needed(crew)[:surplus]:
                self.retire(worker, Leave.SHRINK, now, out)
        self.fill(crew, now, out)

    def _least_needed(self, crew: Crew) -> list[Worker]:
        """Those not yet ready first, then the idle, then the least busy; the youngest of equals."""
        able = WorkerState.STARTING, WorkerState.READY
        there = [worker for worker in crew.workers.values() if worker.state in able]
        return sorted(there, key=lambda worker: (worker.was_ready, len(worker.tasks), -worker.id))

    def fill(self, crew: Crew, now: float, out: list[Instruction]) -> None:
        """Start those that are missing, if they may be started now."""
        if crew.breaker.state is BreakerState.CLOSED and now >= crew.held_until():
            for _ in range(crew.missing):
                self._start(crew, now, out)
        self.timers.arm(crew)

    def ask(self, crew: Crew, now: float, out: list[Instruction]) -> None:
        """Somebody wants to be served: after its rest, that gives an open breaker one trial."""
        if crew.breaker.may_try(now) and crew.starting + crew.ready < crew.wanted:
            crew.breaker.state = BreakerState.TRIAL
            if not crew.starting:
                self._start(crew, now, out)

    def _start(self, crew: Crew, now: float, out: list[Instruction]) -> None:
        self.last_id += 1
        worker = Worker(self.last_id, crew, started=now, heard=now)
        self.workers[worker.id] = worker
        crew.hire(worker)
        self.timers.arm(worker)
        out.append(StartWorker(worker.id, crew.name))

    # --- comings and goings ------------------------------------------------------------------

    def ready(self, worker: Worker, now: float, out: list[Instruction]) -> None:
        """It can be done: whatever kept others from being started is over."""
        if worker.was_ready:
            return
        crew = worker.crew
        worker.was_ready = True
        if worker.state is WorkerState.STARTING:
            crew.move(worker, WorkerState.READY)
        crew.starts.reset()
        if crew.breaker.state is not BreakerState.CLOSED:
            self._close_breaker(crew, now, out)
        self.fill(crew, now, out)
        self.timers.arm(worker)

    def _close_breaker(self, crew: Crew, now: float, out: list[Instruction]) -> None:
        """Whoever was kept only because nobody could be started may go now."""
        crew.breaker.close()
        for worker in list(crew.workers.values()):
            self.inspect(worker, now, out)
            self.timers.arm(worker)

    def retire(self, worker: Worker, reason: Leave, now: float, out: list[Instruction]) -> None:
        """Ask it to go. Another takes its place at once, unless the crew is to be smaller."""
        crew = worker.crew
        crew.move(worker, WorkerState.LEAVING)
        crew.retired[reason] += 1
        out.append(RetireWorker(worker.id, reason))
        if crew.breaker.state is BreakerState.TRIAL and not crew.starting:
            crew.breaker.state = BreakerState.OPEN  # that was the trial
        if crew.breaker.state is BreakerState.CLOSED and crew.missing > 0:
            self._start(crew, now, out)

    def kill(self, worker: Worker, fault: Fault, now: float, out: list[Instruction]) -> None:
        """Nothing more is given to it. Another takes its place once it is known to be dead."""
        crew, begun = worker.crew, worker.begun
        crew.move(worker, WorkerState.DOOMED)
        crew.killed[fault] += 1
        out.append(KillWorker(worker.id, fault, begun.batch if begun else None))
        if crew.breaker.state is BreakerState.TRIAL and not crew.starting:
            cause = f"a worker was killed before it was ready ({fault.value})"
            crew.breaker.failed(crew.starts.count, now, cause)

    def lost(self, worker: Worker, cause: str, now: float) -> None:
        """Its process has ended. What it held is handed back by others."""
        crew, begun = worker.crew, worker.begun
        crew.dismiss(worker)
        del self.workers[worker.id]
        if worker.retired and not worker.tasks:
            return
        crew.lost += 1
        if worker.was_ready:
            crew.deaths.lost(now)
            crew.streak.add(begun.batch if begun and begun.attempted else None)
        elif not worker.retired:
            crew.starts.lost(now)
            crew.breaker.failed(crew.starts.count, now, cause)

    # --- limits ------------------------------------------------------------------------------

    def weigh(self, worker: Worker, private: int, now: float, out: list[Instruction]) -> None:
        """Its memory is known anew."""
        worker.private_bytes = private
        limit = self.settings.hard_memory
        if limit is None or private <= limit:
            self.inspect(worker, now, out)
        elif worker.state is not WorkerState.DOOMED:
            self.kill(worker, Fault.MEMORY, now, out)

    def inspect(self, worker: Worker, now: float, out: list[Instruction]) -> None:
        """Retire one that has made enough, or holds too much, or is too old."""
        if worker.replaceable:
            reason = self._worn(worker, now)
            if reason is not None:
                self.retire(worker, reason, now, out)

    def _worn(self, worker: Worker, now: float) -> Leave | None:
        settings = self.settings
        if settings.max_batches is not None and worker.made >= settings.max_batches:
            return Leave.BATCHES
        if settings.soft_memory is not None and worker.private_bytes > settings.soft_memory:
            return Leave.MEMORY
        return Leave.AGE if worker.must_leave() <= now else None

    def overdue(self, worker: Worker, now: float, out: list[Instruction]) -> None:
        """One of its times is up."""
        if worker.must_be_done() <= now:
            self.kill(worker, Fault.DEADLINE, now, out)
        elif worker.must_be_heard() <= now:
            fault = Fault.SILENCE if worker.was_ready else Fault.START
            self.kill(worker, fault, now, out)
        else:
            self.inspect(worker, now, out)
