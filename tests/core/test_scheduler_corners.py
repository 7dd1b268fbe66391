"""Corners of the scheduler's contract that chance would seldom find, each walked into on purpose.

All of them run under the ledger's eyes; what is asserted here comes on top of that.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

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
    KillReason,
    KillWorker,
    Leave,
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
from penstock.core.scheduler import SchedulerError, Settings
from penstock.options import OnError
from tests.core.scheduler_entries import registered
from tests.core.scheduler_run import Run
from tests.core.scheduler_world import Fate, Nature, World


def some(kind: type, answer: list[Instruction]) -> list:
    """The instructions of one kind."""
    return [instruction for instruction in answer if isinstance(instruction, kind)]


class Stage(Run):
    """A run with the shorthand that hand-written stories need."""

    def __init__(self, workers: int = 1, **settings: object) -> None:
        super().__init__(Settings(**{"worker_concurrency": 1, "silence": 1e9, **settings}))  # type: ignore[arg-type]
        self.group = [start.worker for start in self.send(GroupSized(0.0, "", workers))]

    def ready(self) -> list[Instruction]:
        """All workers that are starting become ready."""
        starting = [w.id for w in self.ledger.workers.values() if w.ready is None]
        return [i for worker in starting for i in self.send(WorkerReady(self.now, worker))]

    def channel(
        self, number: int, steps: int, slots: int = 2, **entry: object
    ) -> list[Instruction]:
        """A channel with an epoch under way."""
        self.send(registered(self.now, number, "", slots, **entry))  # type: ignore[arg-type]
        return self.send(EpochStarted(self.now, number, 0, range(steps)))

    def begin(self, order: Assign) -> None:
        self.send(BatchBegun(self.now, order.worker, order.batch))

    def done(self, order: Assign, cost: float = 1.0) -> list[Instruction]:
        self.begin(order)
        return self.send(BatchDone(self.now, order.worker, order.batch, cost))

    def lose(self, worker: int, cause: str = "killed by SIGKILL") -> list[Instruction]:
        return self.send(WorkerLost(self.now, worker, cause))

    def held(self) -> list[tuple[int, BatchKey]]:
        """Who has what."""
        return [(w.id, flight.batch) for w in self.ledger.workers.values() for flight in w.held]


# --- names -----------------------------------------------------------------------------------


def test_an_epoch_on_a_channel_never_registered_is_an_error_that_names_it() -> None:
    """CONTRACT 10"""
    stage = Stage()
    with pytest.raises(KeyError, match="4711"):
        stage.scheduler.handle(EpochStarted(0.0, 4711, 0, range(3)))
    stage.scheduler.check()


def test_an_epoch_on_a_channel_that_is_gone_is_nothing() -> None:
    """CONTRACT 10"""
    stage = Stage()
    stage.channel(1, 0)
    assert stage.send(ChannelUnregistered(0.0, 1)) == [Forget(1)]
    assert stage.send(EpochStarted(0.0, 1, 1, range(3))) == []


def test_a_gap_between_epochs_is_allowed_and_going_back_is_nothing() -> None:
    """CONTRACT 10"""
    stage = Stage()
    stage.send(ChannelRegistered(0.0, 1, "", 2))
    assert stage.send(EpochStarted(0.0, 1, 5, range(0))) == [FinishEpoch(1, 5, 0, 0, 0)]
    assert stage.send(EpochStarted(0.0, 1, 5, range(3))) == []
    assert stage.send(EpochStarted(0.0, 1, 4, range(3))) == []


def test_an_epoch_without_steps_is_done_at_once_even_without_workers() -> None:
    """CONTRACT 11"""
    stage = Stage(workers=0)
    assert stage.channel(1, 0) == [FinishEpoch(1, 0, 0, 0, 0)]


@pytest.mark.parametrize(
    "bad",
    [
        {"slots": 0},
        {"slots": -1},
        {"weight": 0.0},
        {"weight": -1.0},
        {"weight": math.nan},
        {"weight": math.inf},
        {"max_attempts": 0},
        {"estimate": -1.0},
        {"estimate": math.nan},
        {"deadline": -1.0},
        {"deadline": math.nan},
        {"max_substitutes": -1},
        {"group": "unheard of"},
    ],
    ids=str,
)
def test_a_registration_that_makes_no_sense_is_refused_and_leaves_no_trace(
    bad: dict[str, object],
) -> None:
    """CONTRACT 53: refused at the door."""
    stage = Stage()
    given: dict[str, Any] = {"now": 0.0, "channel": 1, "group": "", "slots": 2, **bad}
    entry = registered(**given)
    with pytest.raises(ValueError, match=next(iter(bad))):
        stage.scheduler.handle(entry)
    stage.send(ChannelRegistered(0.0, 1, "", 2))


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_that_makes_no_sense_is_refused(weight: float) -> None:
    stage = Stage()
    stage.channel(1, 3)
    with pytest.raises(ValueError, match="weight"):
        stage.scheduler.handle(WeightChanged(0.0, 1, weight))
    stage.drain()


# --- attempts --------------------------------------------------------------------------------


def test_a_batch_merely_queued_at_a_worker_that_dies_is_not_charged() -> None:
    """CONTRACT 19"""
    stage = Stage(worker_concurrency=2)
    stage.ready()
    first, second = some(Assign, stage.channel(1, 2, max_attempts=1))
    stage.begin(first)
    answer = stage.lose(first.worker)
    assert [fail.batch for fail in some(Fail, answer)] == [first.batch]
    stage.drain()
    assert stage.ledger.channels[1].ended == {0: "failed", 1: "delivered"}
    assert second.batch.step == 1


def test_a_death_between_two_batches_is_charged_to_neither() -> None:
    """CONTRACT 19: an attempt counts from the moment a worker begins."""
    stage = Stage()
    stage.ready()
    stage.channel(1, 3, max_attempts=1)
    for _ in range(5):
        ((worker, _batch),) = stage.held()
        stage.lose(worker)
        while not stage.ledger.workers:
            stage.pass_time()
        stage.ready()
    stage.drain()
    assert set(stage.ledger.channels[1].ended.values()) == {"delivered"}


def test_a_batch_that_always_kills_is_given_up_after_its_attempts_and_the_rest_goes_on() -> None:
    """CONTRACT 19"""
    stage = Stage(workers=1)
    stage.ready()
    stage.channel(1, 3, max_attempts=3)
    failed: list[Fail] = []
    begun = 0
    while not failed:
        while not stage.held():
            stage.ready() or stage.pass_time()
        ((worker, batch),) = stage.held()
        assert batch.step == 0
        stage.send(BatchBegun(stage.now, worker, batch))
        begun += 1
        failed = some(Fail, stage.lose(worker, "killed by SIGSEGV"))
    assert begun == 3
    assert (failed[0].attempts, "SIGSEGV" in failed[0].cause) == (3, True)
    stage.drain()
    assert stage.ledger.channels[1].count("delivered") == 2


def test_losing_every_worker_at_once_blames_no_batch() -> None:
    """CONTRACT 19: no quarantine while the whole pool is failing."""
    stage = Stage(workers=4)
    stage.channel(1, 8, slots=8, max_attempts=2)
    for _ in range(2):
        while len(stage.held()) < 4:
            stage.ready() or stage.pass_time()
        for worker, batch in stage.held():
            stage.send(BatchBegun(stage.now, worker, batch))
        for worker, _ in stage.held():
            stage.lose(worker)
    stage.drain()
    assert stage.ledger.channels[1].count("failed") < 4


def test_a_group_that_dies_for_ever_still_brings_everything_to_an_end() -> None:
    """CONTRACT 17"""
    stage = Stage(workers=2)
    stage.channel(1, 3, max_attempts=2)
    stage.channel(2, 3, max_attempts=2, on_error=OnError.SUBSTITUTE, max_substitutes=2)
    losses = 0
    while stage.busy:
        while not stage.held():
            stage.ready() or stage.pass_time()
        worker, batch = stage.held()[0]
        stage.send(BatchBegun(stage.now, worker, batch))
        stage.lose(worker)
        losses += 1
    # Each of the 6 batches and 2 substitutes: 2 attempts that count, at most 4 that do not.
    assert losses <= 8 * (2 + 4)
    assert {book.count("failed") for book in stage.ledger.channels.values()} == {3}


def test_a_worker_killed_at_its_deadline_may_still_answer_and_the_answer_counts() -> None:
    """CONTRACT 14, CONTRACT 51: its last message was on the way when it was killed."""
    stage = Stage()
    stage.ready()
    (order,) = some(Assign, stage.channel(1, 1, deadline=5.0))
    stage.begin(order)
    assert stage.send(Tick(5.0)) == [KillWorker(order.worker, KillReason.DEADLINE, order.batch)]
    assert stage.send(Tick(5.0)) == []
    answer = stage.send(BatchDone(5.0, order.worker, order.batch, 5.0))
    assert some(Deliver, answer)
    assert some(FinishEpoch, answer)
    assert not some(Assign, stage.lose(order.worker))


def test_the_deadline_of_a_batch_runs_from_its_own_beginning() -> None:
    """CONTRACT 51: waiting at the worker is not the batch's fault."""
    stage = Stage(worker_concurrency=2)
    stage.ready()
    first, second = some(Assign, stage.channel(1, 2, deadline=5.0))
    stage.begin(first)
    stage.send(BatchDone(4.0, first.worker, first.batch, 4.0))
    stage.send(BatchBegun(4.0, second.worker, second.batch))
    assert stage.send(Tick(8.9)) == []
    assert stage.send(Tick(9.0)) == [KillWorker(second.worker, KillReason.DEADLINE, second.batch)]


def test_the_deadline_of_one_attempt_does_not_strike_the_next() -> None:
    """CONTRACT 51"""
    stage = Stage()
    stage.ready()
    (order,) = some(Assign, stage.channel(1, 1, deadline=5.0))
    stage.begin(order)
    stage.send(WorkerLost(4.0, order.worker, "killed"))
    stage.ready()
    ((worker, batch),) = stage.held()
    stage.send(BatchBegun(4.5, worker, batch))
    assert stage.send(Tick(6.0)) == []
    assert stage.send(Tick(9.5)) == [KillWorker(worker, KillReason.DEADLINE, batch)]


# --- substitutes -----------------------------------------------------------------------------


def test_substitutes_come_from_the_next_good_steps_round_and_round_up_to_the_limit() -> None:
    """CONTRACT 19"""
    stage = Stage()
    stage.ready()
    answer = stage.channel(
        1, 4, slots=1, on_error=OnError.SUBSTITUTE, max_substitutes=3, max_attempts=1
    )
    sources: list[tuple[int, int]] = []
    ended: list[Instruction] = []
    # Steps 0 to 3 in turn; whatever is sampled from steps 0, 1 or 3 fails.
    while assigned := some(Assign, answer):
        (order,) = assigned
        sources.append((order.batch.step, order.source))
        stage.begin(order)
        if order.source == 2:
            answer = stage.send(BatchDone(0.0, order.worker, order.batch, 1.0))
            ended += some(Deliver, answer)
            answer = answer + stage.send(SlotReturned(0.0, 1, order.slot))
        else:
            answer = stage.send(BatchFailed(0.0, order.worker, order.batch, 1.0, "bad seed"))
            ended += some(Fail, answer)
    assert sources == [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (3, 3)]
    assert [end.batch.step for end in ended] == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert isinstance(ended[3], Fail)


def test_a_substitute_is_delivered_in_the_place_and_slot_of_the_batch_it_stands_for() -> None:
    """CONTRACT 19"""
    stage = Stage()
    stage.ready()
    (order,) = some(
        Assign,
        stage.channel(1, 3, slots=1, on_error=OnError.SUBSTITUTE, max_substitutes=1),
    )
    stage.begin(order)
    answer = stage.send(BatchFailed(0.0, order.worker, order.batch, 1.0, "bad seed"))
    (again,) = some(Assign, answer)
    assert (again.batch, again.slot, again.source) == (order.batch, order.slot, 1)
    assert some(Deliver, stage.done(again)) == [
        Deliver(order.batch, order.slot, source=1, worker=again.worker)
    ]


def test_an_epoch_of_one_step_has_nothing_to_put_in_its_place() -> None:
    """CONTRACT 19"""
    stage = Stage()
    stage.ready()
    (order,) = some(Assign, stage.channel(1, 1, on_error=OnError.SUBSTITUTE, max_substitutes=9))
    stage.begin(order)
    answer = stage.send(BatchFailed(0.0, order.worker, order.batch, 1.0, "bad seed"))
    assert [type(i) for i in answer] == [Fail, FinishEpoch]


# --- epochs and channels that end early ------------------------------------------------------


def test_a_slot_stays_taken_until_the_worker_of_a_cancelled_batch_has_answered() -> None:
    """CONTRACT 13: a slot is used again only when nobody can write to it."""
    stage = Stage(workers=2)
    stage.ready()
    (order,) = some(Assign, stage.channel(1, 3, slots=1))
    stage.begin(order)
    assert stage.send(EpochStarted(0.0, 1, 1, range(2))) == []
    answer = stage.send(BatchDone(0.0, order.worker, order.batch, 1.0))
    assert [type(i) for i in answer] == [Assign]
    assert answer[0].batch == BatchKey(1, 1, 0)  # type: ignore[union-attr]


def test_a_worker_that_was_killed_holds_a_leaving_channel_until_it_is_reaped() -> None:
    """CONTRACT 15: its memory goes only when nobody can write to it."""
    stage = Stage()
    stage.ready()
    (order,) = some(Assign, stage.channel(1, 1, deadline=5.0))
    stage.begin(order)
    stage.send(Tick(5.0))
    assert stage.send(ChannelUnregistered(5.0, 1)) == []
    assert stage.send(ChannelUnregistered(5.0, 1)) == []
    assert Forget(1) in stage.lose(order.worker)


def test_a_huge_epoch_costs_no_more_than_a_small_one() -> None:
    """The steps are a range, and stay one."""
    stage = Stage()
    stage.ready()
    (order,) = some(Assign, stage.channel(1, 1, slots=1))
    stage.done(order)
    scheduler = stage.scheduler
    scheduler.handle(SlotReturned(0.0, 1, order.slot))
    (order,) = some(Assign, scheduler.handle(EpochStarted(0.0, 1, 1, range(10**15))))
    scheduler.handle(EpochStarted(0.0, 1, 2, range(10**15)))
    scheduler.handle(ChannelUnregistered(0.0, 1))
    assert Forget(1) in scheduler.handle(BatchDone(0.0, order.worker, order.batch, 1.0))


# --- starts and the breaker ------------------------------------------------------------------


class Stillborn(Nature):
    """No worker of this world ever becomes ready, until it is told to."""

    start_takes = 0.01
    healed = False

    def start(self, order: StartWorker) -> Fate:
        return Fate.WELL if self.healed else Fate.DIES


def watched_world(nature: Nature, **settings: object) -> tuple[Run, World]:
    """A world whose scheduler is under watch."""

    class Party:
        def __init__(self) -> None:
            self.run = Run(Settings(**settings))  # type: ignore[arg-type]

        def handle(self, event: Event) -> list[Instruction]:
            return self.run.send(event)

        def next_wakeup(self) -> float | None:
            return self.run.scheduler.next_wakeup()

    party = Party()
    return party.run, World(party, nature)


def test_a_group_that_cannot_start_breaks_its_channels_and_makes_no_storm() -> None:
    """CONTRACT 53"""
    _, world = watched_world(Stillborn(), breaker_deaths=5, breaker_rest=30.0)
    world.send(GroupSized(0.0, "", 4))
    rank = world.register(ChannelRegistered(0.0, 1, "", 2))
    world.start_epoch(rank, range(5))
    world.run(1000.0)
    assert rank.broken == 1
    assert world.starts <= 5 + 4


def test_asking_again_and_again_starts_one_worker_per_rest() -> None:
    """CONTRACT 53"""
    _, world = watched_world(Stillborn(), breaker_deaths=3, breaker_rest=30.0)
    world.send(GroupSized(0.0, "", 2))
    rank = world.register(ChannelRegistered(0.0, 1, "", 2))
    for second in range(600):
        world.start_epoch(rank, range(5))
        world.run(float(second + 1))
    assert rank.broken >= 590
    assert 10 <= world.starts <= 3 + 2 + 600 / 30


def test_a_group_that_can_start_again_serves_whoever_asks_after_the_rest() -> None:
    """CONTRACT 53"""
    nature = Stillborn()
    _, world = watched_world(nature, breaker_deaths=3, breaker_rest=30.0)
    world.send(GroupSized(0.0, "", 2))
    rank = world.register(ChannelRegistered(0.0, 1, "", 2))
    world.start_epoch(rank, range(5))
    world.run(40.0)
    nature.healed = True
    world.start_epoch(rank, range(5))
    world.run(100.0)
    assert rank.done == {1: 1}
    assert sum(worker.ready for worker in world.workers.values()) == 2


def test_the_last_worker_lost_while_the_breaker_is_open_leaves_nobody_waiting_for_ever() -> None:
    """CONTRACT 53: no hang. One worker serves on while its fellows cannot start; then it dies."""
    stage = Stage(workers=2, breaker_deaths=2, breaker_rest=30.0)
    survivor = stage.group[0]
    stage.send(WorkerReady(0.0, survivor))
    (order,) = some(Assign, stage.channel(1, 3, slots=1))
    answer = stage.lose(stage.group[1])
    while not (second := some(StartWorker, answer)):
        now = stage.scheduler.next_wakeup()
        assert now is not None
        answer = stage.send(Tick(now))
    assert not some(BreakChannel, stage.lose(second[0].worker))
    stage.begin(order)
    answer = stage.lose(survivor)
    broken = some(BreakChannel, answer)
    assert broken or some(StartWorker, answer) or stage.scheduler.next_wakeup() is not None
    if not broken:
        for _ in range(10):
            stage.drain()


def test_deaths_after_ready_never_open_the_breaker() -> None:
    """CONTRACT 53"""
    stage = Stage(workers=1, breaker_deaths=2)
    stage.channel(1, 1, max_attempts=1)
    for _ in range(10):
        while not stage.held():
            stage.ready() or stage.pass_time()
        ((worker, _),) = stage.held()
        assert not some(BreakChannel, stage.lose(worker))
    stage.drain()
    assert stage.ledger.channels[1].ended == {0: "delivered"}


def test_the_dead_are_replaced_at_once_and_then_ever_more_slowly() -> None:
    """CONTRACT 53: back-off."""
    stage = Stage(workers=1, backoff_first=1.0, death_backoff_most=8.0)
    waits: list[float] = []
    for _ in range(7):
        stage.ready()
        (worker,) = stage.ledger.workers
        lost = stage.now
        stage.lose(worker)
        while not stage.ledger.workers:
            assert stage.pass_time()
        waits.append(stage.now - lost)
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_starts_that_fail_are_tried_again_ever_more_slowly_until_one_is_ready() -> None:
    """CONTRACT 53: back-off, also before ready."""
    stage = Stage(workers=1, backoff_first=1.0, backoff_most=4.0, breaker_deaths=99)
    waits: list[float] = []
    for turn in range(8):
        (worker,) = stage.ledger.workers
        if turn == 5:
            stage.ready()
        lost = stage.now
        stage.lose(worker)
        while not stage.ledger.workers:
            assert stage.pass_time()
        waits.append(stage.now - lost)
    assert waits[:5] == [0.0, 1.0, 2.0, 4.0, 4.0]
    assert waits[6] < 4.0, "a worker had become ready since"


def test_a_batch_that_was_made_makes_the_next_death_the_first_again() -> None:
    """CONTRACT 53"""
    stage = Stage(workers=1, backoff_first=1.0)
    stage.channel(1, 10, slots=10)
    for _ in range(3):
        stage.ready()
        stage.done(Assign(*stage.held()[0], 0, 0, 1))
        (worker,) = stage.ledger.workers
        assert some(StartWorker, stage.lose(worker))


# --- leaving workers -------------------------------------------------------------------------


def test_a_worker_past_its_soft_limit_finishes_what_it_has_and_is_replaced_unseen() -> None:
    """CONTRACT 52"""
    stage = Stage(worker_concurrency=2, soft_memory=100)
    stage.ready()
    first, second = some(Assign, stage.channel(1, 6, slots=6))
    answer = stage.send(WorkerBeat(0.0, first.worker, 101))
    assert RetireWorker(first.worker, Leave.MEMORY) in answer
    assert len(some(StartWorker, answer)) == 1
    assert stage.send(WorkerBeat(0.0, first.worker, 102)) == []
    assert not some(Assign, stage.done(first))
    assert not some(Assign, stage.done(second))
    assert not some(StartWorker, stage.lose(first.worker, "left"))
    stage.drain()
    assert stage.ledger.channels[1].count("delivered") == 6


def test_a_worker_past_its_hard_limit_is_killed_once_even_if_it_was_leaving() -> None:
    """CONTRACT 52"""
    stage = Stage(soft_memory=100, hard_memory=200)
    stage.ready()
    (order,) = some(Assign, stage.channel(1, 1))
    stage.begin(order)
    stage.send(WorkerBeat(0.0, order.worker, 150))
    kill = KillWorker(order.worker, KillReason.MEMORY, order.batch)
    assert stage.send(WorkerBeat(0.0, order.worker, 250)) == [kill]
    assert stage.send(WorkerBeat(0.0, order.worker, 250)) == []
    stage.lose(order.worker)
    stage.drain()
    assert stage.ledger.channels[1].ended == {0: "delivered"}


def test_an_idle_worker_that_stops_answering_is_killed_and_replaced() -> None:
    """CONTRACT 51"""
    stage = Stage(silence=10.0)
    stage.ready()
    (worker,) = stage.group
    stage.send(WorkerBeat(4.0, worker))
    assert stage.send(Tick(13.9)) == []
    assert stage.send(Tick(14.0)) == [KillWorker(worker, KillReason.SILENCE, None)]
    assert len(some(StartWorker, stage.lose(worker))) == 1


SIGNS: dict[str, Callable[[Assign], Event]] = {
    "begun": lambda order: BatchBegun(6.0, order.worker, order.batch),
    "done": lambda order: BatchDone(6.0, order.worker, order.batch, 1.0),
    "failed": lambda order: BatchFailed(6.0, order.worker, order.batch, 1.0, "bad seed"),
    "beat": lambda order: WorkerBeat(6.0, order.worker),
    "ready": lambda order: WorkerReady(6.0, order.worker),
}


@pytest.mark.parametrize("sign", SIGNS.values(), ids=SIGNS.keys())
def test_whatever_comes_from_a_worker_is_a_sign_of_life(sign: Callable[[Assign], Event]) -> None:
    """CONTRACT 51"""
    stage = Stage(silence=10.0, trim_after=1e6)
    stage.ready()
    (order,) = some(Assign, stage.channel(1, 1))
    stage.send(sign(order))
    assert stage.send(Tick(15.9)) == []
    (kill,) = stage.send(Tick(16.0))
    assert (kill.worker, kill.fault) == (order.worker, KillReason.SILENCE)  # type: ignore[union-attr]


# --- slots -----------------------------------------------------------------------------------


def test_a_slot_that_is_not_the_ranks_cannot_be_returned() -> None:
    """CONTRACT 9: a worker may be writing to it."""
    stage = Stage()
    stage.ready()
    (order,) = some(Assign, stage.channel(1, 9))
    assert stage.send(SlotReturned(0.0, 1, order.slot)) == []  # being written
    stage.done(order)
    stage.send(SlotReturned(0.0, 1, order.slot))
    for slot in (order.slot, 1 - order.slot, -1, 2):  # being written again, free or none
        stage.send(SlotReturned(0.0, 1, slot))
    assert stage.scheduler.statistics().channels[0].stray_returns == 5
    stage.drain()


# --- pages -----------------------------------------------------------------------------------


def test_slots_long_unused_give_their_pages_back_once() -> None:
    """Last in, first out keeps the others warm."""
    stage = Stage(workers=2, trim_after=5.0)
    stage.ready()
    orders = some(Assign, stage.channel(1, 2))
    for order in orders:
        stage.done(order)
        stage.send(SlotReturned(0.0, 1, order.slot))
    trimmed: list[int] = []
    for _ in range(5):
        now = stage.scheduler.next_wakeup()
        if now is not None and now < 1e8:
            for trim in some(TrimSlots, stage.send(Tick(now))):
                trimmed += trim.slots
    assert sorted(trimmed) == [0, 1]
    assert stage.now >= 5.0


# --- the impossible --------------------------------------------------------------------------

Report = Callable[[int, BatchKey], Event]
REPORTS: dict[str, Report] = {
    "begun": lambda worker, batch: BatchBegun(0.0, worker, batch),
    "done": lambda worker, batch: BatchDone(0.0, worker, batch, 1.0),
    "failed": lambda worker, batch: BatchFailed(0.0, worker, batch, 1.0, "?"),
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS.keys())
def test_a_worker_reporting_a_batch_it_was_not_given_is_an_error_with_the_story(
    report: Report,
) -> None:
    stage = Stage()
    stage.ready()
    (order,) = some(Assign, stage.channel(1, 3, slots=1))
    stage.done(order)
    with pytest.raises(SchedulerError) as caught:
        stage.scheduler.handle(report(order.worker, order.batch))
    assert "EpochStarted" in str(caught.value)
    assert "BatchDone" in str(caught.value)
    stage.scheduler.check()
    stage.drain()


@pytest.mark.parametrize("cost", [math.nan, math.inf, -1.0, -math.inf])
def test_a_cost_that_makes_no_sense_does_not_upset_the_shares(cost: float) -> None:
    """CONTRACT 7: whoever measures wrongly hurts nobody else for ever."""
    stage = Stage()
    stage.ready()
    stage.channel(1, 3, slots=9)
    stage.channel(2, 50, slots=99)
    for _ in range(4):
        (held,) = stage.held()
        stage.send(BatchBegun(0.0, *held))
        stage.send(BatchDone(0.0, *held, cost))
    served = []
    while stage.held():
        (held,) = stage.held()
        served.append(held[1].channel)
        stage.send(BatchBegun(0.0, *held))
        stage.send(BatchDone(0.0, *held, 1.0))
    assert stage.ledger.channels[1].announced == {0}
    assert stage.ledger.channels[2].announced == {0}


def test_a_time_that_is_not_a_number_stops_no_clock() -> None:
    stage = Stage()
    stage.send(Tick(5.0))
    stage.scheduler.handle(Tick(math.nan))
    assert stage.scheduler.statistics().now == 5.0


def test_thousands_of_channels_epochs_and_workers_that_came_and_went_leave_nothing_behind() -> None:
    """CONTRACT 29: what is over takes no memory."""
    stage = Stage()
    stage.look_every = stage.ledger.look_every = 10**9  # its figures go back to the beginning
    sizes = []
    for number in range(1, 401):
        stage.channel(number, 3)
        stage.send(EpochStarted(stage.now, number, 1, range(2)))
        stage.drain()
        stage.send(ChannelUnregistered(stage.now, number))
        stage.lose(next(iter(stage.ledger.workers)))
        stage.drain()
        stage.log.clear()
        stage.ledger.channels.clear()
        if number % 100 == 0:
            sizes.append(len(pickle.dumps(stage.scheduler)))
    assert stage.scheduler.statistics().totals.delivered == 800
    assert sizes[-1] <= sizes[0] + 200, sizes


# --- seeing ----------------------------------------------------------------------------------


def test_one_line_shows_the_scheduler() -> None:
    """CONTRACT 54"""
    stage = Stage()
    stage.ready()
    stage.channel(1, 0)
    (order,) = some(Assign, stage.channel(2, 10, slots=3))
    stage.done(order)
    line = stage.scheduler.describe()
    assert "\n" not in line
    assert re.search(r"2 registered.* 1 active.* 1 runnable.* 0 leaving", line), line
    assert "1:idle" in line or "1:e0" in line
    assert "2:e0/2/1/10" in line


def test_statistics_are_a_snapshot_that_can_be_written_as_json() -> None:
    """CONTRACT 57"""
    stage = Stage()
    stage.ready()
    (order,) = some(Assign, stage.channel(1, 2))
    before = stage.scheduler.statistics()
    text = json.dumps(dataclasses.asdict(before))
    stage.done(order)
    assert json.dumps(dataclasses.asdict(before)) == text
    assert json.dumps(dataclasses.asdict(stage.scheduler.statistics())) != text


def test_a_story_is_bounded_and_knows_the_last_that_happened() -> None:
    stage = Stage(story_length=8)
    stage.ready()
    answer = stage.channel(1, 50, slots=1)
    while assigned := some(Assign, answer):
        stage.done(assigned[0])
        answer = stage.send(SlotReturned(0.0, 1, assigned[0].slot))
    story = stage.scheduler.story(1)
    assert len(story) == 8
    assert isinstance(story[-1].event, SlotReturned)


def test_two_fresh_schedulers_answer_alike() -> None:
    """A run that was written down can be played again."""
    stage = Stage(workers=2)
    stage.channel(1, 5)
    stage.channel(2, 5)
    stage.drain()
    stage.close()
    assert len(stage.log) > 20
    stage.replay()
