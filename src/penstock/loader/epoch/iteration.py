"""Iterate over an epoch: batches in order, each counted as delivered when it is returned.

An exception (Ctrl-C included) may be raised at any point between the channel and the user. Then the
channel is ahead of what was delivered (`Run.astray`), and it is rewound when the iteration goes on.
Only one thread may read at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psutil

from penstock.client.channel.batch import Batch
from penstock.client.hub.hub import Hub
from penstock.errors import HubGone
from penstock.loader import errors
from penstock.loader.epoch.run import Run
from penstock.loader.pyg.mixins import workers_of

if TYPE_CHECKING:
    from penstock.loader.pyg.base import Loader


@dataclass(slots=True, eq=False)
class _Outcome:
    """The result of one step, and the step that follows. No batch: the epoch's end, or an error."""

    following: int
    batch: Batch | None = None
    data: Any = None
    nbytes: int = 0
    error: Exception | None = None


class Iteration(Iterator[Any]):
    """The iterator that `iter(loader)` returns. It keeps the loader alive.

    A loader may have several, read in turns. The one that began last uses the loader's own channel.
    An older one that is asked again continues with another channel, at the batch it was due.
    """

    def __init__(self, loader: Loader, run: Run, states: int) -> None:
        self._loader = loader
        self._run = run
        self._states = states  # restored states at that time
        self._batches_from = loader._batches_from
        self._begun = False
        self._ahead: deque[_Outcome] = deque()  # taken from the channel, not delivered

    def __len__(self) -> int:
        """Return the number of steps of the epoch, including those already taken, as torch does."""
        return self._run.plan.batches_per_rank

    @property
    def iterator(self) -> Iteration:
        """Return this object; PyG's iterators have torch's iterator in this attribute."""
        return self

    @property
    def _workers(self) -> list[psutil.Process]:
        """The pool's workers as processes with a `pid`, for code that expects torch's workers."""
        hub = self._loader._batches_from.hub()
        return [psutil.Process(pid) for pid in workers_of(hub)] if isinstance(hub, Hub) else []

    def __next__(self) -> Any:
        loader, run = self._loader, self._run
        if not self._begun:
            run = self._run = loader._begin(run, self._states)
            self._states = loader._states
            self._begun = run.touched = True
        if run.is_over and not self._batches_from.is_for(run):
            raise StopIteration  # again: other iterators read now
        loader._go_on(run, self._states)
        if not self._batches_from.is_for(run):
            run.astray = True
            self._batches_from = loader._batches_from.beside(run)
        if run.astray:
            self._ahead.clear()
            self._batches_from.resume(run)
        run.astray = True
        outcome = self._outcome()
        if (batch := outcome.batch) is not None:
            loader._meter.count(batch, outcome.nbytes)
        # From here on the batch counts as delivered.
        run.step = outcome.following
        run.astray = False
        if batch is not None:
            return outcome.data
        if outcome.error is None:
            raise StopIteration
        try:
            raise outcome.error
        finally:
            del outcome  # this frame would keep the error, and the error the frame

    def _outcome(self) -> _Outcome:
        """Return the outcome that is due; begin to move batches that are there, meanwhile."""
        loader, ahead = self._loader, self._ahead
        if loader._transfer is None:
            return self._made()
        loader._transfer.want()
        while not ahead or (self._has_room() and self._is_near()):
            ahead.append(self._made())
        outcome = ahead.popleft()
        if outcome.batch is None:
            return outcome
        try:
            outcome.data = loader._deliver(outcome.data, outcome.batch, self._run)
        except Exception as error:
            loader._meter.failed += 1
            return _Outcome(outcome.following, error=error)
        return outcome

    def _has_room(self) -> bool:
        assert self._loader._transfer is not None
        if self._run.by_user:  # nothing is moved beside the model
            return False
        # The first of them is about to be delivered.
        return self._loader._transfer.has_room([outcome.data for outcome in self._ahead][1:])

    def _is_near(self) -> bool:
        """Return whether another batch of the epoch is available without waiting."""
        last = self._ahead[-1]
        return (
            last.batch is not None
            and last.following < self._run.plan.batches_per_rank
            and self._batches_from.is_ready(self._run)
        )

    def _made(self) -> _Outcome:
        """Take the next batch and turn it into what the user wants."""
        due = self._ahead[-1].following if self._ahead else self._run.step
        try:
            batch = self._taken(due)
        except Exception as error:
            passed = self._batches_from.due(self._run, due)
            if passed == due:  # the step has not ended: it can be asked for again
                # A hub that was given up sends nothing more, but another one can be started.
                self._run.astray = bool(self._ahead) or isinstance(error, HubGone)
                raise
            self._loader._meter.failed += 1
            return _Outcome(passed, error=error)
        if batch is None:
            self._loader._meter.pause()
            return _Outcome(due)
        nbytes = batch.nbytes
        try:
            data = self._loader._prepare(batch, self._run)
            # Without its arrays: the slot that they are in is not the reader's for longer than it
            # takes to move them.
            batch = replace(batch, arrays={}, memory=None)
            return _Outcome(batch.step + 1, batch, data, nbytes=nbytes)
        except Exception as error:
            self._loader._meter.failed += 1
            return _Outcome(batch.step + 1, error=error)

    def _taken(self, due: int) -> Batch | None:
        loader, run = self._loader, self._run
        try:
            with loader._meter.at("sampling"):
                if loader._transfer is not None:
                    loader._transfer.make_room(self._batches_from.room)
                if run.is_adhoc:
                    return run.make(loader._made(), due)
                return self._batches_from.next(loader.timeout or None)
        except TimeoutError as error:
            if not loader.timeout or self._batches_from.due(run, due) != due:
                raise
            who = type(loader).__name__
            raise errors.timed_out(who, loader.timeout, due) from error
