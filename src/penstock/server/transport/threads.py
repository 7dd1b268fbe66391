"""Slow work, done by threads; what came of it is told to the event loop.

The event loop never waits. What it hands over here comes back as a call in its own thread, so that
everything about sessions is done by one thread and needs no lock.
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
# Hears what came of it: a value, or the exception.
Then: TypeAlias = Callable[[Any], None]

JOIN_S: Final = 10.0
# Threads that look things up, each of which may need memory for an answer; and that wait for the
# server's end, where the others wait for their turn to wait.
LOOKING_UP: Final = 16
WAITING: Final = 4
# Verbs that wait for nothing, beside those whose names say so.
_QUICK: Final = frozenset({"statistics", "server_statistics", "exit"})


class Wakeup:
    """Calls to be made in the loop's thread, and a descriptor that wakes it."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = threading.Lock()

    def fileno(self) -> int:
        """Readable when there is something to be called."""
        return self._fd

    def call(self, call: Callable[[], None]) -> None:
        """Has this called in the loop's thread; from any thread."""
        self._calls.append(call)
        with self._closing:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def run(self) -> None:
        """Makes the calls; in the loop's thread."""
        if self._fd >= 0:
            with suppress(BlockingIOError):
                os.eventfd_read(self._fd)
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception:  # a mistake of ours: the others are still to be told
                log.exception("what came of some work could not be dealt with")

    def close(self) -> None:
        """Calls that come now are kept, and made by whoever calls `run` last."""
        with self._closing:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """Work for somebody, who may go before it is begun."""

    work: Work
    then: Then
    owner: object


class Threads:
    """Up to `most` threads, started when there is work for them."""

    def __init__(self, name: str, most: int, wakeup: Wakeup) -> None:
        self._name = name
        self._most = most
        self._wakeup = wakeup
        self._jobs: OrderedDict[int, _Job] = OrderedDict()
        self._numbers = count()
        self._waiting: dict[object, set[int]] = {}  # by owner, those that were not begun
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def ask(self, work: Work, then: Then, owner: object = None) -> None:
        """Has work done by a thread, and `then` called in the loop's; called by the loop's."""
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
        """Forgets the work for one who has gone, as far as it was not begun; whom to tell so."""
        with self._changed:
            return [self._jobs.pop(number).then for number in self._waiting.pop(owner, ())]

    def close(self, timeout: float = JOIN_S) -> None:
        """Ends the threads when they have done what they have. Idempotent, and bounded."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
            if thread.is_alive():
                log.warning("%s is still at work, and is left to itself", thread.name)

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            outcome, then = _outcome(job.work), job.then
            self._wakeup.call(lambda then=then, outcome=outcome: then(outcome))  # type: ignore[misc]
            del job, then, outcome  # nothing of it may be kept alive by waiting

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
    """Threads for calls, by what they wait for: who looks something up does not stand behind
    those who wait for batches, nor those behind others who wait for the server's end."""

    def __init__(self, most: int, wakeup: Wakeup) -> None:
        self._looking_up = Threads("penstock-look", LOOKING_UP, wakeup)
        self._by_verb = {"wait_for_exit": Threads("penstock-wait", WAITING, wakeup)}
        self._others = Threads("penstock-answer", most, wakeup)

    def ask(self, verb: str, work: Work, then: Then, owner: object = None) -> None:
        """As `Threads` does, by those for a verb."""
        quick = verb.startswith("get_") or verb in _QUICK
        threads = self._looking_up if quick else self._by_verb.get(verb, self._others)
        threads.ask(work, then, owner)

    def drop(self, owner: object) -> list[Then]:
        """As `Threads` does, by all of them."""
        return [then for threads in self._all for then in threads.drop(owner)]

    def close(self) -> None:
        """Ends them all. Idempotent, and bounded."""
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
