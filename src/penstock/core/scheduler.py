"""The one place where it is decided who is served next, what is tried again and who is replaced.

A pure state machine: events in, instructions out (`Scheduler.handle`). No clock, no threads, no
I/O: time arrives in events, and whoever calls carries out the instructions, in their order.
Channels (`channel`), crews (`crew`), their shares (`fair`) and the comings and goings of workers
(`staff`) keep their own books; here events are routed to them, and batches to workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import reduce
from math import inf, isfinite
from typing import Any

from penstock.core.channel import Channel, Quarantined, Task, Wait
from penstock.core.crew import Crew, Worker, WorkerState
from penstock.core.events import (
    Assign,
    Batch,
    BatchBegun,
    BatchDone,
    BatchFailed,
    ChannelRegistered,
    ChannelUnregistered,
    CrewSized,
    EpochStarted,
    Event,
    Instruction,
    SlotReturned,
    Tick,
    TrimSlots,
    WeightChanged,
    WorkerBeat,
    WorkerLost,
    WorkerReady,
)
from penstock.core.ids import Ids
from penstock.core.invariants import check
from penstock.core.refusals import (
    InvalidEvent,
    UnknownChannel,
    check_registration,
    check_size,
    check_weight,
)
from penstock.core.restarts import Streak
from penstock.core.settings import Settings
from penstock.core.staff import Staff
from penstock.core.statistics import Statistics, Totals, in_words, of_channel, of_crew
from penstock.core.story import Entry, FalseReport, SchedulerError
from penstock.core.timers import Timers

__all__ = [
    "FalseReport",
    "InvalidEvent",
    "Scheduler",
    "SchedulerError",
    "Settings",
    "UnknownChannel",
]


class Scheduler:
    """Hand it every event, in the order in which they happened; do what it answers."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._now = -inf
        self._channels: dict[int, Channel] = {}
        self._crews: dict[str, Crew] = {}
        self._ids = Ids()
        self._timers: Timers[Worker | Crew | Channel] = Timers()
        self._staff = Staff(self.settings, self._timers)
        self._quarantined: deque[Quarantined] = deque(maxlen=self.settings.quarantine_length)
        self._out: list[Instruction] = []
        self._touched: list[Channel] = []
        self._events = 0
        self._past = Totals()  # of the channels that are gone

    def handle(self, event: Event) -> list[Instruction]:
        """Take one event into account.

        An event that is refused (`InvalidEvent`, `UnknownChannel`, `FalseReport`) changes nothing.
        After any other error the scheduler is of no use any more.
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
                if channel.story.add(entry):
                    held = self._crews[channel.crew].held_of(channel)
                    channel.story.turn(channel.recap(held, self._now))
            self._touched = []
        return out

    def next_wakeup(self) -> float | None:
        """When a Tick is next due; None if nothing is waiting for time to pass."""
        return self._timers.next()

    # --- crews -------------------------------------------------------------------------------

    def _crew_sized(self, event: CrewSized) -> None:
        check_size(event)
        crew = self._crews.setdefault(event.crew, Crew(event.crew, self.settings))
        crew.kept = event.kept
        self._staff.resize(crew, event.workers, self._now, self._out)
        self._staff.ask(crew, self._now, self._out)
        self._serve(crew)
        for over in [crew for crew in self._crews.values() if crew.over(self._now)]:
            del self._crews[over.name]

    def _serve(self, crew: Crew) -> None:
        """After anything that may have changed who can serve whom."""
        if crew.stranded:
            for channel in crew.channels.values():
                if channel.epoch.open:
                    channel.give_up(crew.breaker.cause, self._now, self._out)
                    self._refresh(channel)
        self._dispatch(crew)

    def _dispatch(self, crew: Crew) -> None:
        """While a worker has room: the channel furthest behind gives one batch."""
        crew.rebase()
        queue = crew.queue
        while (worker := crew.idlest()) is not None:
            channel = queue.pop()
            if channel is None:
                return
            self._hand_out(channel, crew, worker)

    def _hand_out(self, channel: Channel, crew: Crew, worker: Worker) -> None:
        task = channel.hand_out(self._out)
        if task is not None:
            crew.give(worker, task)
            self._out.append(Assign(worker.id, task.batch, task.slot, task.source, task.attempt))
        wait = channel.wants()
        if wait is Wait.TURN:  # it never slept: what it is owed is not forgotten
            crew.queue.push(channel)
        channel.wait_for(wait, self._now)
        self._touched.append(channel)

    # --- channels ----------------------------------------------------------------------------

    def _channel_registered(self, event: ChannelRegistered) -> None:
        check_registration(event, self._ids.last)
        crew = self._crews.get(event.crew)
        if crew is None:
            raise InvalidEvent(f"channel {event.channel}: there is no crew {event.crew!r}")
        channel = Channel.open(event, self.settings, crew.costs, self._quarantined)
        channel.since = self._now
        self._ids.add(event.channel)
        self._channels[event.channel] = crew.channels[event.channel] = channel
        self._staff.ask(crew, self._now, self._out)
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
        crew = self._crews[channel.crew]
        channel.start(event.epoch, event.steps, self._now, self._out)
        self._staff.ask(crew, self._now, self._out)
        self._refresh(channel)
        self._serve(crew)

    def _slot_returned(self, event: SlotReturned) -> None:
        channel = self._channels.get(event.channel)
        if channel is None:
            return
        if channel.slots.take_back(event.slot, self._now):
            self._refresh(channel)
            self._dispatch(self._crews[channel.crew])
        else:
            channel.stray_returns += 1
            self._touched.append(channel)

    def _channel_unregistered(self, event: ChannelUnregistered) -> None:
        channel = self._channels.get(event.channel)
        if channel is not None and not channel.leaving:
            channel.leave(self._now, self._out)
            self._refresh(channel)

    def _refresh(self, channel: Channel) -> None:
        """After a channel's slots, steps or cost have changed: is it in line, and where?"""
        queue = self._crews[channel.crew].queue
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
            del self._crews[channel.crew].channels[channel.id]
            self._past = self._past.plus(channel)

    # --- workers -----------------------------------------------------------------------------

    def _heard(self, worker: int) -> Worker | None:
        """Whatever comes from a worker is a sign of life; from one that is gone it is ignored."""
        found = self._staff.workers.get(worker)
        if found is not None:
            found.heard = self._now
        return found

    def _worker_ready(self, event: WorkerReady) -> None:
        worker = self._heard(event.worker)
        if worker is not None:
            self._staff.ready(worker, self._now, self._out)
            self._dispatch(worker.crew)

    def _worker_beat(self, event: WorkerBeat) -> None:
        worker = self._heard(event.worker)
        if worker is not None:
            self._staff.weigh(worker, event.private_bytes, self._now, self._out)
            self._serve(worker.crew)

    def _worker_lost(self, event: WorkerLost) -> None:
        worker = self._staff.workers.get(event.worker)
        if worker is None:
            return
        crew = worker.crew
        self._staff.lost(worker, event.cause, self._now)
        failing = crew.streak.covers(crew.wanted)
        for task in reversed(worker.tasks):
            task.channel.lost(task, event.cause, self._now, self._out, excusable=failing)
            self._refresh(task.channel)
        self._staff.fill(crew, self._now, self._out)
        self._serve(crew)

    # --- batches -----------------------------------------------------------------------------

    def _batch_begun(self, event: BatchBegun) -> None:
        worker = self._staff.workers.get(event.worker)
        if worker is None:
            return
        task = self._first_task(worker, event.batch, event)
        if task.began is not None:
            raise FalseReport(f"worker {worker.id} began {event.batch} twice", self._telling(event))
        worker.heard = task.began = self._now
        task.too_late = worker.state is WorkerState.DOOMED
        if task.channel.deadline is not None:
            self._timers.arm(worker)
        self._touched.append(task.channel)

    def _batch_done(self, event: BatchDone) -> None:
        worker = self._staff.workers.get(event.worker)
        if worker is None:
            return
        task = self._answer(worker, event)
        self._completed(worker.crew)
        task.channel.deliver(task, worker.id, self._now, self._out)
        self._after_answer(worker, task.channel)

    def _batch_failed(self, event: BatchFailed) -> None:
        worker = self._staff.workers.get(event.worker)
        if worker is None:
            return
        task = self._answer(worker, event)
        worker.crew.failed += 1
        task.channel.fail(task, event.cause, self._now, self._out)
        self._after_answer(worker, task.channel)

    def _answer(self, worker: Worker, event: BatchDone | BatchFailed) -> Task:
        """The task is off the worker's hands, and what it cost is known."""
        task = self._first_task(worker, event.batch, event)
        worker.heard = self._now
        worker.crew.take(worker)
        worker.made += 1
        cost = event.cost if isfinite(event.cost) else task.channel.estimate()
        cost = max(cost, self.settings.least_cost)
        task.channel.answered(task, cost)
        worker.crew.costs.add(cost)
        return task

    def _completed(self, crew: Crew) -> None:
        """Whatever kept its workers dying is over."""
        crew.done += 1
        if crew.streak.lost:
            crew.streak = Streak()
        if crew.deaths.count:
            crew.deaths.reset()
            self._staff.fill(crew, self._now, self._out)

    def _after_answer(self, worker: Worker, channel: Channel) -> None:
        self._refresh(channel)
        self._staff.inspect(worker, self._now, self._out)
        self._serve(worker.crew)

    def _first_task(self, worker: Worker, batch: Batch, event: Event) -> Task:
        """Workers make their batches in the order given, so this must be about the first."""
        if worker.tasks and worker.tasks[0].batch == batch:
            return worker.tasks[0]
        held = ", ".join(str(task.batch) for task in worker.tasks) or "nothing"
        message = f"worker {worker.id} reports {batch}; it was given {held}"
        raise FalseReport(message, self._telling(event))

    def _telling(self, event: Event) -> tuple[Entry, ...]:
        """The story of the channel an event is about, or has touched last, up to this event."""
        last = self._touched[-1].id if self._touched else -1
        batch = getattr(event, "batch", None)
        channel = getattr(event, "channel", last) if batch is None else batch.channel
        return (*self.story(channel), Entry(event, tuple(self._out)))

    # --- time --------------------------------------------------------------------------------

    def _tick(self, event: Tick) -> None:
        crews: dict[str, Crew] = {}
        for owner in self._timers.expired(self._now):
            match owner:
                case Worker(crew=crew):
                    if owner.begun is not None:
                        self._touched.append(owner.begun.channel)
                    self._staff.overdue(owner, self._now, self._out)
                    crews[crew.name] = crew
                case Crew():
                    self._staff.fill(owner, self._now, self._out)
                case Channel():
                    self._trim(owner)
        for crew in crews.values():
            self._serve(crew)

    def _trim(self, channel: Channel) -> None:
        slots = channel.slots.trim(self.settings.trim_after, self._now)
        self._out.append(TrimSlots(channel.id, slots))
        self._touched.append(channel)

    # --- what is going on --------------------------------------------------------------------

    def story(self, channel: int) -> tuple[Entry, ...]:
        """The last events that touched a channel, and what was answered; empty once it is gone."""
        found = self._channels.get(channel)
        return found.story.entries() if found is not None else ()

    def describe(self) -> str:
        """One line for the log."""
        return in_words(self._channels.values())

    def statistics(self) -> Statistics:
        """A snapshot of everything, for whoever wants to show it."""
        now = self._now if isfinite(self._now) else 0.0
        return Statistics(
            now=now,
            events=self._events,
            channels=tuple(
                of_channel(channel, self._crews[channel.crew].queue.virtual_now, now)
                for channel in self._channels.values()
            ),
            crews=tuple(of_crew(crew) for crew in self._crews.values()),
            totals=reduce(Totals.plus, self._channels.values(), self._past),
            quarantined=tuple(self._quarantined),
        )

    def check(self) -> None:
        """Raise `SchedulerError` unless everything that must hold between two events does."""
        check(self._crews.values())


_REACTIONS: dict[type, Callable[[Scheduler, Any], None]] = {
    CrewSized: Scheduler._crew_sized,
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
