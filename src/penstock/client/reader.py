"""What all channels have in common: epochs are started, and their batches read in order of steps.

Where batches come from, `Channel` (a hub) and `InlineChannel` (this thread) know. What they deliver
waits in a `Reading` as something that can be opened, which gives the batch or raises what became of
it, and dropped.

One thread reads at a time; any thread may close, also while another one waits, and also a signal
handler in the middle of a read: the last one out lets go of what the channel holds.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from penstock.client.batch import Batch
from penstock.client.deadline import Deadline
from penstock.client.reading import Reading
from penstock.core.events import Batch as BatchName
from penstock.core.plan import EpochPlan
from penstock.errors import ChannelClosed
from penstock.hub.timings import Timing

log = logging.getLogger(__name__)

SLOW_FETCH_S: Final = 1.0
REPORT_EVERY: Final = 1000


class Content(Protocol):
    """What has come of a step."""

    def open(self) -> Batch:
        """The batch; or raises what went wrong with it. Once."""

    def drop(self) -> None:
        """Nobody wants it. Instead of `open`."""


@dataclass(frozen=True, slots=True)
class ReaderStatistics:
    """What a channel's reader has seen."""

    epoch: int
    total: int  # steps of the epoch
    due: int  # the next one to be fetched
    early: int  # have come, and wait to be fetched
    given: int  # batches, of all epochs
    failed: int
    substitutes: int
    copied: int
    held: int  # slots the user holds
    recoveries: int  # how often it was registered again
    fetches: dict[str, Any]  # seconds that `next` took


class Reader(ABC):
    """One stream of batches."""

    def __init__(
        self, name: str, *, slow_fetch: float = SLOW_FETCH_S, report_every: int = REPORT_EVERY
    ) -> None:
        self.name = name
        self.closed = False
        self._owner = os.getpid()
        self._busy = threading.Lock()
        self._reading: Reading[Content] | None = None
        self._started: set[int] = set()
        # True while something is between two places, where an exception would lose it.
        self._unsure = False
        self._slow_fetch = slow_fetch
        self._report_every = report_every
        self._fetching = Timing("fetching")
        self._given = self._failed = self._substitutes = self._copied = 0

    # --- what the two kinds differ in ---

    @property
    @abstractmethod
    def rank(self) -> int:
        """Whose batches these are."""

    @abstractmethod
    def plan(self, first: int = 0) -> EpochPlan:
        """The arithmetic of an epoch that begins at batch `first` of the list."""

    @abstractmethod
    def _begin(self, reading: Reading[Content]) -> None:
        """An epoch was started."""

    @abstractmethod
    def _wait(self, reading: Reading[Content], deadline: Deadline) -> None:
        """Until something more has come; `TimeoutError` if the deadline passes."""

    def _glance(self) -> None:  # noqa: B027 - nothing comes to those who make it themselves
        """Takes in what has come, without waiting."""

    def _hang_up(self) -> None:  # noqa: B027
        """Wakes whoever waits."""

    @abstractmethod
    def _let_go_of_all(self) -> None:
        """Ends everything the channel holds. Nobody is reading."""

    def fileno(self) -> int:
        """What becomes readable when something has come; -1 if there is nothing to wait for.

        It is another one after the hub was lost: ask before each wait.
        """
        return -1

    # --- epochs ---

    @property
    def epoch(self) -> int:
        """The epoch that was started last; -1 before the first."""
        return -1 if self._reading is None else self._reading.epoch

    def start(self, epoch: int, *, first: int = 0, first_step: int = 0) -> None:
        """Starts an epoch, at batch `first` of its list; one that is not newer is ignored.

        What is left of the last epoch is cancelled: none of it will be seen.
        """
        with self._turn(Deadline(None)):
            if epoch <= self.epoch:
                return
            reading: Reading[Content] = Reading(epoch, self.plan(first), self.rank, first_step)
            self._abandon()
            self._reading = reading
            self._started.add(epoch)
            self._begin(reading)

    def is_epoch_done(self, epoch: int) -> bool:
        """Whether every batch of an epoch has ended: has come, failed, or was cancelled."""
        self._check_process()
        if epoch not in self._started or self._reading is None:
            return False
        if epoch == self._reading.epoch and not self.closed:
            self._glance_if_free()
        return epoch < self._reading.epoch or self._reading.complete

    # --- batches ---

    @property
    def ready(self) -> bool:
        """Whether `next` would answer at once."""
        reading = self._reading
        return self.closed or (reading is not None and not self._unsure and reading.ready)

    def next(self, timeout: float | None = None) -> Batch | None:
        """The next batch of the epoch, in order of steps; None at its end.

        Waits for it, at most `timeout` seconds (`TimeoutError`). Raises what became of a batch that
        will not come; the following call goes on with the next one.
        """
        deadline = Deadline(timeout)
        with self._turn(deadline):
            reading = self._reading
            if reading is None:
                raise RuntimeError(f"{self} has no epoch: start one first")
            asked = time.perf_counter()
            while self._unsure or not reading.ready:
                self._check_open()
                self._wait(reading, deadline)
            if reading.over:
                return None
            self._time(reading, time.perf_counter() - asked)
            return self._hand_over(reading)

    def __iter__(self) -> Iterator[Batch]:
        """The batches that are left of the epoch."""
        while (batch := self.next()) is not None:
            yield batch

    def refresh(self, deadline: Deadline) -> None:
        """Takes in what has come, without waiting for more; sees to it that more can come.

        The deadline is for a hub that was lost, and is coming back.
        """
        with self._turn(deadline):
            reading = self._reading
            if reading is None:
                raise RuntimeError(f"{self} has no epoch: start one first")
            if self._unsure or self.fileno() < 0:
                self._wait(reading, deadline)
            else:
                self._glance()

    def statistics(self) -> ReaderStatistics:
        """A snapshot."""
        reading = self._reading
        return ReaderStatistics(
            epoch=self.epoch,
            total=reading.total if reading else 0,
            due=reading.due if reading else 0,
            early=reading.waiting if reading else 0,
            given=self._given,
            failed=self._failed,
            substitutes=self._substitutes,
            copied=self._copied,
            held=self._held(),
            recoveries=self._recoveries(),
            fetches=self._fetching.numbers(),
        )

    def _held(self) -> int:
        return 0

    def _recoveries(self) -> int:
        return 0

    # --- the end ---

    def close(self) -> None:
        """Ends the channel, from any thread; whoever waits in `next` gets `ChannelClosed`.

        Batches that were given stay valid. Idempotent, and never waits.
        """
        if os.getpid() != self._owner:
            return  # a fork's copy; the parent goes on
        self.closed = True
        self._hang_up()
        self._let_go_if_free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a channel cannot be pickled: it belongs to this process. Open one over there, on a "
            "hub that was joined by penstock.connect(address)"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, epoch {self.epoch}>"

    # --- within ---

    @contextmanager
    def _turn(self, deadline: Deadline) -> Iterator[None]:
        """One thread's turn with the channel."""
        self._check_process()
        self._check_open()
        left = deadline.remaining
        if not self._busy.acquire(timeout=-1 if left is None else left):
            raise TimeoutError(f"{self} is in use by another thread")
        try:
            self._check_open()
            yield
        finally:
            self._busy.release()
            if self.closed:
                self._let_go_if_free()

    def _let_go_if_free(self) -> None:
        # Closing sets the flag before it looks here, and whoever has a turn looks at the flag after
        # it: one of the two finds the channel free.
        if self._busy.acquire(blocking=False):
            try:
                self._let_go_of_all()
            finally:
                self._busy.release()

    def _glance_if_free(self) -> None:
        # If it is not, somebody is reading, and takes in what comes.
        if self._busy.acquire(blocking=False):
            try:
                self._glance()
            finally:
                self._busy.release()

    def _hand_over(self, reading: Reading[Content]) -> Batch:
        self._unsure = True
        content = reading.take()
        try:
            batch = content.open()
        except Exception:
            self._failed += 1
            reading.due += 1
            self._unsure = False
            raise
        self._given += 1
        self._substitutes += batch.substitute
        self._copied += batch.copied
        reading.due += 1
        self._unsure = False
        return batch

    def _abandon(self) -> None:
        if self._reading is not None:
            for content in self._reading.abandon():
                content.drop()

    def _time(self, reading: Reading[Content], seconds: float) -> None:
        name = BatchName(-1, reading.epoch, reading.due)
        if self._fetching.add(seconds, self._slow_fetch, name) is not None:
            log.info("slow: %s waited %.3f s for step %d", self, seconds, reading.due)
        timing = self._fetching
        if timing.count % self._report_every == 0:
            what = (timing.count, timing.mean, timing.slow)
            log.info("%s: %d fetches, %.6f s on average, %d slow", self, *what)

    def _check_open(self) -> None:
        if self.closed:
            raise ChannelClosed(f"{self} was closed")

    def _check_process(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"{self} belongs to process {self._owner}, and does not survive a fork: open one "
                "here, on a hub joined by penstock.connect(address); or start processes by 'spawn'"
            )
