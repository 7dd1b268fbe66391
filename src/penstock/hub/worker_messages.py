"""Handles the messages and the ends of workers: checks them, and passes events to the scheduler.

Workers are not trusted: some run a user's sampler, and any may have corrupt memory. A worker that
reports on a batch it was not given is killed, and counts as lost. Before the pool reports a
worker's end, it has read everything that the worker ever sent.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from penstock.core.events import BatchBegun, BatchFailed, WorkerBeat, WorkerLost, WorkerReady
from penstock.graph.handles import MemfdHandle
from penstock.hub.channels import batch_of
from penstock.hub.instructions import Executor
from penstock.hub.recipes import held_batch
from penstock.hub.reports import SHORT, Mishap, shortened
from penstock.hub.state import HubState, Loss
from penstock.hub.worker_records import Assignment, WorkerRecord
from penstock.wire.messages import (
    BatchId,
    Begun,
    Done,
    Failed,
    FromWorkerToHub,
    Heartbeat,
    Moved,
    OutOfMemory,
    Ready,
    WorkerGone,
)
from penstock.workers.autopsy import Autopsy, examine
from penstock.workers.ended import Ended
from penstock.workers.failures import Failure, is_passing
from penstock.workers.pool import News, WorkerHandle

log = logging.getLogger(__name__)


class WorkerMessages:
    """Handles the messages and the ends of workers."""

    def __init__(self, state: HubState, executor: Executor) -> None:
        self._state = state
        self._executor = executor

    def attend(self, worker: WorkerHandle, fd: int) -> None:
        """Handle input on one of a worker's descriptors."""
        self._take(self._state.pool.attend(worker, fd))

    def tick(self) -> None:
        """Handle what has become due in the pool."""
        for news in self._state.pool.tick():
            self._take(news)

    def _take(self, news: News) -> None:
        record = self._state.records.get(news.worker.id)
        for message, fds in news.messages:
            if record is None or record.distrusted:
                _close(fds)
            else:
                self._hear(record, message, fds)
        if news.ended is not None and record is not None:
            self._report_end(record, news.ended)

    # --- messages ----------------------------------------------------------------------------

    def _hear(self, record: WorkerRecord, message: FromWorkerToHub, fds: Sequence[int]) -> None:
        now = self._state.now
        if isinstance(message, Done):
            self._done(record, message, fds)
            return
        _close(fds)  # no other message has descriptors
        match message:
            case Begun(batch=named):
                self._begin(record, named)
            case Failed():
                self._failed(record, message)
            case Heartbeat(private=private):
                self._executor.tell(WorkerBeat(now, record.id, private))
            case Ready():
                self._state.workers_changed = True
                self._executor.tell(WorkerReady(now, record.id))
            case OutOfMemory():
                pass  # the pool keeps it for the autopsy

    def _done(self, record: WorkerRecord, done: Done, fds: Sequence[int]) -> None:
        expected = int(isinstance(done.one_off, MemfdHandle))
        task = self._begun(record, done.batch)
        if task is None or len(fds) != expected:
            if task is not None:
                self._distrust(record, f"{len(fds)} descriptors came with a batch, not {expected}")
            _close(fds)
            return
        self._off_its_hands(record, task)
        if done.moved is not None:
            self._state.moved = (self._state.moved or Moved()).plus(done.moved)
            for text in done.notices:
                self._state.tell_once(text)
        self._executor.finish(record, task, done, fds)
        if done.begins is not None:
            self._begin(record, done.begins)

    def _begin(self, record: WorkerRecord, named: BatchId) -> None:
        if task := self._first(record, named):
            record.begun = task.batch
            self._executor.tell(BatchBegun(self._state.now, record.id, task.batch))

    def _failed(self, record: WorkerRecord, failed: Failed) -> None:
        task = self._begun(record, failed.batch)
        if task is None:
            return
        self._off_its_hands(record, task)
        failure = Failure(
            report=failed.report,
            classes=failed.classes,
            pid=record.worker.pid,
            host=self._state.host,
            private=failed.private,
            worker=record.id,
            attempt=task.attempt,
        )
        passing = False
        if channel := self._state.channels.get(task.batch.channel):
            channel.note(task.batch, Mishap(task.index, failure))
            passing = is_passing(failed.classes, channel.options.retry_on)
        cause = f"{failed.report.kind}: {failure.verdict}"
        log.info("batch %s raised in worker %d: %s", tuple(task.batch), record.id, cause)
        self._executor.tell(
            BatchFailed(self._state.now, record.id, task.batch, failed.cost, cause, passing)
        )

    def _first(self, record: WorkerRecord, named: BatchId) -> Assignment | None:
        """Return the task a worker begins. It must be its first: it makes them in order."""
        task = next(iter(record.tasks.values()), None)
        if task is not None and task.batch == batch_of(named) and record.begun is None:
            return task
        self._distrust(record, f"it began {named}, which was not its turn")
        return None

    def _begun(self, record: WorkerRecord, named: BatchId) -> Assignment | None:
        """Return the task that a worker answers for, which must be the one it has begun."""
        if record.begun is not None and record.begun == batch_of(named):
            return record.tasks[record.begun]
        self._distrust(record, f"it answered for {named}, which it had not begun")
        return None

    def _off_its_hands(self, record: WorkerRecord, task: Assignment) -> None:
        del record.tasks[task.batch]
        record.begun = None

    def _distrust(self, record: WorkerRecord, why: str) -> None:
        log.info("worker %d (pid %d) broke the protocol: %s", record.id, record.worker.pid, why)
        record.distrusted = True
        record.worker.disbelieve(why, self._state.now)

    # --- ends of workers ---------------------------------------------------------------------

    def _report_end(self, record: WorkerRecord, ended: Ended) -> None:
        """Report a worker whose process was reaped; the scheduler reassigns its batches."""
        del self._state.records[record.id]
        self._state.workers_changed = True
        if ended.as_asked:
            log.info("worker %d (pid %d) left as asked", record.id, ended.pid)
            cause = "left as asked"
        else:
            cause = self._examine(record, ended)
        self._executor.tell(WorkerLost(self._state.now, record.id, cause))

    def _examine(self, record: WorkerRecord, ended: Ended) -> str:
        """Find out why a worker died, record it, and return the cause in one sentence."""
        task = record.to_blame
        channel = self._state.channels.get(task.batch.channel) if task else None
        batch = None
        if task and channel:
            batch = held_batch(channel, task.batch, task.index, task.attempt)
        autopsy = examine(ended, batch, host=self._state.host)
        loss = _loss(autopsy, self._state.now)
        self._state.losses.append(loss)
        # The founder logs the warning, because users look at its log and not at the hub's.
        log.info("worker %d (pid %d) is lost: %s", record.id, ended.pid, autopsy.verdict)
        self._state.tell_founder(
            WorkerGone(worker=loss.worker, pid=loss.pid, verdict=loss.verdict, batch=loss.batch)
        )
        if task and channel and task.batch in record.tasks:  # otherwise the batch was completed
            channel.note(task.batch, Mishap(task.index, autopsy))
        if not ended.was_ready:
            self._state.keep_story(ended.group, autopsy.text())
        return f"worker {record.id} (pid {ended.pid}): {autopsy.verdict}"


def _loss(autopsy: Autopsy, now: float) -> Loss:
    return Loss(
        worker=autopsy.ended.worker,
        pid=autopsy.ended.pid,
        at=now,
        verdict=shortened(autopsy.verdict, SHORT),
        batch=None if autopsy.batch is None else autopsy.batch.describe(),
    )


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
