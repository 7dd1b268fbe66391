"""The scheduler: decides which channel is next, what is retried and which worker is replaced.

It is a pure state machine: events in, instructions out (`Scheduler.handle`), without clock, threads
or I/O. Time comes with the events, and the caller carries out the instructions in their order.
Channels (`channel`), groups (`worker_group`), shares (`fair`) and the lives of workers
(`worker_lifecycle`) keep their own state; this module routes events to them and batches to workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import reduce
from math import inf, isfinite
from typing import Any

from penstock.core.channel import Quarantined, ScheduledChannel, Task, Wait
from penstock.core.events import (
    Assign,
    BatchBegun,
    BatchDone,
    BatchFailed,
    BatchKey,
    ChannelRegistered,
    ChannelUnregistered,
    EpochStarted,
    Event,
    GroupSized,
    Instruction,
    InvalidEvent,
    SlotReturned,
    Tick,
    TrimSlots,
    UnknownChannel,
    WeightChanged,
    WorkerBeat,
    WorkerLost,
    WorkerReady,
    check_registration,
    check_size,
    check_weight,
)
from penstock.core.ids import Ids
from penstock.core.invariants import check
from penstock.core.restarts import Streak
from penstock.core.settings import Settings
from penstock.core.statistics import SchedulerStatistics, Totals, in_words, of_channel, of_group
from penstock.core.story import Entry, FalseReport, SchedulerError
from penstock.core.timers import Timers
from penstock.core.worker_group import ScheduledWorker, WorkerGroup, WorkerState
from penstock.core.worker_lifecycle import WorkerLifecycle

__all__ = [
    "FalseReport",
    "InvalidEvent",
    "Scheduler",
    "SchedulerError",
    "Settings",
    "UnknownChannel",
]


class Scheduler:
    """Takes every event, in the order in which they happened, and returns instructions."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._now = -inf
        self._channels: dict[int, ScheduledChannel] = {}
        self._groups: dict[str, WorkerGroup] = {}
        self._ids = Ids()
        self._timers: Timers[ScheduledWorker | WorkerGroup | ScheduledChannel] = Timers()
        self._lifecycle = WorkerLifecycle(self.settings, self._timers)
        self._quarantined: deque[Quarantined] = deque(maxlen=self.settings.quarantine_length)
        self._out: list[Instruction] = []
        self._touched: list[ScheduledChannel] = []
        self._events = 0
        self._past = Totals()  # of the channels that have been removed

    def handle(self, event: Event) -> list[Instruction]:
        """Handle one event and return the instructions to carry out, in order.

        Raises:
            InvalidEvent: A field of the event is not valid.
            UnknownChannel: The event names a channel that was never registered.
            FalseReport: A worker reports something impossible.
            SchedulerError: Something failed inside; the scheduler must not be used any more. An
                event refused with one of the other errors changes nothing.
        """
        reaction, before = _REACTIONS[type(event)], self._now
        if event.now > before:
            self._now = event.now
        try:
            reaction(self, event)
        except (InvalidEvent, UnknownChannel, FalseReport):
            self._now = before
            raise
        except Exception as error:
            raise SchedulerError(f"{error!r}", self._telling(event)) from error
        self._events += 1
        out, self._out = self._out, []
        if self._touched:
            entry = event, tuple(out)
            for channel in self._touched:
                channel.story.add(entry)
            self._touched = []
        return out

    def next_wakeup(self) -> float | None:
        """Return when the next Tick is due; None if nothing waits for time to pass."""
        return self._timers.next()

    # --- groups ------------------------------------------------------------------------------

    def _group_sized(self, event: GroupSized) -> None:
        check_size(event)
        group = self._groups.setdefault(event.group, WorkerGroup(event.group, self.settings))
        group.kept = event.kept
        self._lifecycle.resize(group, event.workers, self._now, self._out)
        self._lifecycle.ask(group, self._now, self._out)
        self._serve(group)
        for over in [group for group in self._groups.values() if group.over(self._now)]:
            del self._groups[over.name]

    def _serve(self, group: WorkerGroup) -> None:
        """Hand out batches after a change of the group's workers.

        If no worker can be started, the open epochs of the group's channels end here.
        """
        if group.stranded:
            for channel in group.channels.values():
                if channel.epoch.open:
                    channel.give_up(group.breaker.cause, self._now, self._out)
                    self._refresh(channel)
        self._dispatch(group)

    def _dispatch(self, group: WorkerGroup) -> None:
        """Hand out batches of the channel furthest behind while any worker has room."""
        group.rebase()
        queue = group.queue
        while (worker := group.idlest()) is not None:
            channel = queue.pop()
            if channel is None:
                return
            self._hand_out(channel, group, worker)

    def _hand_out(
        self, channel: ScheduledChannel, group: WorkerGroup, worker: ScheduledWorker
    ) -> None:
        task = channel.hand_out(self._out)
        if task is not None:
            if task.avoids == worker.id:
                worker = group.idlest(but=worker) or worker
            group.give(worker, task)
            self._out.append(Assign(worker.id, task.batch, task.slot, task.source, task.attempt))
        wait = channel.wants()
        if wait is Wait.TURN:  # It could be served all the time, so its virtual time stays.
            group.queue.push(channel)
        channel.wait_for(wait, self._now)
        self._touched.append(channel)

    # --- channels ----------------------------------------------------------------------------

    def _channel_registered(self, event: ChannelRegistered) -> None:
        check_registration(event, self._ids.last)
        group = self._groups.get(event.group)
        if group is None:
            raise InvalidEvent(f"channel {event.channel}: there is no group {event.group!r}")
        channel = ScheduledChannel.open(event, self.settings, group.costs, self._quarantined)
        channel.since = self._now
        self._ids.add(event.channel)
        self._channels[event.channel] = group.channels[event.channel] = channel
        self._lifecycle.ask(group, self._now, self._out)
        self._touched.append(channel)

    def _weight_changed(self, event: WeightChanged) -> None:
        check_weight(event.weight)
        channel = self._channels.get(event.channel)
        if channel is not None:
            channel.weight = event.weight
            self._touched.append(channel)

    def _epoch_started(self, event: EpochStarted) -> None:
        channel = self._channels.get(event.channel)
        if channel is None and event.channel not in self._ids:
            raise UnknownChannel(event.channel)
        if channel is None or channel.leaving or event.epoch <= channel.epoch.number:
            return
        group = self._groups[channel.group]
        channel.start(event.epoch, event.steps, self._now, self._out)
        self._lifecycle.ask(group, self._now, self._out)
        self._refresh(channel)
        self._serve(group)

    def _slot_returned(self, event: SlotReturned) -> None:
        channel = self._channels.get(event.channel)
        if channel is None:
            return
        if channel.slots.take_back(event.slot, self._now):
            self._refresh(channel)
            self._dispatch(self._groups[channel.group])
        else:
            channel.stray_returns += 1
            self._touched.append(channel)

    def _channel_unregistered(self, event: ChannelUnregistered) -> None:
        channel = self._channels.get(event.channel)
        if channel is not None and not channel.leaving:
            channel.leave(self._now, self._out)
            self._refresh(channel)

    def _refresh(self, channel: ScheduledChannel) -> None:
        """Update a channel's place in the run queue after its slots, steps or cost changed."""
        queue = self._groups[channel.group].queue
        wait = channel.wants()
        if wait is Wait.TURN:
            if channel.place:
                queue.renew(channel)
            else:
                queue.wake(channel)
        elif channel.place:
            queue.remove(channel)
        channel.wait_for(wait, self._now)
        self._touched.append(channel)
        if channel.alarm == inf:
            self._timers.arm(channel)
        if channel.gone:
            del self._channels[channel.id]
            del self._groups[channel.group].channels[channel.id]
            self._past = self._past.plus(channel)

    # --- workers -----------------------------------------------------------------------------

    def _heard(self, worker: int) -> ScheduledWorker | None:
        """Return the worker and note that it is alive; None if it is already gone."""
        found = self._lifecycle.workers.get(worker)
        if found is not None:
            found.heard = self._now
        return found

    def _worker_ready(self, event: WorkerReady) -> None:
        worker = self._heard(event.worker)
        if worker is not None:
            self._lifecycle.ready(worker, self._now, self._out)
            self._dispatch(worker.group)

    def _worker_beat(self, event: WorkerBeat) -> None:
        worker = self._heard(event.worker)
        if worker is not None:
            self._lifecycle.weigh(worker, event.private_bytes, self._now, self._out)
            self._serve(worker.group)

    def _worker_lost(self, event: WorkerLost) -> None:
        worker = self._lifecycle.workers.get(event.worker)
        if worker is None:
            return
        group = worker.group
        self._lifecycle.lost(worker, event.cause, self._now)
        failing = group.streak.covers(group.wanted)
        for task in reversed(worker.tasks):
            task.channel.lost(task, event.cause, self._now, self._out, excusable=failing)
            self._refresh(task.channel)
        self._lifecycle.fill(group, self._now, self._out)
        self._serve(group)

    # --- batches -----------------------------------------------------------------------------

    def _batch_begun(self, event: BatchBegun) -> None:
        worker = self._lifecycle.workers.get(event.worker)
        if worker is None:
            return
        task = self._first_task(worker, event.batch, event)
        if task.began is not None:
            raise FalseReport(f"worker {worker.id} began {event.batch} twice", self._telling(event))
        worker.heard = task.began = self._now
        task.too_late = worker.state is WorkerState.DOOMED
        if task.channel.options.deadline is not None:
            self._timers.arm(worker)
        self._touched.append(task.channel)

    def _batch_done(self, event: BatchDone) -> None:
        worker = self._lifecycle.workers.get(event.worker)
        if worker is None:
            return
        task = self._answer(worker, event)
        self._completed(worker.group)
        task.channel.deliver(task, worker.id, self._now, self._out)
        self._after_answer(worker, task.channel)

    def _batch_failed(self, event: BatchFailed) -> None:
        worker = self._lifecycle.workers.get(event.worker)
        if worker is None:
            return
        task = self._answer(worker, event)
        worker.group.failed += 1
        task.channel.raised(task, worker.id, event.cause, event.passing, self._now, self._out)
        if task.channel.delayed:
            self._timers.arm(task.channel)
        self._after_answer(worker, task.channel)

    def _answer(self, worker: ScheduledWorker, event: BatchDone | BatchFailed) -> Task:
        """Take the answered task from the worker, and settle its cost."""
        task = self._first_task(worker, event.batch, event)
        worker.heard = self._now
        worker.group.take(worker)
        worker.made += 1
        cost = event.cost if isfinite(event.cost) else task.channel.estimate()
        cost = max(cost, self.settings.least_cost)
        task.channel.answered(task, cost)
        worker.group.costs.add(cost)
        return task

    def _completed(self, group: WorkerGroup) -> None:
        """Count a completed batch; it ends the back-off and the streak after workers' deaths."""
        group.done += 1
        if group.streak.lost:
            group.streak = Streak()
        if group.deaths.count:
            group.deaths.reset()
            self._lifecycle.fill(group, self._now, self._out)

    def _after_answer(self, worker: ScheduledWorker, channel: ScheduledChannel) -> None:
        self._refresh(channel)
        self._lifecycle.inspect(worker, self._now, self._out)
        self._serve(worker.group)

    def _first_task(self, worker: ScheduledWorker, batch: BatchKey, event: Event) -> Task:
        """Return the worker's first task; raise FalseReport if `batch` is another one.

        Workers make their batches in the order in which they got them.
        """
        if worker.tasks and worker.tasks[0].batch == batch:
            return worker.tasks[0]
        held = ", ".join(str(task.batch) for task in worker.tasks) or "nothing"
        message = f"worker {worker.id} reports {batch}; it was given {held}"
        raise FalseReport(message, self._telling(event))

    def _telling(self, event: Event) -> tuple[Entry, ...]:
        """Return the story, up to this event, of the channel it is about or has touched last."""
        last = self._touched[-1].id if self._touched else -1
        batch = getattr(event, "batch", None)
        channel = getattr(event, "channel", last) if batch is None else batch.channel
        return (*self.story(channel), Entry(event, tuple(self._out)))

    # --- time --------------------------------------------------------------------------------

    def _tick(self, event: Tick) -> None:
        groups: dict[str, WorkerGroup] = {}
        for owner in self._timers.expired(self._now):
            match owner:
                case ScheduledWorker(group=group):
                    if owner.begun is not None:
                        self._touched.append(owner.begun.channel)
                    self._lifecycle.overdue(owner, self._now, self._out)
                    groups[group.name] = group
                case WorkerGroup():
                    self._lifecycle.fill(owner, self._now, self._out)
                case ScheduledChannel():
                    self._channel_due(owner)
                    group = self._groups[owner.group]
                    groups[group.name] = group
        for group in groups.values():
            self._serve(group)

    def _channel_due(self, channel: ScheduledChannel) -> None:
        """Wake the channel's delayed tasks, and trim its unused slots."""
        if slots := channel.slots.trim(self.settings.trim_after, self._now):
            self._out.append(TrimSlots(channel.id, slots))
        channel.wake(self._now)
        self._refresh(channel)

    # --- observation -------------------------------------------------------------------------

    def story(self, channel: int) -> tuple[Entry, ...]:
        """Return the last events that touched a channel, with their instructions.

        Empty once the channel is gone.
        """
        found = self._channels.get(channel)
        return found.story.entries() if found is not None else ()

    def describe(self) -> str:
        """Return one line for the log."""
        return in_words(self._channels.values())

    def statistics(self) -> SchedulerStatistics:
        """Return a snapshot of the whole scheduler."""
        now = self._now if isfinite(self._now) else 0.0
        return SchedulerStatistics(
            now=now,
            events=self._events,
            channels=tuple(
                of_channel(channel, self._groups[channel.group].queue.virtual_now, now)
                for channel in self._channels.values()
            ),
            groups=tuple(of_group(group) for group in self._groups.values()),
            totals=reduce(Totals.plus, self._channels.values(), self._past),
            quarantined=tuple(self._quarantined),
        )

    def check(self) -> None:
        """Raise `SchedulerError` if an invariant is broken. Call it between two events only."""
        check(self._groups.values())


_REACTIONS: dict[type, Callable[[Scheduler, Any], None]] = {
    GroupSized: Scheduler._group_sized,
    ChannelRegistered: Scheduler._channel_registered,
    WeightChanged: Scheduler._weight_changed,
    EpochStarted: Scheduler._epoch_started,
    SlotReturned: Scheduler._slot_returned,
    ChannelUnregistered: Scheduler._channel_unregistered,
    WorkerReady: Scheduler._worker_ready,
    BatchBegun: Scheduler._batch_begun,
    BatchDone: Scheduler._batch_done,
    BatchFailed: Scheduler._batch_failed,
    WorkerBeat: Scheduler._worker_beat,
    WorkerLost: Scheduler._worker_lost,
    Tick: Scheduler._tick,
}
