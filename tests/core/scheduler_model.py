"""An independent ledger: it watches what goes into a scheduler and what comes out, and objects.

It is written from the contract, not from the scheduler, and decides nothing: who is served next is
the scheduler's choice; that the choice was allowed, and that nothing owed was left out, is checked
here. After every event it knows where each batch, slot and worker is, and compares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.events import (
    Assign,
    BatchBegun,
    BatchDone,
    BatchFailed,
    BatchKey,
    BreakChannel,
    ChannelRegistered,
    ChannelUnregistered,
    Deliver,
    EpochStarted,
    Event,
    Fail,
    FinishEpoch,
    Forget,
    GroupSized,
    Instruction,
    KillWorker,
    RetireWorker,
    SlotReturned,
    StartWorker,
    Tick,
    TrimSlots,
    WeightChanged,
    WorkerBeat,
    WorkerLost,
    WorkerReady,
)
from penstock.core.scheduler import FalseReport, Settings
from tests.core.scheduler_books import (
    ChannelBook,
    CrewBook,
    Flight,
    Holder,
    Phase,
    Slot,
    WorkerBook,
)
from tests.core.scheduler_watch import CrewWatch


class Ledger(CrewWatch):
    """The books of one run. `observe` takes one event with its answer, or raises."""

    def __init__(self, settings: Settings, look_every: int = 1) -> None:
        """`look_every`: how many events go by between two looks at everybody there is."""
        super().__init__(settings)
        self.look_every = look_every
        self.number = 0  # of the event being watched
        self.last_channel = -math.inf
        self.attempts_lost = 0
        self.owed: dict[BatchKey, Deliver | Fail] = {}  # due in this answer

    # --- before: what must be refused --------------------------------------------------------

    def refusal(self, event: Event) -> type[Exception] | None:
        """The error this event must meet, if any."""
        match event:
            case ChannelRegistered(channel=channel) if channel <= self.last_channel:
                return ValueError
            case ChannelRegistered(group=group) if group not in self.groups:
                return ValueError
            case EpochStarted(channel=channel) if channel > self.last_channel:
                return KeyError
            case BatchBegun() | BatchDone() | BatchFailed():
                return FalseReport if self._lies(event) else None
        return None

    def _lies(self, event: BatchBegun | BatchDone | BatchFailed) -> bool:
        """Whether a worker speaks of a batch that is not its first, or begins one twice."""
        if (worker := self.workers.get(event.worker)) is None:
            return False
        if not worker.held or worker.held[0].batch != event.batch:
            return True
        return isinstance(event, BatchBegun) and worker.begun is not None

    # --- during ------------------------------------------------------------------------------

    def observe(
        self, event: Event, answer: Sequence[Instruction], wakeup: float | None = None
    ) -> None:
        """Takes down one event and its answer; raises AssertionError where they break a rule."""
        self.now = max(self.now, event.now)
        self.number += 1
        self.event = event
        self.owed.clear()
        EVENTS[type(event)](self, event)
        for instruction in answer:
            INSTRUCTIONS[type(instruction)](self, instruction)
        assert not self.owed, f"not answered: {list(self.owed.values())}"
        if isinstance(event, GroupSized):
            self._forget_groups()
        if self.number % self.look_every == 0:
            self._look_round(wakeup)

    # --- events ------------------------------------------------------------------------------

    def _group_sized(self, event: GroupSized) -> None:
        group = self.groups.setdefault(event.group, CrewBook(event.group))
        group.wanted, group.kept = event.workers, event.kept

    def _channel_registered(self, event: ChannelRegistered) -> None:
        self.last_channel = event.channel
        slots = [Slot() for _ in range(event.slots)]
        self.channels[event.channel] = ChannelBook(
            event.channel, event, slots, event.options.weight
        )

    def _weight_changed(self, event: WeightChanged) -> None:
        if channel := self.channels.get(event.channel):
            channel.weight = event.weight

    def _epoch_started(self, event: EpochStarted) -> None:
        channel = self.channels.get(event.channel)
        if channel is None or channel.phase in (Phase.LEAVING, Phase.GONE):
            return
        if event.epoch <= channel.epoch:
            return
        self._cancel(channel)
        channel.phase = Phase.ACTIVE
        channel.epoch, channel.steps, channel.handed = event.epoch, event.steps, 0
        channel.ended, channel.quarantined, channel.substitutes = {}, set(), 0
        channel.front = None

    def _slot_returned(self, event: SlotReturned) -> None:
        channel = self.channels.get(event.channel)
        if channel is None or channel.phase is Phase.GONE:
            return
        if 0 <= event.slot < len(channel.slots):
            slot = channel.slots[event.slot]
            if slot.holder is Holder.RANK:
                self._free(channel, event.slot)
                return
        channel.strays += 1

    def _channel_unregistered(self, event: ChannelUnregistered) -> None:
        channel = self.channels.get(event.channel)
        if channel is not None and channel.phase in (Phase.IDLE, Phase.ACTIVE):
            self._cancel(channel)
            channel.phase = Phase.LEAVING

    def _worker_ready(self, event: WorkerReady) -> None:
        worker = self.heard(event.worker)
        if worker is not None and worker.ready is None:
            worker.ready = self.now
            self.groups[worker.group].failed_starts = 0

    def _batch_begun(self, event: BatchBegun) -> None:
        if worker := self.heard(event.worker):
            flight = _held(worker, event.batch)
            flight.begun, flight.too_late = self.now, worker.fault is not None

    def _batch_done(self, event: BatchDone) -> None:
        if (worker := self.heard(event.worker)) is None:
            return
        flight = self._answered(worker, event)
        group, channel = self.groups[worker.group], self.channels[event.batch.channel]
        worker.made += 1
        group.done += 1
        group.losses, group.losers = 0, set()
        if channel.alive(flight.batch):
            due = Deliver(flight.batch, flight.slot, flight.source, worker.id, flight.errors)
            self.owed[flight.batch] = due
        else:
            self._drop(channel, flight)

    def _batch_failed(self, event: BatchFailed) -> None:
        if (worker := self.heard(event.worker)) is None:
            return
        flight = self._answered(worker, event)
        channel = self.channels[event.batch.channel]
        if not channel.alive(flight.batch):
            self._drop(channel, flight)
        elif event.passing and flight.errors < channel.entry.options.retry_errors:
            settings = self.settings
            wait = settings.error_backoff_first * 2**flight.errors
            flight.until = self.now + min(wait, settings.error_backoff_most)
            flight.errors += 1
            flight.avoids = worker.id
            channel.errors_retried += 1
        else:
            flight.charged += 1
            self._quarantine(channel, flight, event.cause)

    def _worker_beat(self, event: WorkerBeat) -> None:
        if worker := self.heard(event.worker):
            worker.bytes = event.private_bytes

    def _worker_lost(self, event: WorkerLost) -> None:
        worker = self.workers.pop(event.worker, None)
        if worker is None:
            return
        group = self.groups[worker.group]
        del group.workers[worker.id]
        if worker.ready is None:
            if worker.leave is None:
                group.failed_starts += 1
                group.last_failed_start = self.now
        elif worker.leave is None or worker.held:
            group.losses += 1
            if worker.begun is not None and not worker.begun.too_late:
                group.losers.add(worker.begun.batch)
        for flight in worker.held:
            self.channels[flight.batch.channel].front = None
        for flight in worker.held:
            self._orphaned(group, flight, event.cause)

    def _tick(self, event: Tick) -> None:
        for channel in self.channels.values():
            for flight in channel.waiting():
                if flight.until is not None and flight.until <= self.now:
                    flight.until, flight.waits_since = None, self.number

    # --- what events bring about -------------------------------------------------------------

    def _answered(self, worker: WorkerBook, event: BatchDone | BatchFailed) -> Flight:
        flight = _held(worker, event.batch)
        worker.held.remove(flight)
        sane = 0 <= event.cost < math.inf
        self.channels[event.batch.channel].service += event.cost if sane else math.nan
        worker.answered += 1
        flight.worker = flight.begun = None
        flight.too_late, flight.waits_since = False, self.number
        return flight

    def _orphaned(self, group: CrewBook, flight: Flight, cause: str) -> None:
        channel, began = self.channels[flight.batch.channel], flight.begun
        counts = began is not None and not flight.too_late
        channel.service += self.now - began if counts and began is not None else 0.0
        flight.worker = flight.begun = None
        flight.too_late, flight.waits_since = False, self.number
        if not channel.alive(flight.batch):
            self._drop(channel, flight)
        elif counts:
            self.attempts_lost += 1
            most = channel.entry.options.max_attempts
            if group.failing and flight.excused < 2 * most:
                flight.excused += 1
            else:
                flight.charged += 1
            if flight.charged >= most:
                self._quarantine(channel, flight, cause)
            else:
                channel.front = flight.batch

    def _quarantine(self, channel: ChannelBook, flight: Flight, cause: str) -> None:
        """No more tries for this source: another one takes its place, or the batch fails."""
        channel.quarantined.add(flight.source)
        attempts = flight.charged + flight.errors
        if not self._substituted(channel, flight):
            self.owed[flight.batch] = Fail(flight.batch, cause, attempts)

    def _substituted(self, channel: ChannelBook, flight: Flight) -> bool:
        if (source := channel.substitute(flight.batch.step)) is None:
            return False
        channel.substitutes += 1
        channel.front = None  # which of the two goes first is nobody's business
        flight.source, flight.charged, flight.excused = source, 0, 0
        flight.errors, flight.avoids = 0, None
        return True

    def _forget_groups(self) -> None:
        """Of those that nobody wants nothing is kept, once nothing is left of them.

        But an open breaker has to rest first, or leaving and coming back would be a way round it.
        """
        here = {c.entry.group for c in self.channels.values() if c.phase is not Phase.GONE}
        for group in list(self.groups.values()):
            left = group.kept or group.workers or group.name in here
            rested = group.last_failed_start + self.settings.breaker_rest <= self.now
            if not left and (rested or not self.breaker_open(group)):
                del self.groups[group.name]

    def _cancel(self, channel: ChannelBook) -> None:
        """Ends what is left of an epoch. Batches at a worker keep their slot until it answers."""
        if channel.phase is not Phase.ACTIVE:
            return
        for step in [step for step in channel.steps if step not in channel.ended]:
            self._end(channel, step, "cancelled")
        for flight in channel.waiting():
            self._drop(channel, flight)

    def _end(self, channel: ChannelBook, step: int, how: str) -> None:
        assert step not in channel.ended, f"step {step} of channel {channel.id} ended twice"
        channel.ended[step] = how
        channel.totals[how] = channel.totals.get(how, 0) + 1

    def _drop(self, channel: ChannelBook, flight: Flight) -> None:
        del channel.flights[flight.batch]
        self._free(channel, flight.slot)

    def _free(self, channel: ChannelBook, slot: int) -> None:
        place = channel.slots[slot]
        place.holder, place.freed, place.trimmed = Holder.NOBODY, (self.number, self.now), False

    # --- instructions ------------------------------------------------------------------------

    def _assign(self, order: Assign) -> None:
        worker = self._told(order)
        assert worker.serves, f"{order}: the worker is not to be given anything"
        most = self.settings.worker_concurrency
        assert len(worker.held) < most, f"{order}: it has its fill"
        channel = self.channels[order.batch.channel]
        assert channel.entry.group == worker.group, f"{order}: another group's"
        assert channel.alive(order.batch), f"{order}: nobody waits for it"
        assert channel.front in (None, order.batch), f"{order}: {channel.front} goes first"
        channel.front, channel.queued = None, self.number
        flight = self._taken_up(channel, order)
        counted = (flight.charged, flight.charged + flight.excused)
        assert order.attempt - 1 - flight.errors in counted, f"{order}: {flight}"
        assert flight.until is None, f"{order}: it has to wait until {flight.until}"
        others = [w for w in self.groups[worker.group].serving() if w.id != flight.avoids]
        fit = [w for w in others if len(w.held) < most] or self.groups[worker.group].serving()
        least = min(len(other.held) for other in fit)
        assert worker in fit, f"{order}: it raised there, and {[w.id for w in fit]} have room"
        assert len(worker.held) == least, f"{order}: another one has only {least}"
        assert (order.slot, order.source) == (flight.slot, flight.source), f"{order}: {flight}"
        flight.worker = worker.id
        worker.held.append(flight)

    def _taken_up(self, channel: ChannelBook, order: Assign) -> Flight:
        """The flight an Assign is about: one that waits for another try, or a new one in turn."""
        if flight := channel.flights.get(order.batch):
            assert flight.worker is None, f"{order}: worker {flight.worker} has it"
            return flight
        due = channel.due()
        assert not due, f"{order}: {due[0].batch} is to be tried again first"
        assert channel.handed < len(channel.steps), f"{order}: all were handed out"
        assert order.batch.step == channel.steps[channel.handed], f"{order}: out of order"
        channel.handed += 1
        flight = Flight(order.batch, order.slot, order.batch.step)
        if flight.source in channel.quarantined:  # it failed when it stood in for another
            assert self._substituted(channel, flight), f"{order}: it is known to be bad"
        channel.flights[order.batch] = flight
        self._reserve(channel, order)
        return flight

    def _reserve(self, channel: ChannelBook, order: Assign) -> None:
        assert 0 <= order.slot < len(channel.slots), f"{order}: no such slot"
        slot = channel.slots[order.slot]
        assert slot.holder is Holder.NOBODY, f"{order}: the slot is {slot.holder.value}"
        latest = max(s.freed[0] for s in channel.slots if s.holder is Holder.NOBODY)
        assert slot.freed[0] == latest, f"{order}: not the slot that was freed last"
        slot.holder, slot.used, slot.trimmed = Holder.BATCH, True, False

    def _deliver(self, order: Deliver) -> None:
        assert self.owed.pop(order.batch, None) == order, f"{order}: not what was due"
        channel = self.channels[order.batch.channel]
        assert channel.slots[order.slot].holder is Holder.BATCH, f"{order}: not its slot"
        del channel.flights[order.batch]
        channel.slots[order.slot].holder = Holder.RANK
        self._end(channel, order.batch.step, "delivered")

    def _fail(self, order: Fail) -> None:
        channel = self.channels[order.batch.channel]
        due = self.owed.pop(order.batch, None)
        if due is None and order.batch not in channel.flights:
            self._failed_untried(channel, order)
            return
        assert isinstance(due, Fail), f"{order}: {due} was due"
        assert due.cause in order.cause, f"{order}: does not say {due.cause!r}"
        flight = channel.flights[order.batch]
        tries = (due.attempts, due.attempts + flight.excused)
        assert order.attempts in tries, f"{order}: attempts were {tries}"
        self._drop(channel, flight)
        self._end(channel, order.batch.step, "failed")

    def _failed_untried(self, channel: ChannelBook, order: Fail) -> None:
        """A step whose turn comes when it is known, from having stood in for another, to be bad."""
        step = order.batch.step
        assert channel.alive(order.batch), f"{order}: nobody waits for it"
        assert step == channel.steps[channel.handed], f"{order}: it is not its turn"
        assert step in channel.quarantined, f"{order}: nobody has tried it"
        assert channel.substitute(step) is None, f"{order}: another one could take its place"
        assert order.cause, f"{order}: no cause"
        channel.handed += 1
        self._end(channel, step, "failed")

    def _finish_epoch(self, order: FinishEpoch) -> None:
        channel = self.channels[order.channel]
        ends = (channel.count("delivered"), channel.count("failed"), channel.count("cancelled"))
        assert channel.phase is Phase.ACTIVE, f"{order}: nobody waits for it"
        assert order == FinishEpoch(channel.id, channel.epoch, *ends), f"{order}: {ends}"
        assert len(channel.ended) == len(channel.steps), f"{order}: it has not ended"
        assert order.epoch not in channel.announced, f"{order}: announced before"
        channel.announced.add(order.epoch)
        channel.phase = Phase.IDLE

    def _break_channel(self, order: BreakChannel) -> None:
        channel = self.channels[order.channel]
        group = self.groups[channel.entry.group]
        assert channel.phase is Phase.ACTIVE, f"{order}: no epoch is running"
        assert order.epoch == channel.epoch, f"{order}: epoch {channel.epoch} is running"
        assert self.breaker_open(group), f"{order}: only {group.failed_starts} starts failed"
        assert not group.serving(), f"{order}: {group.serving()[0].id} serves it"
        assert order.cause, f"{order}: no cause"
        self._cancel(channel)
        channel.broken.add(order.epoch)
        channel.phase = Phase.IDLE

    def _forget(self, order: Forget) -> None:
        channel = self.channels[order.channel]
        assert channel.phase is Phase.LEAVING, f"{order}: it is {channel.phase.value}"
        assert not channel.flights, f"{order}: workers may write {list(channel.flights)}"
        channel.phase = Phase.GONE

    def _trim_slots(self, order: TrimSlots) -> None:
        channel = self.channels[order.channel]
        assert channel.phase is not Phase.GONE, f"{order}: it is gone"
        assert order.slots, f"{order}: nothing"
        for number in order.slots:
            slot = channel.slots[number]
            assert slot.holder is Holder.NOBODY, f"{order}: slot {number} is {slot.holder.value}"
            dirty = slot.used and not slot.trimmed
            assert dirty, f"{order}: slot {number} has nothing to give"
            assert slot.freed[1] + self.settings.trim_after <= self.now, f"{order}: just used"
            slot.trimmed = True

    # --- after: what must not be left over ---------------------------------------------------

    def _look_round(self, wakeup: float | None) -> None:
        for channel in self.channels.values():
            self._nothing_due_to(channel, wakeup)
        for group in self.groups.values():
            self._nothing_left_undone(group, wakeup)
        for worker in self.workers.values():
            self.in_time(worker, wakeup)
        if isinstance(self.event, Tick) and wakeup is not None:
            assert wakeup > self.now, f"wake-up at {wakeup}, after a tick at {self.now}"

    def _nothing_due_to(self, channel: ChannelBook, wakeup: float | None) -> None:
        for flight in channel.waiting():
            if flight.until is not None:
                in_time = wakeup is not None and wakeup <= flight.until
                assert in_time, f"{flight}: nobody wakes it before {wakeup}"
        if not channel.can_give:
            channel.queued = None
        elif channel.queued is None:
            channel.queued = self.number
        if channel.phase is Phase.ACTIVE:
            done = len(channel.ended) == len(channel.steps)
            assert not done, f"{channel.id}: epoch {channel.epoch} has ended and nobody said so"
        if channel.phase is Phase.LEAVING:
            assert channel.flights, f"{channel.id}: nobody holds it back from being forgotten"

    def _nothing_left_undone(self, group: CrewBook, wakeup: float | None) -> None:
        assert group.strength <= group.wanted, f"{group.name}: {group.strength} of {group.wanted}"
        room = [w for w in group.serving() if len(w.held) < self.settings.worker_concurrency]
        mine = [c for c in self.channels.values() if c.entry.group == group.name]
        if room:
            idle = [channel.id for channel in mine if channel.can_give]
            assert not idle, f"worker {room[0].id} has room, and {idle} have batches"
        short = group.strength + group.dying < group.wanted
        if short and not self.breaker_open(group):
            assert wakeup is not None, f"{group.name}: nothing will start a worker"
        if group.wanted and self.breaker_open(group) and not group.serving():
            stuck = [channel.id for channel in mine if channel.phase is Phase.ACTIVE]
            trial = any(w.stays and w.ready is None for w in group.workers.values())
            assert not stuck or trial, f"{group.name}: {stuck} wait for nobody"


def _held(worker: WorkerBook, batch: BatchKey) -> Flight:
    return next(flight for flight in worker.held if flight.batch == batch)


EVENTS: dict[type[Event], Callable[[Ledger, Any], None]] = {
    GroupSized: Ledger._group_sized,
    ChannelRegistered: Ledger._channel_registered,
    WeightChanged: Ledger._weight_changed,
    EpochStarted: Ledger._epoch_started,
    SlotReturned: Ledger._slot_returned,
    ChannelUnregistered: Ledger._channel_unregistered,
    WorkerReady: Ledger._worker_ready,
    BatchBegun: Ledger._batch_begun,
    BatchDone: Ledger._batch_done,
    BatchFailed: Ledger._batch_failed,
    WorkerBeat: Ledger._worker_beat,
    WorkerLost: Ledger._worker_lost,
    Tick: Ledger._tick,
}
INSTRUCTIONS: dict[type[Instruction], Callable[[Ledger, Any], None]] = {
    StartWorker: Ledger.start_worker,
    RetireWorker: Ledger.retire_worker,
    KillWorker: Ledger.kill_worker,
    Assign: Ledger._assign,
    Deliver: Ledger._deliver,
    Fail: Ledger._fail,
    FinishEpoch: Ledger._finish_epoch,
    BreakChannel: Ledger._break_channel,
    Forget: Ledger._forget,
    TrimSlots: Ledger._trim_slots,
}
