"""The workers' processes, as the hub holds them. The scheduler decides; the pool carries out.

The pool starts, asks, kills and reaps when it is told to, and says what happened. When to do so is
the scheduler's affair; what messages mean is the hub's. It never waits: all there is to wait for
stands in the hub's selector, with the `WorkerHandle` as its data, and `due` says when the pool
wants to be called without any of it.

    for key, _ in selector.select(timeout):
        if isinstance(key.data, Worker):
            news = pool.attend(key.data, key.fd)      # messages, in order; and then its end
    for news in pool.tick(): ...                      # when due

A worker's end is told once: after its process is reaped, so that nothing of it can write any more,
and after everything it had said is read, so that a batch it finished counts.
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
    """What a worker said, in order, with the descriptors that came along; and then its end."""

    worker: WorkerHandle
    messages: Heard = ()
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """The pool's numbers since it began. `exits` counts the ends by exit code or signal."""

    started: int
    ended: int
    exits: Mapping[str, int]
    workers: tuple[WorkerStatistics, ...]


class Pool:
    """All workers of a hub. `fds` are the graph's descriptors; they stay the caller's.

    Workers inherit the environment, with `environment` on top. `oom` looks at the kernel's
    counters; without it, those of the control group this process is in. `pidfds=False` is for
    systems that have none: a worker's end is then noticed by its hanging up.
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
        """Those that have been started and not been reaped."""
        return MappingProxyType(self._workers)

    # --- what the hub tells it to do ---

    def start(
        self, number: int, group: str = "", sampler: CustomSpec | None = None
    ) -> WorkerHandle:
        """Starts a process under a new number, and sends it its outfit.

        `sampler` is the user's, for a group that has one: loaded before the worker is ready.
        OSError where the system refuses: then nothing is left of it.
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
        """Says something to a worker; what does not fit into the socket goes out later.

        To one that is gone or going, nothing is said: its end is told.
        """
        worker = self._workers.get(number)
        if worker is None or worker.stream.ended:
            return
        try:
            worker.stream.send(message, fds)
        except OSError:
            # No descriptor was left to keep the message by. A worker that missed one is no use.
            worker.kill(Breach.UNTOLD, self._clock())
        self._heed(worker)

    def retire(self, number: int) -> None:
        """Asks a worker to answer for what it has, and to go."""
        worker = self._workers.get(number)
        if worker is not None and worker.alive and not worker.asked_to_leave:
            worker.leave()
            self.send(number, Retire())

    def kill(self, number: int, why: KillReason) -> None:
        """Ends a worker: has it show its stacks if it can, and kills it right after.

        In the meantime what it says is heard as ever.
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

    # --- what happened ---

    def attend(self, worker: WorkerHandle, fd: int) -> News:
        """Takes what there is to take from one of a worker's descriptors."""
        if worker.state is ChildState.ENDED:
            return News(worker)  # told already, in the same turn
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
        """When `tick` wants to be called, by the pool's clock; None: not at all."""
        due: float | None = None
        for worker in self._workers.values():
            for at in (worker.kill_at, worker.ask_at):
                if at is not None and (due is None or at < due):
                    due = at
        return due

    def tick(self) -> list[News]:
        """Does what is due by now."""
        now = self._clock()
        for worker in self._workers.values():
            if worker.kill_at is not None and worker.kill_at <= now:
                worker.time_is_up(now)
        asked = [w for w in self._workers.values() if w.ask_at is not None and w.ask_at <= now]
        return [news for worker in asked if (news := self._reap(worker, now)).ended is not None]

    def statistics(self) -> PoolStatistics:
        """The numbers, now."""
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

    # --- the end of all ---

    def close(self, *, ask: float = 2.0, terminate: float = 1.0, kill: float = 5.0) -> list[Ended]:
        """Ends all workers, within bounds: asks them, waits, terminates, kills. Safe to repeat.

        This one waits: at most the sum of its arguments, in seconds. What workers say meanwhile
        goes unheard. A process that even SIGKILL cannot end hangs in the kernel, and is left there.
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
        """Does this to all that are left, and waits for their end."""
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

    # --- what the selector watches ---

    def _watch(self, worker: WorkerHandle) -> None:
        worker.watched = selectors.EVENT_READ
        for fd in (worker.stream.fileno(), worker.output.fd, worker.process.pidfd):
            self._watch_for(worker, fd, selectors.EVENT_READ)

    def _heed(self, worker: WorkerHandle) -> None:
        """Watches for what can still come: what has ended would be "readable" for ever."""
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
