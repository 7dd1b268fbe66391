"""The executor: passes events to the scheduler and carries out its instructions.

It must not decide anything. All messages are sent without blocking: to a worker through its record,
to a rank through its connection. An event that occurs while instructions are carried out (a worker
that cannot be started) is passed to the scheduler after the instructions before it are done.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.core.events import (
    Assign,
    BatchDone,
    BreakChannel,
    Deliver,
    Event,
    Fail,
    FinishEpoch,
    Forget,
    GroupSized,
    Instruction,
    KillWorker,
    RetireWorker,
    StartWorker,
    TrimSlots,
    WorkerLost,
)
from penstock.core.story import Entry
from penstock.errors import PenstockError
from penstock.hub.backends import BUILT_IN, HubBackend
from penstock.hub.channels import HubChannel, batch_id
from penstock.hub.recipes import RECIPES, held_batch, recipe_of, replay_command
from penstock.hub.reports import Mishap, breaker_report, brief, failure_report
from penstock.hub.state import HubState
from penstock.hub.timings import SlowStep
from penstock.hub.worker_records import Assignment, WorkerRecord
from penstock.wire.messages import (
    BatchLost,
    BatchReady,
    ChannelBroken,
    Done,
    EpochDone,
    SampleBatch,
    WorkerGone,
)
from penstock.workers.failures import Failure

log = logging.getLogger(__name__)

REPORT_EVERY: Final = 1000  # fetches of a channel between two log lines about them
WITH_BACKEND: Final = 5  # the factor for the time limit if a channel's end removes its backend


class InDoubt(Exception):
    """An instruction could not be carried out, so the scheduler's state is no longer true.

    Contains the story of the channel concerned, up to the event that led to the instruction.
    """

    def __init__(self, message: str, story: Iterable[Entry] = ()) -> None:
        self.story = tuple(story)
        super().__init__("\n".join([message, *(f"  {entry}" for entry in self.story)]))


class Executor:
    """Passes events to the scheduler, and its instructions to workers and ranks."""

    def __init__(self, state: HubState) -> None:
        self._state = state
        self._events: deque[Event] = deque()
        self._telling = False
        self._finished: tuple[Assignment, Done, Sequence[int]] | None = None

    # --- to the scheduler --------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Pass an event to the scheduler, and carry out its instructions.

        Raises:
            ValueError: The scheduler refused the event; nothing has changed.
            InDoubt: An instruction could not be carried out.
        """
        self._events.append(event)
        if self._telling:
            return
        self._telling = True
        try:
            while self._events:
                event = self._events.popleft()
                self._carry_out_all(event, self._state.scheduler.handle(event))
        finally:
            self._telling = False

    def _carry_out_all(self, event: Event, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            try:
                self._carry_out(instruction)
            except Exception as error:
                story = self._story(Entry(event, tuple(instructions)), instruction)
                raise InDoubt(f"{instruction} was not carried out: {error!r}", story) from error

    def _story(self, last: Entry, instruction: Instruction) -> tuple[Entry, ...]:
        """Return the story of the instruction's channel, or the last event if it has none."""
        batch = getattr(instruction, "batch", None)
        channel = getattr(instruction, "channel", -1) if batch is None else batch.channel
        story = self._state.scheduler.story(channel)
        return story if story[-1:] == (last,) else (*story, last)

    def finish(
        self, record: WorkerRecord, task: Assignment, done: Done, fds: Sequence[int]
    ) -> None:
        """Report a batch that was made, and close `fds`. If no rank wants it, it is dropped."""
        self._finished = task, done, fds
        try:
            self.tell(BatchDone(self._state.now, record.id, task.batch, done.cost))
        finally:
            self._finished = None
            for fd in fds:  # the message to the rank has its own duplicates
                os.close(fd)

    def size_group(self, group: str, workers: int) -> None:
        """Set the number of workers of a group."""
        self._state.groups[group] = workers
        self.tell(GroupSized(self._state.now, group, workers))

    def release(self, backend: HubBackend) -> None:
        """Remove a backend, and a group of its own, if nothing holds it any more."""
        if backend.wanted or self._state.backends.get(backend.number) is not backend:
            return
        for record in self._state.records.values():
            record.forget_backend(backend.number)
        self._state.backends.remove(backend)
        if backend.group != BUILT_IN:
            self._state.groups.pop(backend.group, None)
            self.tell(GroupSized(self._state.now, backend.group, 0, kept=False))

    # --- from the scheduler ------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Assign():
                self._assign(instruction)
            case Deliver():
                self._deliver(instruction)
            case Fail():
                self._fail(instruction)
            case FinishEpoch():
                self._finish_epoch(instruction)
            case BreakChannel():
                self._break(instruction)
            case Forget(channel):
                self._forget(channel)
            case TrimSlots(channel, slots):
                self._trim(channel, slots)
            case StartWorker(worker, group):
                self._start(worker, group)
            case RetireWorker(worker, reason):
                log.info("worker %d is to go (%s)", worker, reason.value)
                self._state.pool.retire(worker)
            case KillWorker(worker, fault, _):
                log.info("worker %d is killed (%s)", worker, fault.value)
                if record := self._state.records.get(worker):
                    record.doom()
                self._state.pool.kill(worker, fault)

    def _assign(self, order: Assign) -> None:
        state = self._state
        record, channel = state.records[order.worker], state.channels[order.batch.channel]
        index = channel.index(order.source)
        record.prepare(channel, state.graph)
        record.tasks[order.batch] = Assignment(
            order.batch, index, order.slot, order.attempt, state.now
        )
        record.send(
            SampleBatch(
                batch=batch_id(order.batch), index=index, slot=order.slot, attempt=order.attempt
            )
        )

    def _deliver(self, order: Deliver) -> None:
        assert self._finished is not None  # a batch is delivered only within `finish`
        task, done, fds = self._finished
        channel = self._state.channels[order.batch.channel]
        channel.mishaps.pop(order.batch, None)
        ready = BatchReady(
            batch=batch_id(order.batch),
            index=task.index,
            slot=order.slot,
            layouts=done.layouts,
            nbytes=done.nbytes,
            facts=done.facts,
            cost=done.cost,
            substitute=order.source != order.batch.step,
            retries=order.retries,
            one_off=done.one_off,
        )
        channel.connection.send(ready, fds)
        self._time(channel, task)

    def _time(self, channel: HubChannel, task: Assignment) -> None:
        now, threshold = self._state.now, self._state.config.pool.slow_step
        _name(channel.handing_out.add(now - task.given, threshold, task.batch), channel)
        asked = channel.asked.get(task.slot, task.given)
        _name(channel.fetching.add(now - asked, threshold, task.batch), channel)
        if (window := channel.fetching.close_window(REPORT_EVERY)) is not None:
            log.info("%s: %s", channel, window)

    def _fail(self, order: Fail) -> None:
        channel = self._state.channels[order.batch.channel]
        mishap = channel.mishap(order.batch)
        batch = None
        if mishap is not None and isinstance(mishap.what, Failure):
            batch = held_batch(channel, order.batch, mishap.index, mishap.what.attempt)
        report = failure_report(order, mishap, batch, self._command(channel, order, mishap))
        lost = BatchLost(
            batch=batch_id(order.batch),
            index=channel.index(order.batch.step),
            report=brief(report) if channel.connection.overfull else report,
        )
        log.info("%s: batch %s will not come: %s", channel, tuple(order.batch), order.cause)
        channel.connection.send(lost)

    def _command(self, channel: HubChannel, order: Fail, mishap: Mishap | None) -> str | None:
        """Return the command that replays the batch; None after the first few of an epoch."""
        if mishap is None or channel.recipes == RECIPES:
            return None
        channel.recipes += 1
        index = mishap.index
        return replay_command(lambda: recipe_of(self._state, channel, order.batch.epoch, index))

    def _finish_epoch(self, order: FinishEpoch) -> None:
        channel = self._state.channels[order.channel]
        channel.connection.send(
            EpochDone(
                channel=order.channel,
                epoch=order.epoch,
                delivered=order.delivered,
                failed=order.failed,
                cancelled=order.cancelled,
            )
        )

    def _break(self, order: BreakChannel) -> None:
        channel = self._state.channels[order.channel]
        group = channel.backend.group
        report = breaker_report(group, order.cause, self._state.stories.get(group, ""))
        log.warning("%s cannot be served: %s", channel, order.cause)
        channel.connection.send(
            ChannelBroken(channel=order.channel, epoch=order.epoch, report=report)
        )

    def _forget(self, number: int) -> None:
        channel = self._state.channels.remove(number)
        for record in self._state.records.values():
            record.forget_channel(number)
        channel.close()
        channel.backend.channels.discard(number)
        self.release(channel.backend)
        self._time_destruction(channel)

    def _time_destruction(self, channel: HubChannel) -> None:
        state, allowed = self._state, self._state.config.pool.slow_step
        if state.backends.get(channel.backend.number) is None:
            allowed *= WITH_BACKEND
        # The clock is read because `now` is the start of the turn, and most channels end within
        # one turn.
        since = state.now if channel.leaving is None else channel.leaving
        _name(state.destroying.add(time.monotonic() - since, allowed), channel)

    def _trim(self, number: int, slots: Sequence[int]) -> None:
        channel = self._state.channels[number]
        if channel.options.keep_pages:  # a GPU may copy from them, wherever their file has others
            return
        try:
            channel.arena.trim(slots)
        except OSError as error:  # the only effect is that the memory stays in use
            log.warning("%s: pages could not be given back: %s", channel, error)

    def _start(self, worker: int, group: str) -> None:
        try:
            started = self._state.pool.start(worker, group, self._state.backends.custom(group))
        except (OSError, PenstockError) as error:
            verdict = f"could not be started: {error}"
            log.info("worker %d %s", worker, verdict)
            self._state.tell_founder(WorkerGone(worker=worker, verdict=verdict))
            self._state.workers_changed = True
            self.tell(WorkerLost(self._state.now, worker, verdict))
            return
        self._state.records[worker] = WorkerRecord(started, self._state.pool)


def _name(step: SlowStep | None, whom: HubChannel) -> None:
    if step is not None:
        batch = f" {tuple(step.batch)}" if step.batch else ""
        log.info("slow: %s%s of %s took %.3f s", step.what, batch, whom, step.seconds)
