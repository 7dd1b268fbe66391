"""A worker group: its workers, which of them can take a batch, and when each must be checked.

A group keeps its own state consistent; `WorkerLifecycle` decides what to do with the workers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from penstock.core.channel import ScheduledChannel, Task
from penstock.core.events import KillReason, Leave
from penstock.core.fair import Mean, RunQueue
from penstock.core.restarts import Backoff, Breaker, BreakerState, Streak
from penstock.core.settings import Settings

FAR = 2.0**20  # virtual seconds; a float of this size still resolves microseconds


class WorkerState(Enum):
    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"  # asked to exit; finishes its batches
    DOOMED = "doomed"  # to be killed; may be dead already


@dataclass(slots=True, eq=False)
class ScheduledWorker:
    """The scheduler's state of one worker process."""

    id: int
    group: WorkerGroup
    started: float
    heard: float
    state: WorkerState = WorkerState.STARTING
    was_ready: bool = False
    retired: bool = False  # it no longer counts for the group's size
    tasks: list[Task] = field(default_factory=list)  # in the order in which it makes them
    made: int = 0
    private_bytes: int = 0
    alarm: float = inf
    alarm_order: int = 0

    @property
    def begun(self) -> Task | None:
        return self.tasks[0] if self.tasks and self.tasks[0].began is not None else None

    def due(self) -> float:
        """Return when to check this worker again. It is called several times for each batch."""
        if self.state is WorkerState.DOOMED:
            return inf
        settings, task = self.group.settings, self.tasks[0] if self.tasks else None
        due = self.heard + settings.silence if self.was_ready else self.must_be_heard()
        if task is not None and task.channel.options.deadline is not None:
            due = min(due, self.must_be_done())
        return due if settings.max_age is None else min(due, self.must_leave())

    def must_be_heard(self) -> float:
        settings = self.group.settings
        if self.was_ready:
            return self.heard + settings.silence
        return self.started + settings.start_limit

    def must_be_done(self) -> float:
        task = self.begun
        if task is None or task.began is None or task.channel.options.deadline is None:
            return inf
        return task.began + task.channel.options.deadline

    def must_leave(self) -> float:
        limit = self.group.settings.max_age
        if limit is None or not self.replaceable:
            return inf
        return self.started + limit

    @property
    def replaceable(self) -> bool:
        """Whether the worker can be replaced. While none can be started, an old one is kept."""
        closed = self.group.breaker.state is BreakerState.CLOSED
        return closed and self.state is WorkerState.READY


@dataclass(slots=True, eq=False)
class WorkerGroup:
    """A group of workers that serve the same channels, and the run queue of those channels."""

    name: str
    settings: Settings
    wanted: int = 0
    kept: bool = True
    workers: dict[int, ScheduledWorker] = field(default_factory=dict)
    channels: dict[int, ScheduledChannel] = field(default_factory=dict)
    queue: RunQueue[ScheduledChannel] = field(default_factory=RunQueue)
    starting: int = 0  # this and the next two: of the workers that are not retired
    ready: int = 0
    dying: int = 0
    # By the number of batches that they hold: the ready workers that can take another one.
    room: list[dict[int, ScheduledWorker]] = field(init=False)
    costs: Mean = field(init=False)
    deaths: Backoff = field(init=False)  # deaths of ready workers since a batch was completed
    starts: Backoff = field(init=False)  # deaths before being ready since a worker became ready
    breaker: Breaker = field(init=False)
    streak: Streak = field(default_factory=Streak)
    alarm: float = inf
    alarm_order: int = 0

    started: int = 0
    lost: int = 0  # unexpectedly, or before answering for all their batches
    done: int = 0
    failed: int = 0
    retired: Counter[Leave] = field(default_factory=Counter)
    killed: Counter[KillReason] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        settings = self.settings
        self.room = [{} for _ in range(settings.worker_concurrency)]
        self.costs = Mean(settings.cost_memory)
        self.deaths = Backoff(settings.backoff_first, settings.death_backoff_most)
        self.starts = Backoff(settings.backoff_first, settings.backoff_most)
        self.breaker = Breaker(settings)

    @property
    def missing(self) -> int:
        """How many workers to start. Dying ones count until they are dead."""
        return self.wanted - self.starting - self.ready - self.dying

    @property
    def stranded(self) -> bool:
        """Whether no worker is ready and none will be started."""
        return self.breaker.state is BreakerState.OPEN and not self.ready

    def over(self, now: float) -> bool:
        """Return whether the group can be removed: it is not kept, and is empty.

        A breaker that has opened is kept until its rest is over.
        """
        return not (self.kept or self.workers or self.channels) and now >= self.breaker.until

    def held_until(self) -> float:
        return max(self.deaths.until, self.starts.until)

    def due(self) -> float:
        """Return when the missing workers may be started."""
        waiting = self.breaker.state is BreakerState.CLOSED and self.missing > 0
        return self.held_until() if waiting else inf

    def rebase(self) -> None:
        """Keep virtual times small, so that rounding does not lose the cost of a small batch."""
        if self.queue.virtual_now > FAR:
            self.queue.rebase(self.channels.values())

    # --- tasks of workers --------------------------------------------------------------------

    def idlest(self, but: ScheduledWorker | None = None) -> ScheduledWorker | None:
        """Return a worker with the fewest batches; the one used last, as its caches are warmest.

        `but` is a worker to leave out.
        """
        for workers in self.room:
            for worker in reversed(workers.values()):
                if worker is not but:
                    return worker
        return None

    def give(self, worker: ScheduledWorker, task: Task) -> None:
        load = len(worker.tasks)
        del self.room[load][worker.id]
        worker.tasks.append(task)
        if load + 1 < len(self.room):
            self.room[load + 1][worker.id] = worker

    def take(self, worker: ScheduledWorker) -> Task:
        """Remove and return the worker's first task, which it has answered for."""
        load = len(worker.tasks)
        if worker.state is WorkerState.READY:
            if load < len(self.room):
                del self.room[load][worker.id]
            self.room[load - 1][worker.id] = worker
        return worker.tasks.pop(0)

    # --- states of workers -------------------------------------------------------------------

    def hire(self, worker: ScheduledWorker) -> None:
        self.workers[worker.id] = worker
        self.starting += 1
        self.started += 1

    def move(self, worker: ScheduledWorker, state: WorkerState) -> None:
        self._leave(worker)
        worker.state = state
        match state:
            case WorkerState.READY:
                self.ready += 1
                self.room[len(worker.tasks)][worker.id] = worker
            case WorkerState.LEAVING:
                worker.retired = True
            case WorkerState.DOOMED:
                self.dying += not worker.retired

    def dismiss(self, worker: ScheduledWorker) -> None:
        """Remove a worker whose process has ended."""
        self._leave(worker)
        worker.state = WorkerState.DOOMED  # so that `due` is infinite
        del self.workers[worker.id]

    def _leave(self, worker: ScheduledWorker) -> None:
        match worker.state:
            case WorkerState.STARTING:
                self.starting -= 1
            case WorkerState.READY:
                self.ready -= 1
                if len(worker.tasks) < len(self.room):
                    del self.room[len(worker.tasks)][worker.id]
            case WorkerState.DOOMED:
                self.dying -= not worker.retired
