"""Thread pools for slow work; results return to the event loop.

The event loop never waits. The result of work it hands over here comes back as a call in the loop's
own thread. So one thread does everything that concerns sessions, and no locks are needed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any, Final, TypeAlias

log = logging.getLogger(__name__)

Work: TypeAlias = Callable[[], Any]
# Receives the result of the work: a value, or the exception.
Then: TypeAlias = Callable[[Any], None]

JOIN_S: Final = 10.0
# LOOKING_UP: threads for lookups; there are few because each may need memory for an answer.
# WAITING: threads for calls that wait for the server's end; further ones queue for a thread.
LOOKING_UP: Final = 16
WAITING: Final = 4
# Threads for calls that connect to other servers, which may not answer.
REACHING: Final = 2
# Verbs that do not wait for batches, in addition to those whose names start with `get_`.
_QUICK: Final = frozenset({"statistics", "server_statistics", "exit"})


class Wakeup:
    """Calls to be made in the loop's thread, and a descriptor that wakes the loop."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = threading.Lock()

    def fileno(self) -> int:
        """Return the descriptor; it is readable when there are calls to make."""
        return self._fd

    def call(self, call: Callable[[], None]) -> None:
        """Have `call` called in the loop's thread. Thread-safe."""
        self._calls.append(call)
        with self._closing:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def run(self) -> None:
        """Make the calls that wait. Must run in the loop's thread."""
        if self._fd >= 0:
            with suppress(BlockingIOError):
                os.eventfd_read(self._fd)
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception:  # our own bug; the remaining calls must still be made
                log.exception("handling the result of a thread failed")

    def close(self) -> None:
        """Close the descriptor. Later calls are kept for whoever calls `run` last."""
        with self._closing:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """Work for an owner that may be gone before the work begins."""

    work: Work
    then: Then
    owner: object


class Threads:
    """A pool of up to `most` threads, which are started when there is work for them."""

    def __init__(self, name: str, most: int, wakeup: Wakeup) -> None:
        self._name = name
        self._most = most
        self._wakeup = wakeup
        self._jobs: OrderedDict[int, _Job] = OrderedDict()
        self._numbers = count()
        self._waiting: dict[object, set[int]] = {}  # jobs not yet begun, by owner
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def ask(self, work: Work, then: Then, owner: object = None) -> None:
        """Have a thread do the work, and `then` called in the loop's thread. Loop thread only."""
        with self._changed:
            if self._closed:
                return
            if len(self._jobs) >= self._idle and len(self._threads) < self._most:
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            number = next(self._numbers)
            self._jobs[number] = _Job(work, then, owner)
            self._waiting.setdefault(owner, set()).add(number)
            self._changed.notify()

    def drop(self, owner: object) -> list[Then]:
        """Drop the work of an owner that has gone, unless it has begun.

        Returns:
            The `then` callbacks of the dropped work; the caller has to call them.
        """
        with self._changed:
            return [self._jobs.pop(number).then for number in self._waiting.pop(owner, ())]

    def close(self, timeout: float = JOIN_S) -> None:
        """End the threads once all queued work is done. Idempotent, and takes a bounded time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
            if thread.is_alive():
                log.warning("%s is still running, and is not waited for", thread.name)

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            outcome, then = _outcome(job.work), job.then
            self._wakeup.call(lambda then=then, outcome=outcome: then(outcome))  # type: ignore[misc]
            del job, then, outcome  # an idle thread must not keep any of these alive

    def _next(self) -> _Job | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._jobs or self._closed)
            self._idle -= 1
            return self._first() if self._jobs else None

    def _first(self) -> _Job:
        number, job = self._jobs.popitem(last=False)
        of_owner = self._waiting[job.owner]
        of_owner.discard(number)
        if not of_owner:
            del self._waiting[job.owner]
        return job


class CallThreads:
    """Thread pools for calls, chosen by what a call waits for.

    So lookups do not queue behind calls that wait for batches, and those do not queue behind calls
    that wait for the server's end, or for another server.
    """

    def __init__(self, most: int, wakeup: Wakeup) -> None:
        self._looking_up = Threads("penstock-look", LOOKING_UP, wakeup)
        self._by_verb = {
            "wait_for_exit": Threads("penstock-wait", WAITING, wakeup),
            "announce": Threads("penstock-reach", REACHING, wakeup),
        }
        self._others = Threads("penstock-answer", most, wakeup)

    def ask(self, verb: str, work: Work, then: Then, owner: object = None) -> None:
        """Do as `Threads.ask`, with the pool for this verb."""
        quick = verb.startswith("get_") or verb in _QUICK
        threads = self._looking_up if quick else self._by_verb.get(verb, self._others)
        threads.ask(work, then, owner)

    def drop(self, owner: object) -> list[Then]:
        """Do as `Threads.drop`, with all pools."""
        return [then for threads in self._all for then in threads.drop(owner)]

    def close(self) -> None:
        """End all pools. Idempotent, and takes a bounded time."""
        for threads in self._all:
            threads.close()

    @property
    def _all(self) -> tuple[Threads, ...]:
        return (*self._by_verb.values(), self._looking_up, self._others)


def _outcome(work: Work) -> Any:
    try:
        return work()
    except Exception as error:
        return error
