"""A scheduler spoken to in few words, for stories written by hand; its invariants always hold."""

from __future__ import annotations

from typing import TypeVar

from penstock.core.events import (
    Assign,
    BatchBegun,
    BatchDone,
    BatchFailed,
    EpochStarted,
    Event,
    GroupSized,
    Instruction,
    SlotReturned,
    StartWorker,
    Tick,
    WorkerLost,
    WorkerReady,
)
from penstock.core.scheduler import Scheduler, Settings
from tests.core.scheduler_entries import registered

Kind = TypeVar("Kind", bound=Instruction)


class Hub:
    """A scheduler with a group "c", spoken to in few words; `now` is moved by hand."""

    def __init__(self, workers: int = 1, **settings: object) -> None:
        self.scheduler = Scheduler(Settings(**{"worker_concurrency": 1} | settings))  # type: ignore[arg-type]
        self.now = 0.0
        starts = self.send(GroupSized(0.0, "c", workers))
        self.workers = [order.worker for order in only(StartWorker, starts)]

    def send(self, event: Event) -> list[Instruction]:
        answer = self.scheduler.handle(event)
        self.scheduler.check()
        return answer

    def ready(self, *workers: int) -> list[Instruction]:
        """These become ready; all of the first group if none is named."""
        answers = [self.send(WorkerReady(self.now, w)) for w in workers or self.workers]
        return [order for answer in answers for order in answer]

    def register(
        self, channel: int, slots: int = 2, **channel_options: object
    ) -> list[Instruction]:
        return self.send(registered(self.now, channel, "c", slots, **channel_options))  # type: ignore[arg-type]

    def start(self, channel: int, steps: int, epoch: int = 0) -> list[Instruction]:
        return self.send(EpochStarted(self.now, channel, epoch, range(steps)))

    def begin(self, order: Assign) -> list[Instruction]:
        return self.send(BatchBegun(self.now, order.worker, order.batch))

    def done(self, order: Assign, cost: float = 1.0) -> list[Instruction]:
        return self.send(BatchDone(self.now, order.worker, order.batch, cost))

    def failed(self, order: Assign, cause: str = "bad seed") -> list[Instruction]:
        return self.send(BatchFailed(self.now, order.worker, order.batch, 1.0, cause))

    def lose(self, worker: int, cause: str = "SIGKILL") -> list[Instruction]:
        return self.send(WorkerLost(self.now, worker, cause))

    def give_back(self, order: Assign) -> list[Instruction]:
        return self.send(SlotReturned(self.now, order.batch.channel, order.slot))

    def tick(self, now: float) -> list[Instruction]:
        self.now = now
        return self.send(Tick(now))


def only(kind: type[Kind], answer: list[Instruction]) -> list[Kind]:
    return [order for order in answer if isinstance(order, kind)]


def one(answer: list[Instruction]) -> Assign:
    """The only batch handed out in this answer."""
    (order,) = only(Assign, answer)
    return order
