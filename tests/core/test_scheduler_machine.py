"""Any events in any order, rude ones included: the scheduler's invariants and the ledger both hold.

Hypothesis tells the stories; each ends with well-behaved surroundings that let everything come to
its end, and with the same story told to a fresh scheduler, which must answer the same.
"""

from __future__ import annotations

from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock.core.events import (
    Batch,
    BatchBegun,
    BatchDone,
    BatchFailed,
    ChannelRegistered,
    ChannelUnregistered,
    CrewSized,
    EpochStarted,
    OnError,
    SlotReturned,
    Tick,
    WeightChanged,
    WorkerBeat,
    WorkerLost,
    WorkerReady,
)
from penstock.core.scheduler import Settings
from tests.core.scheduler_books import ChannelBook, Holder, Phase, WorkerBook
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
)


class SchedulerMachine(RuleBasedStateMachine):
    """All thirteen events, from whoever may send them and from whoever may not."""

    run: Run

    @initialize(settings=SETTINGS, workers=st.integers(0, 3))
    def begin(self, settings: Settings, workers: int) -> None:
        self.run = Run(settings)
        self.run.send(CrewSized(0.0, "", workers))
        self.run.send(CrewSized(0.0, "own", 1))

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

    @rule(
        crew=CREWS,
        slots=st.integers(1, 3),
        weight=WEIGHTS,
        estimate=st.sampled_from([0.0, 1.0, 10.0]),
        deadline=st.sampled_from([None, 3.0]),
        max_attempts=st.integers(1, 3),
        on_error=st.sampled_from(OnError),
        max_substitutes=st.integers(0, 3),
    )
    def register(
        self,
        crew: str,
        slots: int,
        weight: float,
        estimate: float,
        deadline: float | None,
        max_attempts: int,
        on_error: OnError,
        max_substitutes: int,
    ) -> None:
        number = max(self.run.ledger.channels, default=0) + 1
        self.run.send(
            ChannelRegistered(
                self.now,
                number,
                crew,
                slots,
                weight,
                estimate,
                deadline,
                max_attempts,
                on_error,
                max_substitutes,
            )
        )

    @precondition(lambda self: self.channels())
    @rule(
        data=st.data(),
        ahead=st.sampled_from([1, 1, 1, 2, 0, -1]),
        first=st.integers(0, 2),
        length=st.integers(0, 5),
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

    @rule(crew=CREWS, workers=st.integers(0, 4))
    def size_crew(self, crew: str, workers: int) -> None:
        self.run.send(CrewSized(self.now, crew, workers))

    @precondition(lambda self: self.starting())
    @rule(data=st.data())
    def become_ready(self, data: st.DataObject) -> None:
        worker = self.pick(data, self.starting())
        self.run.send(WorkerReady(self.now, worker.id))

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
    @rule(data=st.data(), cost=COSTS)
    def fail_batch(self, data: st.DataObject, cost: float) -> None:
        worker = self.pick(data, self.making())
        assert worker.begun is not None
        self.run.send(BatchFailed(self.now, worker.id, worker.begun.batch, cost, "a bad seed"))

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
    @rule(data=st.data())
    def lose_worker_at_its_batch(self, data: st.DataObject) -> None:
        worker = self.pick(data, self.making())
        self.run.send(WorkerLost(self.now, worker.id, "killed by SIGSEGV"))

    @rule(later=st.sampled_from([0.0, 0.25, 1.0, 3.0, 9.0, 30.0]))
    def tick(self, later: float) -> None:
        self.run.send(Tick(self.now + later))

    @rule()
    def tick_when_due(self) -> None:
        wakeup = self.run.scheduler.next_wakeup()
        self.run.send(Tick(self.now if wakeup is None else max(wakeup, self.now)))

    @rule()
    def go_on(self) -> None:
        """Something ordinary, so that stories get anywhere."""
        for _ in range(4):
            if (event := self.run.benign()) is not None:
                self.run.send(event)

    # --- what nobody should send -------------------------------------------------------------

    @rule(back=st.sampled_from([0.5, 1000.0]))
    def time_goes_back(self, back: float) -> None:
        self.run.send(Tick(self.now - back))

    @precondition(lambda self: self.waiting() or self.making())
    @rule(data=st.data(), back=st.sampled_from([0.5, 1000.0]))
    def an_event_from_the_past(self, data: st.DataObject, back: float) -> None:
        worker = self.pick(data, self.waiting() + self.making())
        kind = BatchBegun if worker.begun is None else WorkerBeat
        extra = (worker.held[0].batch,) if kind is BatchBegun else ()
        self.run.send(kind(self.now - back, worker.id, *extra))

    @rule(slot=st.integers(-2, 4), beyond=st.booleans(), data=st.data())
    def a_stray_slot(self, slot: int, beyond: bool, data: st.DataObject) -> None:
        known = [channel.id for channel in self.run.ledger.channels.values()]
        number = 999 if beyond or not known else data.draw(st.sampled_from(known))
        self.run.send(SlotReturned(self.now, number, slot))

    @rule(data=st.data(), epoch=st.integers(0, 9))
    def a_channel_that_is_not_there(self, data: st.DataObject, epoch: int) -> None:
        gone = [channel.id for channel in self.channels(Phase.GONE, Phase.LEAVING)]
        number = data.draw(st.sampled_from([*gone, 999]))
        kind = data.draw(st.sampled_from([ChannelUnregistered, WeightChanged, EpochStarted]))
        if kind is ChannelUnregistered:
            self.run.send(ChannelUnregistered(self.now, number))
        elif kind is WeightChanged:
            self.run.send(WeightChanged(self.now, number, 2.0))
        else:
            self.run.send(EpochStarted(self.now, number, epoch, range(3)))

    @precondition(lambda self: self.run.ledger.channels)
    @rule(data=st.data())
    def an_id_used_again(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(list(self.run.ledger.channels)))
        self.run.send(ChannelRegistered(self.now, number, "", 2))

    @precondition(lambda self: self.run.ledger.last_worker >= 0)
    @rule(data=st.data())
    def a_worker_that_is_not_there(self, data: st.DataObject) -> None:
        last = int(self.run.ledger.last_worker)
        gone = [n for n in range(last + 1) if n not in self.run.ledger.workers]
        number = data.draw(st.sampled_from([*gone[-5:], last + 7, -1]))
        batch = Batch(1, 0, 0)
        event = data.draw(
            st.sampled_from(
                [
                    WorkerReady(self.now, number),
                    BatchBegun(self.now, number, batch),
                    BatchDone(self.now, number, batch, 1.0),
                    BatchFailed(self.now, number, batch, 1.0, "late"),
                    WorkerBeat(self.now, number, HARD + 1),
                    WorkerLost(self.now, number, "again"),
                ]
            )
        )
        assert self.run.send(event) == []

    @precondition(lambda self: self.workers())
    @rule(data=st.data())
    def ready_twice(self, data: st.DataObject) -> None:
        ready = [worker for worker in self.workers() if worker.ready is not None]
        if ready:
            self.run.send(WorkerReady(self.now, self.pick(data, ready).id))

    @precondition(lambda self: self.workers())
    @rule(data=st.data(), epoch=st.integers(0, 2), step=st.integers(0, 2))
    def a_batch_it_was_not_given(self, data: st.DataObject, epoch: int, step: int) -> None:
        worker = self.pick(data, self.workers())
        channel = data.draw(st.sampled_from([*self.run.ledger.channels, 999]))
        batch = Batch(channel, epoch, step)
        if any(flight.batch == batch for flight in worker.held):
            return
        event = data.draw(
            st.sampled_from(
                [
                    BatchBegun(self.now, worker.id, batch),
                    BatchDone(self.now, worker.id, batch, 1.0),
                    BatchFailed(self.now, worker.id, batch, 1.0, "not mine"),
                ]
            )
        )
        self.run.send(event)

    # --- the end -----------------------------------------------------------------------------

    def teardown(self) -> None:
        """Nothing is stuck, whatever happened; and the same story has the same end."""
        if not hasattr(self, "run"):
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
        import os

        if "NOREPLAY" not in os.environ:
            self.run.replay()


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(stateful_step_count=60)
