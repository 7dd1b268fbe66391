"""The pool: the hub's worker processes. The scheduler decides; the pool carries out.

The pool starts, asks, kills and reaps workers when it is told to, and reports what happened. When
to do so is decided by the scheduler; what messages mean, by the hub. It never waits: every
descriptor is in the hub's selector, with the `WorkerHandle` as its data, and `due` says when the
pool has to be called even if none of them is ready.

    for key, _ in selector.select(timeout):
        if isinstance(key.data, WorkerHandle):
            news = pool.attend(key.data, key.fd)      # messages, in order; and then its end
    for news in pool.tick(): ...                      # when due

A worker's end is reported once: after its process is reaped, so that it cannot write any more, and
after all its messages are read, so that a batch it finished counts.
"""

from __future__ import annotations

import os
import selectors
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from penstock.core.events import KillReason
from penstock.errors import PenstockError
from penstock.graph.sharing import GraphHandle
from penstock.options import PoolOptions
from penstock.sampling.spec import CustomSpec
from penstock.wire.messages import FromHubToWorker, Retire, WorkerConfig
from penstock.workers.child import ChildState, Heard, WorkerHandle, WorkerStatistics
from penstock.workers.ended import Breach, Ended
from penstock.workers.oom import OomWatch

__all__ = ["ChildState", "Heard", "News", "Pool", "PoolStatistics", "WorkerHandle"]

# The program a worker runs.
MODULE: Final = "penstock.workers.worker"


@dataclass(frozen=True, slots=True)
class News:
    """A worker's messages, in order, with the descriptors that came along; and then its end."""

    worker: WorkerHandle
    messages: Heard = ()
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Totals since the pool began. `exits` counts the ends by exit code or signal."""

    started: int
    ended: int
    exits: Mapping[str, int]
    workers: tuple[WorkerStatistics, ...]


class Pool:
    """All workers of a hub.

    Args:
        graph: The graph's handle.
        fds: The graph's descriptors; they stay the caller's.
        selector: The hub's selector.
        environment: Added to the environment, which workers inherit.
        oom: Reads the kernel's counters; by default those of this process's control group.
        pidfds: False for systems without pidfds: a worker's end is then noticed when its connection
            closes.
    """

    def __init__(
        self,
        graph: GraphHandle,
        fds: Sequence[int],
        selector: selectors.BaseSelector,
        *,
        search_path: Sequence[str] = (),
        options: PoolOptions | None = None,
        environment: Mapping[str, str] | None = None,
        oom: OomWatch | None = None,
        clock: Callable[[], float] = time.monotonic,
        module: str = MODULE,
        pidfds: bool = True,
    ) -> None:
        self._graph = graph
        self._fds = tuple(fds)
        self._selector: selectors.BaseSelector | None = selector
        self._search_path = tuple(search_path)
        self._options = options or PoolOptions()
        self._environment = dict(environment or {})
        self._oom = oom or OomWatch.own()
        self._clock = clock
        self._module = module
        self._pidfds = pidfds
        self._workers: dict[int, WorkerHandle] = {}
        self._started = 0
        self._exits: Counter[str] = Counter()

    @property
    def workers(self) -> Mapping[int, WorkerHandle]:
        """Return the workers that were started and not reaped yet."""
        return MappingProxyType(self._workers)

    # --- instructions of the hub --- ---

    def start(
        self, number: int, group: str = "", sampler: CustomSpec | None = None
    ) -> WorkerHandle:
        """Start a process under a new number, and send it its `WorkerConfig`.

        Args:
            number: The worker's number.
            group: Its worker group.
            sampler: The group's user sampler, if any; it is loaded before the worker is ready.

        Raises:
            OSError: The system refuses; nothing is left of the process.
        """
        if self._selector is None:
            raise PenstockError("the pool is closed")
        if number in self._workers:
            raise ValueError(f"there is a worker {number} already")
        now = self._clock()
        self._oom.look(now)
        worker = self._spawn(number, group, now)
        self._workers[number] = worker
        self._started += 1
        self._watch(worker)
        self.send(number, self._config(number, sampler), self._fds)
        return worker

    def send(self, number: int, message: FromHubToWorker, fds: Sequence[int] = ()) -> None:
        """Send a message to a worker; what does not fit into the socket is sent later.

        Does nothing if the worker is gone or going: its end will be reported.
        """
        worker = self._workers.get(number)
        if worker is None or worker.stream.ended:
            return
        try:
            worker.stream.send(message, fds)
        except OSError:
            # No descriptor was left to keep the message. A worker that missed one is of no use.
            worker.kill(Breach.UNTOLD, self._clock())
        self._heed(worker)

    def retire(self, number: int) -> None:
        """Ask a worker to finish what it has, and to go."""
        worker = self._workers.get(number)
        if worker is not None and worker.alive and not worker.asked_to_leave:
            worker.leave()
            self.send(number, Retire())

    def kill(self, number: int, why: KillReason) -> None:
        """Have a worker show its stacks, if it can, and kill it right after.

        Until then its messages are handled as usual.
        """
        worker = self._workers.get(number)
        if worker is not None and worker.alive:
            worker.show_and_die(why, self._clock())

    def _spawn(self, number: int, group: str, now: float) -> WorkerHandle:
        return WorkerHandle.spawn(
            number,
            group,
            now,
            module=self._module,
            environment=self._environment,
            pidfds=self._pidfds,
        )

    def _config(self, number: int, sampler: CustomSpec | None) -> WorkerConfig:
        return WorkerConfig(
            worker=number,
            graph=self._graph,
            search_path=self._search_path,
            pool=self._options,
            sampler=sampler,
        )

    # --- events --- ------

    def attend(self, worker: WorkerHandle, fd: int) -> News:
        """Handle what one of a worker's descriptors is ready for."""
        if worker.state is ChildState.ENDED:
            return News(worker)  # reported already, in the same turn
        now = self._clock()
        if fd == worker.output.fd:
            worker.drain_output(now)
            self._heed(worker)
            return News(worker)
        if fd == worker.process.pidfd:
            return self._reap(worker, now)
        if worker.stream.pending:
            worker.stream.flush()
        heard = worker.hear(now)
        self._oom.look(now)
        self._heed(worker)
        return News(worker, heard)

    @property
    def due(self) -> float | None:
        """Return when `tick` must be called, by the pool's clock; None: not at all."""
        due: float | None = None
        for worker in self._workers.values():
            for at in (worker.kill_at, worker.ask_at):
                if at is not None and (due is None or at < due):
                    due = at
        return due

    def tick(self) -> list[News]:
        """Do what is due by now."""
        now = self._clock()
        for worker in self._workers.values():
            if worker.kill_at is not None and worker.kill_at <= now:
                worker.time_is_up(now)
        asked = [w for w in self._workers.values() if w.ask_at is not None and w.ask_at <= now]
        return [news for worker in asked if (news := self._reap(worker, now)).ended is not None]

    def statistics(self) -> PoolStatistics:
        """Return a snapshot."""
        now = self._clock()
        return PoolStatistics(
            started=self._started,
            ended=self._exits.total(),
            exits=dict(self._exits),
            workers=tuple(worker.statistics(now) for worker in self._workers.values()),
        )

    def _reap(self, worker: WorkerHandle, now: float) -> News:
        if not worker.reap(now):
            return News(worker)
        heard = worker.last_words(now)
        ended = worker.ended(self._oom, now)
        self._exits[ended.exit.words] += 1
        self._let_go(worker)
        return News(worker, heard, ended)

    # --- closing --- ------

    def close(self, *, ask: float = 2.0, terminate: float = 1.0, kill: float = 5.0) -> list[Ended]:
        """End all workers in a bounded time: ask, terminate, then kill. Safe to repeat.

        Unlike all else here it waits: at most the sum of its arguments, in seconds. Messages of
        workers are ignored meanwhile. A process that even SIGKILL cannot end hangs in the kernel,
        and is left there.
        """
        with selectors.DefaultSelector() as selector:
            self._move(selector)
            ended = [
                *self._see_off(selector, self._ask_to_leave, ask),
                *self._see_off(selector, self._terminate, terminate),
                *self._see_off(selector, self._kill, kill),
            ]
            for worker in list(self._workers.values()):
                self._let_go(worker)
            self._selector = None
        return ended

    def _ask_to_leave(self, worker: WorkerHandle) -> None:
        if worker.process.stopped or not worker.alive:
            self._kill(worker)
        else:
            self.retire(worker.id)

    def _terminate(self, worker: WorkerHandle) -> None:
        worker.terminate(Breach.CLOSING, self._clock())

    def _kill(self, worker: WorkerHandle) -> None:
        worker.kill(Breach.CLOSING, self._clock())

    def _see_off(
        self, selector: selectors.BaseSelector, act: Callable[[WorkerHandle], None], patience: float
    ) -> list[Ended]:
        """Do this to all that are left, and wait for their end."""
        for worker in self._workers.values():
            act(worker)
        deadline = time.monotonic() + patience
        ended: list[Ended] = []
        while self._workers and (left := deadline - time.monotonic()) > 0:
            keys = selector.select(left if self.due is None else min(left, 0.01))
            news = [*(self.attend(key.data, key.fd) for key, _ in keys), *self.tick()]
            ended += [item.ended for item in news if item.ended is not None]
            for fd in (fd for item in news for _, fds in item.messages for fd in fds):
                os.close(fd)
        return ended

    # --- the selector --- ------------

    def _watch(self, worker: WorkerHandle) -> None:
        worker.watched = selectors.EVENT_READ
        for fd in (worker.stream.fileno(), worker.output.fd, worker.process.pidfd):
            self._watch_for(worker, fd, selectors.EVENT_READ)

    def _heed(self, worker: WorkerHandle) -> None:
        """Watch only what can still come: a descriptor at its end would stay "readable"."""
        if worker.state is ChildState.ENDED:
            return
        stream = worker.stream
        writing = selectors.EVENT_WRITE if stream.pending else 0
        wanted = 0 if stream.ended else selectors.EVENT_READ | writing
        if wanted != worker.watched:
            worker.watched = wanted
            self._watch_for(worker, stream.fileno(), wanted)
        if worker.output.ended:
            self._watch_for(worker, worker.output.fd, 0)

    def _watch_for(self, worker: WorkerHandle, fd: int, events: int) -> None:
        assert self._selector is not None
        watched = self._selector.get_map()
        if fd < 0 or watched is None:  # the hub closed its selector before the pool
            return
        if fd not in watched:
            if events:
                self._selector.register(fd, events, worker)
        elif not events:
            self._selector.unregister(fd)
        elif watched[fd].events != events:
            self._selector.modify(fd, events, worker)

    def _unwatch(self, worker: WorkerHandle) -> None:
        for fd in (worker.stream.fileno(), worker.output.fd, worker.process.pidfd):
            self._watch_for(worker, fd, 0)

    def _move(self, selector: selectors.BaseSelector) -> None:
        for worker in self._workers.values():
            self._unwatch(worker)
        self._selector = selector
        for worker in self._workers.values():
            self._watch(worker)
            self._heed(worker)

    def _let_go(self, worker: WorkerHandle) -> None:
        self._unwatch(worker)
        del self._workers[worker.id]
        worker.close()
