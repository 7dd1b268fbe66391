"""The floor: what workers say and how they end, checked and told to the scheduler.

Workers are not trusted: a user's sampler runs in some of them, and any may have lost its mind. One
that speaks of a batch it was not given is killed, and counts as lost. The pool has read everything
a worker ever said by the time it tells of its end.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from penstock.core.events import BatchBegun, BatchFailed, WorkerBeat, WorkerLost, WorkerReady
from penstock.graph.handles import MemfdHandle
from penstock.hub.channels import batch_of
from penstock.hub.errands import Errands
from penstock.hub.house import House, Loss
from penstock.hub.posts import Post, Task
from penstock.hub.recipes import held_batch
from penstock.hub.reports import SHORT, Mishap, shortened
from penstock.wire.messages import (
    BatchId,
    Begun,
    Done,
    Failed,
    FromWorkerToHub,
    Heartbeat,
    Ready,
    Struck,
    WorkerGone,
)
from penstock.workers.autopsy import Autopsy, examine
from penstock.workers.ended import Ended
from penstock.workers.pool import News, Worker

log = logging.getLogger(__name__)


class Floor:
    """Hears what workers say."""

    def __init__(self, house: House, errands: Errands) -> None:
        self._house = house
        self._errands = errands

    def attend(self, worker: Worker, fd: int) -> None:
        """Something is to be had from one of a worker's descriptors."""
        self._take(self._house.pool.attend(worker, fd))

    def tick(self) -> None:
        """Time has passed that the pool was waiting for."""
        for news in self._house.pool.tick():
            self._take(news)

    def _take(self, news: News) -> None:
        post = self._house.posts.get(news.worker.id)
        for message, fds in news.messages:
            if post is None or post.shunned:
                _close(fds)
            else:
                self._hear(post, message, fds)
        if news.ended is not None and post is not None:
            self._bury(post, news.ended)

    # --- what is said ------------------------------------------------------------------------

    def _hear(self, post: Post, message: FromWorkerToHub, fds: Sequence[int]) -> None:
        now = self._house.now
        if isinstance(message, Done):
            self._done(post, message, fds)
            return
        _close(fds)  # nothing else comes with any
        match message:
            case Begun(batch=named):
                self._begin(post, named)
            case Failed():
                self._failed(post, message)
            case Heartbeat(private=private):
                self._errands.tell(WorkerBeat(now, post.id, private))
            case Ready():
                self._house.staff_changed = True
                self._errands.tell(WorkerReady(now, post.id))
            case Struck():
                pass  # the pool remembers it for the autopsy

    def _done(self, post: Post, done: Done, fds: Sequence[int]) -> None:
        expected = int(isinstance(done.one_off, MemfdHandle))
        task = self._begun(post, done.batch)
        if task is None or len(fds) != expected:
            if task is not None:
                self._shun(post, f"{len(fds)} descriptors came with a batch, not {expected}")
            _close(fds)
            return
        self._off_its_hands(post, task)
        self._errands.finish(post, task, done, fds)
        if done.begins is not None:
            self._begin(post, done.begins)

    def _begin(self, post: Post, named: BatchId) -> None:
        if task := self._first(post, named):
            post.begun = task.batch
            self._errands.tell(BatchBegun(self._house.now, post.id, task.batch))

    def _failed(self, post: Post, failed: Failed) -> None:
        task = self._begun(post, failed.batch)
        if task is None:
            return
        self._off_its_hands(post, task)
        if channel := self._house.channels.get(task.batch.channel):
            channel.note(task.batch, Mishap(task.index, failed.report))
        cause = f"{failed.report.kind}: {_last_line(failed.report.message)}"
        self._errands.tell(BatchFailed(self._house.now, post.id, task.batch, failed.cost, cause))

    def _first(self, post: Post, named: BatchId) -> Task | None:
        """The task a worker is about to begin: the first it has, as it makes them in order."""
        task = next(iter(post.tasks.values()), None)
        if task is not None and task.batch == batch_of(named) and post.begun is None:
            return task
        self._shun(post, f"it began {named}, which was not its turn")
        return None

    def _begun(self, post: Post, named: BatchId) -> Task | None:
        """The task a worker answers for, which must be the one it has begun."""
        if post.begun is not None and post.begun == batch_of(named):
            return post.tasks[post.begun]
        self._shun(post, f"it answered for {named}, which it had not begun")
        return None

    def _off_its_hands(self, post: Post, task: Task) -> None:
        del post.tasks[task.batch]
        post.begun = None

    def _shun(self, post: Post, why: str) -> None:
        log.info("worker %d (pid %d) makes no sense: %s", post.id, post.worker.pid, why)
        post.shunned = True
        post.worker.disbelieve(why, self._house.now)

    # --- its end -----------------------------------------------------------------------------

    def _bury(self, post: Post, ended: Ended) -> None:
        """A worker's process has been reaped: whatever it had goes back."""
        del self._house.posts[post.id]
        self._house.staff_changed = True
        if ended.as_asked:
            log.info("worker %d (pid %d) left as asked", post.id, ended.pid)
            cause = "left as asked"
        else:
            cause = self._examine(post, ended)
        self._errands.tell(WorkerLost(self._house.now, post.id, cause))

    def _examine(self, post: Post, ended: Ended) -> str:
        """Finds out why it died, and keeps that for whoever will ask. The cause, in a sentence."""
        task = post.to_blame
        channel = self._house.channels.get(task.batch.channel) if task else None
        autopsy = examine(ended, held_batch(task, channel) if task and channel else None)
        loss = _loss(autopsy, self._house.now)
        self._house.losses.append(loss)
        # To warn of it is the founder's affair, whose log is where people look.
        log.info("worker %d (pid %d) is lost: %s", post.id, ended.pid, autopsy.verdict)
        self._house.tell_founder(
            WorkerGone(worker=loss.worker, pid=loss.pid, verdict=loss.verdict, batch=loss.batch)
        )
        if task and channel and task.batch in post.tasks:  # else it came after all
            channel.note(task.batch, Mishap(task.index, autopsy))
        if not ended.was_ready:
            self._house.keep_story(ended.crew, autopsy.text())
        return f"worker {post.id} (pid {ended.pid}): {autopsy.verdict}"


def _loss(autopsy: Autopsy, now: float) -> Loss:
    return Loss(
        worker=autopsy.ended.worker,
        pid=autopsy.ended.pid,
        at=now,
        verdict=shortened(autopsy.verdict, SHORT),
        batch=None if autopsy.batch is None else autopsy.batch.describe(),
    )


def _last_line(text: str) -> str:
    lines = text.rstrip().splitlines()
    return lines[-1] if lines else ""


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
