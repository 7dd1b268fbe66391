"""What all channels have in common: epochs are started, and their batches read in order of steps.

Where batches come from, `Channel` (a hub) and `InlineChannel` (this thread) know. What they deliver
waits in a `ReorderBuffer` as something that can be opened, which gives the batch or raises what
became of it, and dropped.

One thread reads at a time, and another one that tries is told so. Any thread may close, also while
another one waits, and also a signal handler in the middle of a read: the last one out lets go of
what the channel holds.

Interrupts. Ctrl-C may strike at any instruction. While something is on its way from one place to
another, `_unsure` is set; whoever finds it set resumes at the step that is due: the channel drops
its session, and batches, being pure functions, are made again. A batch that was opened stays in the
buffer until `next` returns it, and is given by the following call if it did not. Locks are taken by
a bare `with`, which an interrupt cannot part from the release.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from penstock.client.channel.batch import Batch
from penstock.client.channel.reorder_buffer import NOTHING_OPEN, ReorderBuffer
from penstock.client.deadline import Deadline
from penstock.core.events import BatchKey
from penstock.core.ids import Ids
from penstock.core.plan import EpochPlan
from penstock.errors import ChannelClosed
from penstock.hub.timings import Timing
from penstock.kernels.arrays import check_word

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
        self._occupied = False  # by a thread that may stay
        self._reading: ReorderBuffer[Content] | None = None
        self._started = Ids()
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
    def _begin(self, reading: ReorderBuffer[Content]) -> None:
        """An epoch was started."""

    @abstractmethod
    def _wait(self, reading: ReorderBuffer[Content], deadline: Deadline) -> None:
        """Until something more has come; `TimeoutError` if the deadline passes."""

    @property
    def _cut_short(self) -> bool:
        """Whether the epoch has ended before its last batch."""
        return False

    def _glance(self) -> None:  # noqa: B027 - nothing comes to those who make it themselves
        """Takes in what has come, without waiting."""

    def _seek(self) -> None:  # noqa: B027
        """Tries for a moment to find another hub, if it was lost."""

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

    @property
    def pending(self) -> bool:
        """Whether something waits to be said: then it is to be woken when there is room, too."""
        return False

    # --- epochs ---

    @property
    def epoch(self) -> int:
        """The epoch that was started last; -1 before the first."""
        return -1 if self._reading is None else self._reading.epoch

    def start(self, epoch: int, *, first: int = 0, first_step: int = 0) -> None:
        """Starts an epoch, at batch `first` of its list; one that is not newer is ignored.

        What is left of the last epoch is cancelled: none of it will be seen.
        """
        epoch, first, first_step = (
            check_word(value, name)
            for name, value in (("epoch", epoch), ("first", first), ("first_step", first_step))
        )
        self._check_free()
        try:
            with self._busy:
                if epoch > self.epoch:
                    self._start(ReorderBuffer(epoch, self.plan(first), self.rank, first_step))
        finally:
            self._leave()

    def _start(self, reading: ReorderBuffer[Content]) -> None:
        self._abandon()
        self._reading = reading
        self._started.add(reading.epoch)
        self._begin(reading)

    def is_epoch_done(self, epoch: int) -> bool:
        """Whether every batch of an epoch has ended: has come, failed, or was cancelled.

        To look is enough, also after a hub was lost (`HubGone` if for good). But batches come ahead
        of their reader only so far as there are slots, and never if they are made in this process.
        """
        self._check_process()
        if epoch not in self._started or self._reading is None:
            return False
        if epoch == self._reading.epoch and not self.closed:
            self._look_if_free(self._reading)
        return epoch < self._reading.epoch or self._reading.complete or self._cut_short

    # --- batches ---

    @property
    def ready(self) -> bool:
        """Whether `next` would answer at once."""
        reading = self._reading
        if self.closed:
            return True
        return reading is not None and not self._unsure and reading.ready

    def next(self, timeout: float | None = None) -> Batch | None:
        """The next batch of the epoch, in order of steps; None at its end.

        Waits for it, at most `timeout` seconds (`TimeoutError`). Raises what became of a batch that
        will not come; the following call goes on with the next one.
        """
        deadline = Deadline(timeout)
        self._check_free()
        try:
            with self._busy:
                self._occupied = True
                try:
                    reading = self._take(deadline)
                finally:
                    self._occupied = False
        finally:
            if self.closed:
                self._leave()
        if reading is None:
            return None
        batch: Batch | None = reading.opened[1]
        error = reading.opened[2]
        # From here on it is the caller's.
        reading.due += 1
        reading.opened = NOTHING_OPEN
        if error is None:
            return batch
        try:
            raise error
        finally:
            del error  # or it would hold on to itself, by way of this frame

    def rewind(self, step: int) -> None:
        """Goes back to a step of the epoch: it and all after it are given again.

        For whoever took a batch, and was interrupted before it was of any use.
        """
        self._check_free()
        try:
            with self._busy:
                reading = self._check_started()
                if step != reading.due:
                    self._unsure = True
                    self._abandon()
                    reading.due = step
        finally:
            self._leave()

    def __iter__(self) -> Iterator[Batch]:
        """The batches that are left of the epoch."""
        return iter(self.next, None)  # not a generator, which would hold on to the last one

    def _take(self, deadline: Deadline) -> ReorderBuffer[Content] | None:
        """Waits for what is due, and opens it; None at the end of the epoch."""
        reading = self._check_started()
        if not reading.is_open:
            asked = time.perf_counter()
            while self._unsure or not reading.ready:
                self._check_open()
                self._wait(reading, deadline)
            if reading.over:
                return None
            self._time(reading, time.perf_counter() - asked)
            self._open(reading)
        return reading

    def _open(self, reading: ReorderBuffer[Content]) -> None:
        self._unsure = True
        try:
            batch = reading.take().open()
        except Exception as error:
            name = f"epoch {reading.epoch}, step {reading.due}, batch {reading.index(reading.due)}"
            error.add_note(f"{name} of channel {self.name!r}")
            reading.opened = reading.due, None, error.with_traceback(None)
            self._failed += 1
        else:
            reading.opened = reading.due, batch, None
            self._given += 1
            self._substitutes += batch.substitute
            self._copied += batch.copied
        self._unsure = False

    def refresh(self, deadline: Deadline) -> None:
        """Takes in what has come, without waiting for more; sees to it that more can come.

        The deadline is for a hub that was lost, and is coming back.
        """
        self._check_free()
        try:
            with self._busy:
                self._occupied = True
                try:
                    self._look_after(self._check_started(), deadline)
                finally:
                    self._occupied = False
        finally:
            self._leave()

    def _look_after(self, reading: ReorderBuffer[Content], deadline: Deadline) -> None:
        self._glance()
        if self._unsure or self.fileno() < 0:  # nothing can come as it is
            self._wait(reading, deadline)

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
        self._leave()

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

    def _leave(self) -> None:
        """Said by everyone on the way out: the last one out lets go of a channel that is closed."""
        # Closing sets the flag before it comes here, and whoever was inside looks at the flag after
        # leaving: one of the two finds the channel free.
        if self.closed and not self._busy.locked():
            with self._busy:
                self._let_go_of_all()

    def _look_if_free(self, reading: ReorderBuffer[Content]) -> None:
        # If it is not, somebody is reading, and takes in what comes.
        if self._busy.locked():
            return
        try:
            with self._busy:
                self._glance()
                if not (reading.complete or self._cut_short):
                    self._seek()
        finally:
            self._leave()

    def _abandon(self) -> None:
        if self._reading is not None:
            for content in self._reading.abandon():
                content.drop()

    def _time(self, reading: ReorderBuffer[Content], seconds: float) -> None:
        name = BatchKey(-1, reading.epoch, reading.due)
        if self._fetching.add(seconds, self._slow_fetch, name) is not None:
            log.info("slow: %s waited %.3f s for step %d", self, seconds, reading.due)
        timing = self._fetching
        if timing.count % self._report_every == 0:
            what = (timing.count, timing.mean, timing.slow)
            log.info("%s: %d fetches, %.6f s on average, %d slow", self, *what)

    def _check_started(self) -> ReorderBuffer[Content]:
        if self._reading is None:
            raise RuntimeError(f"{self} has no epoch: start one first")
        return self._reading

    def _check_open(self) -> None:
        if self.closed:
            raise ChannelClosed(f"{self} was closed")

    def _check_free(self) -> None:
        self._check_process()
        self._check_open()
        if self._occupied:
            raise RuntimeError(f"{self} is being read by another thread: one at a time")

    def _check_process(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"{self} belongs to process {self._owner}, and does not survive a fork: open one "
                "here, on a hub joined by penstock.connect(address); or start processes by 'spawn'"
            )
