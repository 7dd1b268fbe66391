"""What all channels have in common: epochs are started, and batches are read in order of steps.

`Channel` (from a hub) and `InlineChannel` (in this thread) know where batches come from. They put
each into a `ReorderBuffer` as a `Content`: it can be opened, which returns the batch or raises why
there is none, or dropped.

One thread reads at a time; another that tries gets an error. Any thread may close the channel, also
while another one waits, and so may a signal handler in the middle of a read: whoever leaves last
releases what the channel holds.

Interrupts: Ctrl-C may strike at any instruction. `_unsure` is set while something moves from one
place to another. Whoever finds it set resumes at the step that is due: the channel drops its
session, and batches, which are pure functions, are made again. An opened batch stays in the buffer
until `next` returns it; if `next` was interrupted, the following call returns it. Locks are taken
by a bare `with`, so that an interrupt cannot leave them locked.
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
from penstock.core.events import BatchKey
from penstock.core.ids import Ids
from penstock.core.plan import EpochPlan
from penstock.errors import ChannelClosed
from penstock.hub.timings import Timing
from penstock.kernels.arrays import check_word
from penstock.rpc.deadline import Deadline

log = logging.getLogger(__name__)

SLOW_FETCH_S: Final = 1.0
REPORT_EVERY: Final = 1000


class Content(Protocol):
    """What has come for a step."""

    def open(self) -> Batch:
        """Return the batch, or raise what went wrong with it. Called at most once."""

    def drop(self) -> None:
        """Release the batch unread. Called instead of `open`."""


@dataclass(frozen=True, slots=True)
class ReaderStatistics:
    """What a channel's reader has counted."""

    epoch: int
    total: int  # steps of the epoch
    due: int  # the next step to be fetched
    early: int  # steps that have come and were not fetched yet
    given: int  # batches, of all epochs
    failed: int
    substitutes: int
    retries: int  # attempts at those batches that raised before
    copied: int
    held: int  # slots that the user holds
    recoveries: int  # how often the channel was registered again
    fetches: dict[str, Any]  # seconds that `next` took


class Reader(ABC):
    """One rank's stream of batches, wherever they come from."""

    def __init__(
        self, name: str, *, slow_fetch: float = SLOW_FETCH_S, report_every: int = REPORT_EVERY
    ) -> None:
        self.name = name
        self.closed = False
        self._owner = os.getpid()
        self._busy = threading.Lock()
        self._occupied = False  # by a thread that may wait
        self._reading: ReorderBuffer[Content] | None = None
        self._started = Ids()
        # True while something moves between two places, where an exception would lose it.
        self._unsure = False
        self._slow_fetch = slow_fetch
        self._report_every = report_every
        self._fetching = Timing("fetching")
        self._given = self._failed = self._substitutes = self._retries = self._copied = 0

    # --- hooks for the two kinds of channels ---

    @property
    @abstractmethod
    def rank(self) -> int:
        """The rank that reads this channel."""

    @abstractmethod
    def plan(self, first: int = 0) -> EpochPlan:
        """Return the plan of an epoch that begins at batch `first` of the list."""

    @abstractmethod
    def _begin(self, reading: ReorderBuffer[Content]) -> None:
        """Begin the epoch that was started."""

    @abstractmethod
    def _wait(self, reading: ReorderBuffer[Content], deadline: Deadline) -> None:
        """Wait until something more has come; `TimeoutError` if the deadline passes first."""

    @property
    def _cut_short(self) -> bool:
        """Whether the epoch has ended before its last batch."""
        return False

    def _glance(self) -> None:  # noqa: B027 - nothing comes to a channel that samples itself
        """Process what has come, without waiting."""

    def _seek(self) -> None:  # noqa: B027
        """Try for a moment to reach another hub, if the hub was lost."""

    def _hang_up(self) -> None:  # noqa: B027
        """Wake the thread that waits, if any."""

    @abstractmethod
    def _let_go_of_all(self) -> None:
        """Release everything that the channel holds. Called when nobody reads."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when something has come; -1 if there is none.

        It changes when the hub is lost, so ask before each wait.
        """
        return -1

    @property
    def pending(self) -> bool:
        """Whether something waits to be sent; then wait until the descriptor is writable, too."""
        return False

    @property
    def room(self) -> int | None:
        """How many more batches may be held before they are copied; None: any number."""
        return None

    # --- epochs ---

    @property
    def epoch(self) -> int:
        """The epoch that was started last; -1 before the first."""
        return -1 if self._reading is None else self._reading.epoch

    def start(self, epoch: int, *, first: int = 0, first_step: int = 0) -> None:
        """Start an epoch at batch `first` of its list; an epoch that is not newer is ignored.

        What is left of the last epoch is cancelled: none of it will be returned.
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
        """Return whether every batch of an epoch has ended: has come, failed, or was cancelled.

        Calling this repeatedly is enough to make progress, also after a hub was lost (`HubGone` if
        it is lost for good). But batches come ahead of their reader only as far as there are slots,
        and never if they are sampled in this process.
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
        """Return the next batch of the epoch, in order of steps; None at its end.

        Args:
            timeout: Seconds to wait at most; None for no limit.

        Raises:
            TimeoutError: The batch has not come in time.
            Exception: The batch will not come, and why. The following call goes on with the next
                one.
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
        # From here on the batch is the caller's.
        reading.due += 1
        reading.opened = NOTHING_OPEN
        if error is None:
            return batch
        try:
            raise error
        finally:
            del error  # breaks the reference cycle from the error to this frame and back

    def rewind(self, step: int) -> None:
        """Go back to a step of the epoch: that step and all after it are returned again.

        This is for a caller that was interrupted between taking a batch and using it.
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
        """Return an iterator over the remaining batches of the epoch."""
        return iter(self.next, None)  # not a generator, which would keep the last batch alive

    def _take(self, deadline: Deadline) -> ReorderBuffer[Content] | None:
        """Wait for the step that is due, and open it; return None at the end of the epoch."""
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
            self._retries += batch.retries
            self._copied += batch.copied
        self._unsure = False

    def refresh(self, deadline: Deadline) -> None:
        """Process what has come, without waiting for more; make sure that more can come.

        The deadline limits only the wait for a lost hub to come back.
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
        if self._unsure or self.fileno() < 0:  # nothing can come over the present session
            self._wait(reading, deadline)

    def statistics(self) -> ReaderStatistics:
        """Return a snapshot of the statistics."""
        reading = self._reading
        return ReaderStatistics(
            epoch=self.epoch,
            total=reading.total if reading else 0,
            due=reading.due if reading else 0,
            early=reading.waiting if reading else 0,
            given=self._given,
            failed=self._failed,
            substitutes=self._substitutes,
            retries=self._retries,
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
        """Close the channel, from any thread; a thread that waits in `next` gets `ChannelClosed`.

        Batches that were returned stay valid. Idempotent, and never waits.
        """
        if os.getpid() != self._owner:
            return  # this is a fork's copy; the parent goes on reading
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

    # --- internals ---

    def _leave(self) -> None:
        """Release a closed channel, if nobody else is using it. Everyone calls this when done."""
        # `close` sets the flag before it comes here, and a reader looks at the flag after it has
        # released the lock: so one of the two finds the channel free.
        if self.closed and not self._busy.locked():
            with self._busy:
                self._let_go_of_all()

    def _look_if_free(self, reading: ReorderBuffer[Content]) -> None:
        # If it is locked, another thread is reading, and processes what comes.
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
        if (window := self._fetching.close_window(self._report_every)) is not None:
            log.info("%s: %s", self, window)

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
