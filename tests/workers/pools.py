"""What tests of the pool have in common: a small graph, a loop like the hub's, and patience."""

from __future__ import annotations

import os
import select
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from penstock.graph import Graph
from penstock.options import PoolOptions
from penstock.sampling.spec import Feed, NeighborSpec
from penstock.wire.messages import (
    BatchId,
    Begun,
    FromWorkerToHub,
    OpenBackend,
    OpenChannel,
    SampleBatch,
)
from penstock.workers.arena import Arena
from penstock.workers.ended import Ended
from penstock.workers.pool import News, Pool, WorkerHandle

ROOT = Path(__file__).parents[2]
# How long anything may take before a test gives up. Never a measure of speed.
PATIENCE_S = 60.0
M = TypeVar("M")


def small_graph() -> Graph:
    return Graph.from_coo(np.array([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]]), num_nodes=4)


class Rehearsal:
    """A pool in a loop of its own, which remembers all that happened."""

    def __init__(self, graph: Graph, **settings: Any) -> None:
        self.selector = selectors.DefaultSelector()
        names = set(PoolOptions.__struct_fields__) & set(settings)
        options = PoolOptions(**{name: settings.pop(name) for name in names})
        fds = graph.descriptors
        self.pool = Pool(graph.handle(), fds, self.selector, options=options, **settings)
        self.messages: list[FromWorkerToHub] = []
        self.ended: dict[int, Ended] = {}

    def turn(self, limit: float) -> None:
        """Waits until something happens, or something is due, and takes it all."""
        due = self.pool.due
        wait = limit if due is None else min(limit, max(0.0, due - time.monotonic()))
        keys = self.selector.select(wait)
        for key, _ in keys:
            self._take(self.pool.attend(key.data, key.fd))
        for news in self.pool.tick():
            self._take(news)

    def until(self, reached: Callable[[], bool], every: float = PATIENCE_S) -> None:
        """Turns the loop until something is so; `every` is for what no descriptor tells of."""
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            left = deadline - time.monotonic()
            assert left > 0, f"nothing came of it; heard: {self.messages[-5:]}, {self.ended}"
            self.turn(min(left, every))

    def until_ended(self, number: int) -> Ended:
        self.until(lambda: number in self.ended)
        return self.ended[number]

    def until_heard(self, kind: type[M], count: int = 1) -> M:
        """The last of so many messages of a kind."""

        def of_kind() -> list[M]:
            return [message for message in self.messages if isinstance(message, kind)]

        self.until(lambda: len(of_kind()) >= count)
        return of_kind()[-1]

    def start_ready(self, number: int) -> WorkerHandle:
        """A worker that has said it is ready."""
        worker = self.pool.start(number)
        self.until(lambda: worker.was_ready or number in self.ended)
        assert worker.was_ready, self.ended[number].printed
        return worker

    def _take(self, news: News) -> None:
        for message, fds in news.messages:
            assert news.worker.id not in self.ended, "heard after its end"
            self.messages.append(message)
            for fd in fds:
                os.close(fd)
        if news.ended is not None:
            assert news.worker.id not in self.ended, "told twice"
            self.ended[news.worker.id] = news.ended


@contextmanager
def rehearsal(behaviour: str | None = None, **settings: Any) -> Iterator[Rehearsal]:
    """A pool of real workers, or of understudies that behave as they are told."""
    if behaviour is not None:
        settings.setdefault("module", "tests.workers.understudy")
        settings["environment"] = {
            "PYTHONPATH": str(ROOT),
            "UNDERSTUDY": behaviour,
            **settings.get("environment", {}),
        }
    with small_graph() as graph:
        pool = Rehearsal(graph, **settings)
        try:
            yield pool
        finally:
            pool.pool.close(ask=0.0, terminate=0.0)
            pool.selector.close()


def begin_a_batch(stage: Rehearsal, worker: WorkerHandle, arena: Arena, index: int = 0) -> BatchId:
    """Has a real worker begin a batch."""
    batch = BatchId(1, 0, worker.id)
    feed = Feed(num_inputs=4, batch_size=1)
    stage.pool.send(worker.id, OpenBackend(backend=1, spec=NeighborSpec(num_neighbors=(2,))))
    channel = OpenChannel(channel=1, backend=1, feed=feed, arena=arena.plan)
    stage.pool.send(worker.id, channel, arena.descriptors)
    stage.pool.send(worker.id, SampleBatch(batch=batch, index=index, slot=0, attempt=1))
    stage.until(lambda: Begun(batch=batch) in stage.messages)
    return batch


def stop(worker: WorkerHandle) -> None:
    """SIGSTOP, and sees it take effect: the kernel tells a parent when a child has stopped."""
    worker.process.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)


def wait_for_the_end(pid: int) -> bool:
    """Whether a process, anybody's child, ends within our patience."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], PATIENCE_S)[0])
    finally:
        os.close(pidfd)
