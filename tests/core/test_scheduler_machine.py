"""Any events in any order, rude ones included: the scheduler's invariants and the ledger both hold.

Hypothesis tells the stories; each ends with well-behaved surroundings that let everything come to
its end, and with the same story told to a fresh scheduler, which must answer the same.
"""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import replace

from penstock.core.events import (
    BatchBegun,
    BatchDone,
    BatchFailed,
    BatchKey,
    ChannelRegistered,
    ChannelUnregistered,
    EpochStarted,
    GroupSized,
    SlotReturned,
    Tick,
    WeightChanged,
    WorkerBeat,
    WorkerLost,
    WorkerReady,
)
from penstock.core.scheduler import Settings
from penstock.options import OnError
from tests.core.scheduler_books import ChannelBook, Holder, Phase, WorkerBook
from tests.core.scheduler_entries import registered
from tests.core.scheduler_run import Run

Book = TypeVar("Book", ChannelBook, WorkerBook)

CREWS = st.sampled_from(["", "own"])
COSTS = st.sampled_from([0.0, 0.001, 1.0, 1.0, 100.0])
WEIGHTS = st.sampled_from([0.25, 1.0, 1.0, 3.0])
SOFT, HARD = 1000, 2000

SETTINGS = st.builds(
    Settings,
    worker_concurrency=st.integers(1, 3),
    silence=st.just(10.0),
    start_limit=st.just(20.0),
    max_batches=st.sampled_from([None, None, 1, 3]),
    max_age=st.sampled_from([None, None, 25.0]),
    soft_memory=st.sampled_from([None, SOFT]),
    hard_memory=st.sampled_from([None, HARD]),
    backoff_first=st.just(0.5),
    backoff_most=st.just(4.0),
    breaker_deaths=st.integers(1, 3),
    breaker_rest=st.just(8.0),
    trim_after=st.just(5.0),
    story_length=st.sampled_from([1, 2, 6, 20, 100_000]),
)


# The numbers and times are put in when one is registered.
ENTRIES = st.builds(
    registered,
    now=st.just(0.0),
    channel=st.just(0),
    group=st.sampled_from(["", "", "own"]),
    slots=st.integers(1, 3),
    weight=WEIGHTS,
    estimate=st.sampled_from([0.0, 1.0, 10.0]),
    deadline=st.sampled_from([None, 3.0]),
    max_attempts=st.integers(1, 3),
    on_error=st.sampled_from(OnError),
    max_substitutes=st.integers(0, 3),
    retry_errors=st.integers(0, 2),
)


class SchedulerMachine(RuleBasedStateMachine):
    """All thirteen events, from whoever may send them and from whoever may not."""

    run: Run

    @initialize(settings=SETTINGS, workers=st.integers(0, 3), entries=st.lists(ENTRIES, max_size=3))
    def begin(self, settings: Settings, workers: int, entries: list[ChannelRegistered]) -> None:
        """In the middle of things, mostly: some channels have an epoch under way."""
        self.run = Run(settings)
        self.run.send(GroupSized(0.0, "", workers))
        self.run.send(GroupSized(0.0, "own", 1))
        for entry in entries:
            self.register(entry)
            self.run.send(EpochStarted(0.0, len(self.run.ledger.channels), 0, range(5)))

    @property
    def now(self) -> float:
        return self.run.now

    # --- who is there ------------------------------------------------------------------------

    def channels(self, *phases: Phase) -> list[ChannelBook]:
        """The channels in these phases; all but those gone if none is named."""
        wanted = phases or (Phase.IDLE, Phase.ACTIVE, Phase.LEAVING)
        return [c for c in self.run.ledger.channels.values() if c.phase in wanted]

    def workers(self) -> list[WorkerBook]:
        return list(self.run.ledger.workers.values())

    def starting(self) -> list[WorkerBook]:
        return [worker for worker in self.workers() if worker.ready is None]

    def waiting(self) -> list[WorkerBook]:
        """Workers that have a batch they could begin."""
        return [worker for worker in self.workers() if worker.held and worker.begun is None]

    def making(self) -> list[WorkerBook]:
        return [worker for worker in self.workers() if worker.begun is not None]

    def doomed(self) -> list[WorkerBook]:
        return [worker for worker in self.workers() if worker.fault is not None]

    def with_rank(self) -> list[tuple[int, int]]:
        return [
            (channel.id, number)
            for channel in self.channels()
            for number, slot in enumerate(channel.slots)
            if slot.holder is Holder.RANK
        ]

    def pick(self, data: st.DataObject, books: list[Book]) -> Book:
        """One of them, by its number, which says enough in a printed story."""
        by_number = {book.id: book for book in books}
        return by_number[data.draw(st.sampled_from(list(by_number)))]

    # --- what ranks do -----------------------------------------------------------------------

    @rule(entry=ENTRIES)
    def register(self, entry: ChannelRegistered) -> None:
        number = max(self.run.ledger.channels, default=0) + 1
        self.run.send(replace(entry, now=self.now, channel=number))

    @precondition(lambda self: self.channels())
    @rule(
        data=st.data(),
        ahead=st.sampled_from([1, 1, 1, 2, 0, -1]),
        first=st.integers(0, 2),
        length=st.integers(0, 6),
        stride=st.sampled_from([1, 1, 1, 2]),
    )
    def start_epoch(
        self, data: st.DataObject, ahead: int, first: int, length: int, stride: int
    ) -> None:
        channel = self.pick(data, self.channels())
        steps = range(first, first + length * stride, stride)
        self.run.send(EpochStarted(self.now, channel.id, channel.epoch + ahead, steps))

    @precondition(lambda self: self.with_rank())
    @rule(data=st.data())
    def return_slot(self, data: st.DataObject) -> None:
        self.run.send(SlotReturned(self.now, *data.draw(st.sampled_from(self.with_rank()))))

    @precondition(lambda self: self.channels())
    @rule(data=st.data(), weight=WEIGHTS)
    def change_weight(self, data: st.DataObject, weight: float) -> None:
        channel = self.pick(data, self.channels())
        self.run.send(WeightChanged(self.now, channel.id, weight))

    @precondition(lambda self: self.channels())
    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        channel = self.pick(data, self.channels())
        self.run.send(ChannelUnregistered(self.now, channel.id))

    # --- what workers do ---------------------------------------------------------------------

    @rule(group=CREWS, workers=st.integers(0, 4))
    def size_group(self, group: str, workers: int) -> None:
        self.run.send(GroupSized(self.now, group, workers))

    @rule(group=CREWS)
    def let_go_of_a_group(self, group: str) -> None:
        """As a hub does with that of a user's sampler which nobody wants any more."""
        self.run.send(GroupSized(self.now, group, 0, kept=False))

    @precondition(lambda self: self.starting())
    @rule(data=st.data())
    def become_ready(self, data: st.DataObject) -> None:
        self.run.send(WorkerReady(self.now, self.pick(data, self.starting()).id))

    @rule()
    def all_get_to_work(self) -> None:
        """Everybody who is starting is ready, everybody who has a batch begins it."""
        for worker in self.starting():
            self.run.send(WorkerReady(self.now, worker.id))
        for worker in self.waiting():
            self.run.send(BatchBegun(self.now, worker.id, worker.held[0].batch))

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def begin_batch(self, data: st.DataObject) -> None:
        worker = self.pick(data, self.waiting())
        self.run.send(BatchBegun(self.now, worker.id, worker.held[0].batch))

    @precondition(lambda self: self.making())
    @rule(data=st.data(), cost=COSTS)
    def finish_batch(self, data: st.DataObject, cost: float) -> None:
        worker = self.pick(data, self.making())
        assert worker.begun is not None
        self.run.send(BatchDone(self.now, worker.id, worker.begun.batch, cost))

    @precondition(lambda self: self.making())
    @rule(data=st.data(), cost=COSTS, passing=st.booleans())
    def fail_batch(self, data: st.DataObject, cost: float, passing: bool) -> None:
        worker = self.pick(data, self.making())
        assert worker.begun is not None
        batch = worker.begun.batch
        self.run.send(BatchFailed(self.now, worker.id, batch, cost, "a bad seed", passing))

    @precondition(lambda self: self.workers())
    @rule(data=st.data(), held=st.sampled_from([0, SOFT - 1, SOFT + 1, HARD + 1]))
    def beat(self, data: st.DataObject, held: int) -> None:
        worker = self.pick(data, self.workers())
        self.run.send(WorkerBeat(self.now, worker.id, held))

    @precondition(lambda self: self.workers())
    @rule(data=st.data())
    def lose_worker(self, data: st.DataObject) -> None:
        worker = self.pick(data, self.workers())
        self.run.send(WorkerLost(self.now, worker.id, "killed by SIGKILL"))

    @precondition(lambda self: self.making())
    @rule(most=st.integers(1, 3))
    def lose_workers_at_their_batches(self, most: int) -> None:
        for worker in self.making()[:most]:
            self.run.send(WorkerLost(self.now, worker.id, "killed by SIGSEGV"))

    @precondition(lambda self: self.doomed())
    @rule()
    def the_doomed_go_on_until_they_die(self) -> None:
        """They end what they are at, and begin the next one, before they are dead."""
        for worker in self.doomed():
            if worker.begun is not None:
                self.run.send(BatchDone(self.now, worker.id, worker.begun.batch, 1.0))
            if worker.held:
                self.run.send(BatchBegun(self.now, worker.id, worker.held[0].batch))
            self.run.send(WorkerLost(self.now, worker.id, "killed"))

    @precondition(lambda self: self.starting())
    @rule()
    def no_worker_gets_started(self) -> None:
        for worker in self.starting():
            self.run.send(WorkerLost(self.now, worker.id, "cannot import numpy"))

    @rule(later=st.sampled_from([0.0, 1.0, 3.0, 9.0, 30.0]))
    def nobody_is_heard_of(self, later: float) -> None:
        self.run.send(Tick(self.now + later))

    @rule(later=st.sampled_from([0.25, 1.0, 3.0, 9.0, 30.0]))
    def time_passes(self, later: float) -> None:
        """As it should: everybody who lives says so now and then."""
        now = self.now + later
        for worker in self.workers():
            self.run.send(WorkerBeat(now, worker.id))
        self.run.send(Tick(now))

    @rule()
    def tick_when_due(self) -> None:
        wakeup = self.run.scheduler.next_wakeup()
        self.run.send(Tick(self.now if wakeup is None else max(wakeup, self.now)))

    @rule()
    def somebody_reads_the_stories(self) -> None:
        """A story is bounded, and its last entry is what was said and answered."""
        for channel in self.channels():
            story = self.run.scheduler.story(channel.id)
            assert 1 <= len(story) <= self.run.settings.story_length
            told = (story[-1].event, list(story[-1].instructions))
            assert any(entry == told for entry in reversed(self.run.log))

    @rule(moves=st.integers(1, 10))
    def go_on(self, moves: int) -> None:
        """Something ordinary, so that stories get anywhere."""
        for _ in range(moves):
            if (event := self.run.benign()) is not None:
                self.run.send(event)

    # --- what nobody should send -------------------------------------------------------------

    @rule(data=st.data())
    def somebody_is_rude(self, data: st.DataObject) -> None:
        """One rule for all of it, or stories would be about nothing else."""
        kinds = [
            self.time_goes_back,
            self.a_stray_slot,
            self.a_channel_that_is_not_there,
            self.an_id_used_again,
            self.a_worker_that_is_not_there,
            self.ready_twice,
            self.begun_twice,
            self.done_and_never_begun,
            self.out_of_order,
            self.a_batch_it_was_not_given,
        ]
        data.draw(st.sampled_from(kinds))(data)

    def time_goes_back(self, data: st.DataObject) -> None:
        past = self.now - data.draw(st.sampled_from([0.5, 1000.0]))
        events = [
            Tick(past),
            GroupSized(past, "", 2),
            *(BatchBegun(past, worker.id, worker.held[0].batch) for worker in self.waiting()),
            *(WorkerBeat(past, worker.id) for worker in self.workers()),
        ]
        self.run.send(data.draw(st.sampled_from(events)))

    def a_stray_slot(self, data: st.DataObject) -> None:
        reserved = [
            (channel.id, number)
            for channel in self.channels()
            for number, slot in enumerate(channel.slots)
            if slot.holder is Holder.BATCH
        ]
        nowhere = [
            (channel, slot) for channel in [*self.run.ledger.channels, 999] for slot in (-1, 3)
        ]
        places = [*reserved, data.draw(st.sampled_from(nowhere))]
        self.run.send(SlotReturned(self.now, *data.draw(st.sampled_from(places))))

    def a_channel_that_is_not_there(self, data: st.DataObject) -> None:
        gone = [channel.id for channel in self.channels(Phase.GONE, Phase.LEAVING)]
        number = data.draw(st.sampled_from([*gone, 999]))
        events = [
            ChannelUnregistered(self.now, number),
            WeightChanged(self.now, number, 2.0),
            EpochStarted(self.now, number, 7, range(3)),
        ]
        self.run.send(data.draw(st.sampled_from(events)))

    def an_id_used_again(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([*self.run.ledger.channels, 0]))
        if self.run.ledger.channels:
            self.run.send(ChannelRegistered(self.now, number, "", 2))

    def a_worker_that_is_not_there(self, data: st.DataObject) -> None:
        last = int(max(self.run.ledger.last_worker, 0))
        gone = [n for n in range(last + 1) if n not in self.run.ledger.workers]
        number = data.draw(st.sampled_from([*gone[-5:], last + 7, -1]))
        batch = BatchKey(1, 0, 0)
        events = [
            WorkerReady(self.now, number),
            BatchBegun(self.now, number, batch),
            BatchDone(self.now, number, batch, 1.0),
            BatchFailed(self.now, number, batch, 1.0, "late"),
            WorkerBeat(self.now, number, HARD + 1),
            WorkerLost(self.now, number, "again"),
        ]
        assert self.run.send(data.draw(st.sampled_from(events))) == []

    def ready_twice(self, data: st.DataObject) -> None:
        if ready := [worker for worker in self.workers() if worker.ready is not None]:
            self.run.send(WorkerReady(self.now, self.pick(data, ready).id))

    def begun_twice(self, data: st.DataObject) -> None:
        if making := self.making():
            worker = self.pick(data, making)
            assert worker.begun is not None
            self.run.send(BatchBegun(self.now, worker.id, worker.begun.batch))

    def done_and_never_begun(self, data: st.DataObject) -> None:
        if waiting := self.waiting():
            worker = self.pick(data, waiting)
            self.run.send(BatchDone(self.now, worker.id, worker.held[0].batch, 1.0))

    def out_of_order(self, data: st.DataObject) -> None:
        if loaded := [worker for worker in self.workers() if len(worker.held) > 1]:
            worker = self.pick(data, loaded)
            self.run.send(BatchBegun(self.now, worker.id, worker.held[-1].batch))

    def a_batch_it_was_not_given(self, data: st.DataObject) -> None:
        if not (workers := self.workers()):
            return
        worker = self.pick(data, workers)
        channel = data.draw(st.sampled_from([*self.run.ledger.channels, 999]))
        batch = BatchKey(channel, data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2)))
        events = [
            BatchBegun(self.now, worker.id, batch),
            BatchDone(self.now, worker.id, batch, 1.0),
            BatchFailed(self.now, worker.id, batch, 1.0, "not mine"),
        ]
        if all(flight.batch != batch for flight in worker.held):
            self.run.send(data.draw(st.sampled_from(events)))

    # --- the end -----------------------------------------------------------------------------

    def teardown(self) -> None:
        """Nothing is stuck, whatever happened; and the same story has the same end."""
        if not hasattr(self, "run") or self.run.failed:
            return
        self.run.revive()
        self.run.drain()
        self.run.send(Tick(self.now + self.run.settings.breaker_rest))
        self.run.drain()
        asked = self.run.ask_again()
        self.run.drain()
        for channel in asked:
            book = self.run.ledger.channels[channel]
            assert book.epoch in book.announced, f"channel {channel} was not served again"
        self.run.close()
        self.run.replay()


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(stateful_step_count=60)
# Making a failing story short takes longer than telling it.
TestSchedulerMachine.pytestmark = [pytest.mark.timeout(1800)]
