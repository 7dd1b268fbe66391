"""The scheduler's promises, one at a time, in stories short enough to read.

What holds in any story is proved elsewhere (machine, walk, simulation); here each line of the
contract has an example that shows what it means.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from dataclasses import asdict
from typing import TypeVar

import pytest

from penstock.core.events import (
    Assign,
    Batch,
    BatchBegun,
    BatchDone,
    BatchFailed,
    BreakChannel,
    ChannelRegistered,
    ChannelUnregistered,
    CrewSized,
    Deliver,
    EpochStarted,
    Event,
    Fail,
    Fault,
    FinishEpoch,
    Forget,
    Instruction,
    KillWorker,
    Leave,
    OnError,
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
from penstock.core.scheduler import (
    FalseReport,
    InvalidEvent,
    Scheduler,
    SchedulerError,
    Settings,
    UnknownChannel,
)

I = TypeVar("I", bound=Instruction)


class Hub:
    """A scheduler with a crew "c", spoken to in few words; `now` is moved by hand."""

    def __init__(self, workers: int = 1, **settings: object) -> None:
        self.scheduler = Scheduler(Settings(**{"worker_concurrency": 1} | settings))  # type: ignore[arg-type]
        self.now = 0.0
        starts = self.send(CrewSized(0.0, "c", workers))
        self.workers = [order.worker for order in only(StartWorker, starts)]

    def send(self, event: Event) -> list[Instruction]:
        answer = self.scheduler.handle(event)
        self.scheduler.check()
        return answer

    def ready(self, *workers: int) -> list[Instruction]:
        """These become ready; all of the first crew if none is named."""
        answers = [self.send(WorkerReady(self.now, w)) for w in workers or self.workers]
        return [order for answer in answers for order in answer]

    def register(self, channel: int, slots: int = 2, **terms: object) -> list[Instruction]:
        return self.send(ChannelRegistered(self.now, channel, "c", slots, **terms))  # type: ignore[arg-type]

    def start(self, channel: int, steps: int, epoch: int = 0) -> list[Instruction]:
        return self.send(EpochStarted(self.now, channel, epoch, range(steps)))

    def begin(self, order: Assign) -> list[Instruction]:
        return self.send(BatchBegun(self.now, order.worker, order.batch))

    def done(self, order: Assign, cost: float = 1.0) -> list[Instruction]:
        return self.send(BatchDone(self.now, order.worker, order.batch, cost))

    def failed(self, order: Assign, cause: str = "bad seed") -> list[Instruction]:
        return self.send(BatchFailed(self.now, order.worker, order.batch, 1.0, cause))

    def lose(self, worker: int, cause: str = "SIGKILL") -> list[Instruction]:
        return self.send(WorkerLost(self.now, worker, cause))

    def give_back(self, order: Assign) -> list[Instruction]:
        return self.send(SlotReturned(self.now, order.batch.channel, order.slot))

    def tick(self, now: float) -> list[Instruction]:
        self.now = now
        return self.send(Tick(now))


def only(kind: type[I], answer: list[Instruction]) -> list[I]:
    return [order for order in answer if isinstance(order, kind)]


def one(answer: list[Instruction]) -> Assign:
    """The only batch handed out in this answer."""
    (order,) = only(Assign, answer)
    return order


@pytest.fixture
def hub() -> Hub:
    """One worker, ready, that takes one batch at a time."""
    hub = Hub()
    hub.ready()
    return hub


# --- fairness --------------------------------------------------------------------------------


def serve(hub: Hub, answer: list[Instruction], costs: dict[int, float]) -> Iterator[int]:
    """The channels in the order in which they are served, each batch read at once."""
    while orders := only(Assign, answer):
        (order,) = orders
        yield order.batch.channel
        answer = hub.done(order, costs[order.batch.channel]) + hub.give_back(order)


def test_channels_that_cost_the_same_take_turns() -> None:
    """CONTRACT 7"""
    hub = Hub()
    for channel in (1, 2, 3):
        hub.register(channel, estimate=1.0)
        hub.start(channel, 3)
    served = list(serve(hub, hub.ready(), {1: 1.0, 2: 1.0, 3: 1.0}))
    assert served == [1, 2, 3] * 3


def test_a_channel_with_dear_batches_gets_fewer_of_them() -> None:
    """CONTRACT 7: what is shared is cost, not turns."""
    hub = Hub()
    for channel, cost in ((1, 3.0), (2, 1.0)):
        hub.register(channel, estimate=cost)
        hub.start(channel, 100)
    serving = serve(hub, hub.ready(), {1: 3.0, 2: 1.0})
    served = [next(serving) for _ in range(40)]
    assert (served.count(1), served.count(2)) == (10, 30)


def test_what_a_batch_really_cost_counts_and_not_what_it_was_thought_to() -> None:
    """CONTRACT 7: estimate at dispatch, settle at completion."""
    hub = Hub()
    for channel in (1, 2):
        hub.register(channel, estimate=1.0)
        hub.start(channel, 100)
    serving = serve(hub, hub.ready(), {1: 4.0, 2: 1.0})
    served = [next(serving) for _ in range(50)]
    assert (served.count(1), served.count(2)) == (10, 40)


def test_a_weight_is_a_share() -> None:
    """CONTRACT 7"""
    hub = Hub()
    hub.register(1, weight=3.0, estimate=1.0)
    hub.register(2, weight=1.0, estimate=1.0)
    for channel in (1, 2):
        hub.start(channel, 100)
    serving = serve(hub, hub.ready(), {1: 1.0, 2: 1.0})
    served = [next(serving) for _ in range(40)]
    assert (served.count(1), served.count(2)) == (30, 10)


def test_a_weight_that_changes_counts_from_then_on() -> None:
    """CONTRACT 7"""
    hub = Hub()
    for channel in (1, 2):
        hub.register(channel, estimate=1.0)
        hub.start(channel, 200)
    serving = serve(hub, hub.ready(), {1: 1.0, 2: 1.0})
    before = [next(serving) for _ in range(20)]
    hub.send(WeightChanged(0.0, 1, 3.0))
    after = [next(serving) for _ in range(40)]
    assert before.count(1) == 10
    assert after.count(1) == 30


def test_an_idle_channel_banks_nothing() -> None:
    """CONTRACT 7"""
    hub = Hub()
    hub.register(1, estimate=1.0)
    hub.register(2, estimate=1.0)
    hub.start(1, 1000)
    serving = serve(hub, hub.ready(), {1: 1.0, 2: 1.0})
    for _ in range(100):
        next(serving)
    hub.start(2, 100)
    served = [next(serving) for _ in range(20)]
    assert served.count(2) in (9, 10, 11)


def test_a_turn_gives_a_channel_one_batch_even_if_batches_cost_nothing() -> None:
    """CONTRACT 7"""
    hub = Hub()
    for channel in (1, 2, 3):
        hub.register(channel)
        hub.start(channel, 3)
    served = list(serve(hub, hub.ready(), {1: 0.0, 2: 0.0, 3: 0.0}))
    assert served == [1, 2, 3] * 3


def test_a_channel_is_in_the_run_queue_once_however_often_it_becomes_runnable() -> None:
    """CONTRACT 8"""
    hub = Hub()
    hub.register(1, slots=3)
    for epoch in range(3):
        hub.start(1, 3, epoch)
    assert hub.scheduler.statistics().crews[0].runnable == 1
    assert len(only(Assign, hub.ready())) == 1


# --- credits ---------------------------------------------------------------------------------


def test_a_batch_is_handed_out_only_with_a_free_slot() -> None:
    """CONTRACT 9"""
    hub = Hub(workers=4)
    hub.register(1, slots=2)
    hub.start(1, 10)
    orders = only(Assign, hub.ready())
    assert [order.slot for order in orders] == [0, 1]
    assert only(Assign, hub.done(orders[0])) == []
    assert one(hub.give_back(orders[0])).slot == 0


def test_a_rank_that_does_not_read_holds_up_nobody_else(hub: Hub) -> None:
    """CONTRACT 9"""
    hub.register(1, slots=1)
    hub.register(2, slots=1)
    hub.done(one(hub.start(1, 10)))
    answer = hub.start(2, 5)
    for _ in range(5):
        order = one(answer)
        assert order.batch.channel == 2
        answer = hub.done(order) + hub.give_back(order)


def test_the_slot_that_was_freed_last_is_used_first(hub: Hub) -> None:
    hub.register(1, slots=3)
    first = one(hub.start(1, 9))
    second = one(hub.done(first))
    third = one(hub.done(second))
    hub.give_back(second)
    assert one(hub.done(third)).slot == second.slot


def test_a_slot_the_rank_does_not_have_is_counted_and_ignored(hub: Hub) -> None:
    hub.register(1)
    hub.start(1, 1)
    for slot in (0, 1, 7, -1):
        assert hub.send(SlotReturned(0.0, 1, slot)) == []
    assert hub.scheduler.statistics().channels[0].stray_returns == 4


def test_a_slot_of_nobody_is_ignored(hub: Hub) -> None:
    assert hub.send(SlotReturned(0.0, 99, 0)) == []


def test_time_spent_waiting_is_told_apart_by_what_was_waited_for() -> None:
    hub = Hub()
    hub.register(1, slots=1)
    hub.start(1, 2)
    hub.now = 3.0
    order = one(hub.ready())
    hub.now = 4.0
    hub.done(order)
    hub.now = 9.0
    hub.give_back(order)
    (channel,) = hub.scheduler.statistics().channels
    assert (channel.waited_for_turn, channel.waited_for_credit) == (3.0, 6.0)


# --- epochs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [-1, 2, 3])
def test_an_epoch_that_is_not_later_is_nothing(hub: Hub, epoch: int) -> None:
    """CONTRACT 10"""
    hub.register(1)
    hub.start(1, 0, epoch=3)
    assert hub.start(1, 5, epoch) == []


def test_epochs_may_leave_a_gap(hub: Hub) -> None:
    """CONTRACT 10"""
    hub.register(1)
    hub.start(1, 0, epoch=3)
    assert one(hub.start(1, 5, epoch=7)).batch == Batch(1, 7, 0)


def test_an_epoch_of_a_channel_never_registered_is_an_error_that_names_it(hub: Hub) -> None:
    """CONTRACT 10"""
    with pytest.raises(UnknownChannel, match="channel 41 was never registered"):
        hub.start(41, 5)


def test_an_id_left_out_was_never_registered(hub: Hub) -> None:
    """CONTRACT 10"""
    hub.register(1)
    hub.register(5)
    with pytest.raises(UnknownChannel):
        hub.start(3, 5)


def test_an_epoch_of_a_channel_that_is_gone_or_leaving_is_nothing(hub: Hub) -> None:
    """CONTRACT 10"""
    hub.register(1)
    hub.register(2)
    hub.start(2, 5)
    for channel in (1, 2):
        hub.send(ChannelUnregistered(0.0, channel))
        assert hub.start(channel, 5, epoch=1) == []


def test_an_epoch_without_steps_is_done_at_once(hub: Hub) -> None:
    """CONTRACT 11"""
    hub.register(1)
    assert hub.start(1, 0) == [FinishEpoch(1, 0, 0, 0, 0)]


def test_done_is_announced_once_after_the_last_batch(hub: Hub) -> None:
    """CONTRACT 12"""
    hub.register(1)
    second = one(hub.done(one(hub.start(1, 2))))
    assert hub.done(second) == [
        Deliver(second.batch, second.slot, second.source, second.worker),
        FinishEpoch(1, 0, delivered=2, failed=0, cancelled=0),
    ]
    assert hub.give_back(second) == []


def test_steps_are_handed_out_in_order_from_wherever_the_epoch_starts(hub: Hub) -> None:
    hub.register(1, slots=9)
    answer = hub.send(EpochStarted(0.0, 1, 0, range(7, 10)))
    steps = []
    while orders := only(Assign, answer):
        steps.append(orders[0].batch.step)
        answer = hub.done(orders[0])
    assert steps == [7, 8, 9]


def test_a_later_epoch_cancels_what_is_left_of_the_last(hub: Hub) -> None:
    """CONTRACT 13"""
    hub.register(1)
    old = one(hub.start(1, 5))
    hub.start(1, 2, epoch=1)
    answer = hub.done(old)
    assert only(Deliver, answer) == []
    assert one(answer).batch == Batch(1, 1, 0)
    (channel,) = hub.scheduler.statistics().channels
    assert channel.cancelled_before == 5


def test_an_epoch_that_was_cancelled_is_not_announced(hub: Hub) -> None:
    """CONTRACT 12, CONTRACT 13"""
    hub.register(1)
    order = one(hub.start(1, 1))
    assert hub.start(1, 0, epoch=1) == [FinishEpoch(1, 1, 0, 0, 0)]
    assert hub.done(order) == []


def test_a_slot_is_used_again_only_when_its_worker_has_answered_or_is_gone(hub: Hub) -> None:
    """CONTRACT 13"""
    hub.register(1, slots=1)
    old = one(hub.start(1, 5))
    assert hub.start(1, 5, epoch=1) == []
    (start,) = only(StartWorker, hub.lose(old.worker))
    assert one(hub.ready(start.worker)).slot == old.slot


@pytest.mark.parametrize("ending", ["done", "failed", "lose"])
def test_what_comes_of_an_older_epoch_is_not_told(hub: Hub, ending: str) -> None:
    """CONTRACT 14"""
    hub.register(1, slots=1, max_attempts=1)
    old = one(hub.start(1, 5))
    hub.begin(old)
    hub.start(1, 0, epoch=1)
    answer = hub.lose(old.worker) if ending == "lose" else getattr(hub, ending)(old)
    assert only(Deliver, answer) == only(Fail, answer) == only(FinishEpoch, answer) == []


# --- leaving ---------------------------------------------------------------------------------


def test_a_channel_with_nothing_in_flight_is_forgotten_at_once(hub: Hub) -> None:
    """CONTRACT 15"""
    hub.register(1)
    assert hub.send(ChannelUnregistered(0.0, 1)) == [Forget(1)]


def test_a_channel_with_batches_in_flight_is_forgotten_at_the_last_of_them() -> None:
    """CONTRACT 15"""
    hub = Hub(workers=2)
    hub.register(1, slots=4)
    hub.start(1, 10)
    first, second = only(Assign, hub.ready())
    assert hub.send(ChannelUnregistered(0.0, 1)) == []
    assert hub.done(first) == []
    assert only(Forget, hub.lose(second.worker)) == [Forget(1)]


def test_unregistering_a_channel_that_is_not_there_is_nothing(hub: Hub) -> None:
    """CONTRACT 15"""
    hub.register(1)
    hub.send(ChannelUnregistered(0.0, 1))
    assert hub.send(ChannelUnregistered(0.0, 1)) == []
    assert hub.send(ChannelUnregistered(0.0, 99)) == []


def test_a_worker_is_free_for_others_when_a_leaving_channel_is_done_with_it(hub: Hub) -> None:
    """CONTRACT 15: it never holds others up."""
    hub.register(1)
    hub.register(2)
    order = one(hub.start(1, 10))
    hub.start(2, 10)
    hub.send(ChannelUnregistered(0.0, 1))
    assert one(hub.done(order)).batch.channel == 2


def test_an_id_is_never_used_again(hub: Hub) -> None:
    hub.register(5)
    hub.send(ChannelUnregistered(0.0, 5))
    for channel in (5, 4, -1):
        with pytest.raises(InvalidEvent):
            hub.register(channel)


def test_a_channel_of_a_crew_that_is_not_there_is_refused(hub: Hub) -> None:
    with pytest.raises(InvalidEvent, match="no crew 'd'"):
        hub.send(ChannelRegistered(0.0, 1, "d", 2))
    hub.register(1)


# --- attempts and quarantine -----------------------------------------------------------------


def test_every_batch_ends_once_and_the_counts_add_up(hub: Hub) -> None:
    """CONTRACT 17"""
    hub.register(1, slots=3, max_attempts=1)
    second = one(hub.done(one(hub.start(1, 3))))
    third = one(hub.failed(second))
    hub.begin(third)
    answer = hub.lose(third.worker)
    assert only(Fail, answer) == [Fail(third.batch, "SIGKILL", 1)]
    assert only(FinishEpoch, answer) == [FinishEpoch(1, 0, delivered=1, failed=2, cancelled=0)]


def test_a_batch_whose_worker_died_is_tried_again_in_its_slot_before_new_ones() -> None:
    """CONTRACT 19"""
    hub = Hub(workers=2)
    hub.register(1, slots=4)
    hub.start(1, 9)
    first, second = only(Assign, hub.ready())
    hub.begin(first)
    hub.lose(first.worker)
    again = one(hub.done(second))
    assert again == Assign(second.worker, first.batch, first.slot, first.source, attempt=2)


def test_batches_merely_queued_at_a_dead_worker_are_not_charged() -> None:
    """CONTRACT 19"""
    hub = Hub(worker_concurrency=2)
    hub.register(1, max_attempts=1)
    hub.start(1, 2)
    first, second = only(Assign, hub.ready())
    hub.begin(first)
    answer = hub.lose(first.worker)
    assert [order.batch for order in only(Fail, answer)] == [first.batch]
    (start,) = only(StartWorker, answer)
    again = one(hub.ready(start.worker))
    assert (again.batch, again.attempt) == (second.batch, 1)


def die_at(hub: Hub, order: Assign) -> list[Instruction]:
    """The worker begins the batch and dies; its successor is started and ready, if need be later."""
    hub.begin(order)
    answer = hub.lose(order.worker)
    while not (starts := only(StartWorker, answer)):
        wakeup = hub.scheduler.next_wakeup()
        assert wakeup is not None
        answer += hub.tick(wakeup)
    return answer + hub.ready(starts[0].worker)


def test_after_its_attempts_a_batch_is_quarantined_with_its_cause(hub: Hub) -> None:
    """CONTRACT 19"""
    hub.register(1, max_attempts=3)
    answer = hub.start(1, 2)
    for attempt in (1, 2, 3):
        order = one(answer)
        assert (order.batch.step, order.attempt) == (0, attempt)
        answer = die_at(hub, order)
    assert only(Fail, answer) == [Fail(Batch(1, 0, 0), "SIGKILL", 3)]
    assert one(answer).batch.step == 1
    (record,) = hub.scheduler.statistics().quarantined
    assert (record.batch, record.cause, record.attempts) == (Batch(1, 0, 0), "SIGKILL", 3)


def test_a_sampler_that_raises_fails_its_batch_at_once_and_the_worker_goes_on(hub: Hub) -> None:
    """CONTRACT 19, CONTRACT 20"""
    hub.register(1)
    first = one(hub.start(1, 2))
    answer = hub.failed(first, "KeyError: 3")
    assert only(Fail, answer) == [Fail(first.batch, "KeyError: 3", 1)]
    assert one(answer).worker == first.worker


def test_a_substitute_takes_the_place_of_a_batch_that_cannot_be_made(hub: Hub) -> None:
    """CONTRACT 19"""
    hub.register(1, on_error=OnError.SUBSTITUTE, max_substitutes=1)
    first = one(hub.start(1, 3))
    stand_in = one(hub.failed(first))
    assert stand_in == Assign(first.worker, first.batch, first.slot, source=1, attempt=1)
    assert Deliver(first.batch, first.slot, 1, first.worker) in hub.done(stand_in)


def test_substitutes_have_a_limit(hub: Hub) -> None:
    """CONTRACT 19"""
    hub.register(1, on_error=OnError.SUBSTITUTE, max_substitutes=2)
    answer = hub.start(1, 9)
    for source in (0, 1, 2):
        order = one(answer)
        assert (order.batch.step, order.source) == (0, source)
        answer = hub.failed(order)
    assert [fail.batch.step for fail in only(Fail, answer)] == [0, 1]


def test_a_step_that_failed_in_the_place_of_another_is_not_tried_in_its_own(hub: Hub) -> None:
    """CONTRACT 19"""
    hub.register(1, on_error=OnError.SUBSTITUTE, max_substitutes=9)
    answer = hub.failed(one(hub.failed(one(hub.start(1, 9)))))
    answer = hub.done(one(answer))
    assert (one(answer).batch.step, one(answer).source) == (1, 2)


def test_while_the_whole_crew_is_failing_nobody_is_charged() -> None:
    """CONTRACT 19"""
    hub = Hub(workers=2)
    hub.register(1, slots=2, max_attempts=2)
    hub.start(1, 2)
    orders = only(Assign, hub.ready())
    answer: list[Instruction] = []
    for _ in range(3):
        for order in orders:
            hub.begin(order)
        answer = [entry for order in orders for entry in hub.lose(order.worker)]
        while len(starts := only(StartWorker, answer)) < 2:
            wakeup = hub.scheduler.next_wakeup()
            assert wakeup is not None
            answer += hub.tick(wakeup)
        orders = only(Assign, answer + hub.ready(*(start.worker for start in starts)))
        assert len(orders) == 2
    assert only(Fail, answer) == []


def test_a_crew_that_never_stops_failing_is_excused_only_so_often() -> None:
    """CONTRACT 17, CONTRACT 19: everything ends."""
    hub = Hub()
    hub.ready()
    hub.register(1, slots=2, max_attempts=1)
    hub.register(2, slots=2, max_attempts=1)
    hub.start(2, 1)
    answer = hub.start(1, 1)
    failed: list[Fail] = []
    answer = hub.failed(Assign(hub.workers[0], Batch(2, 0, 0), 0, 0, 1))
    order = one(answer)
    answer = die_at(hub, order)  # charged: one worker, one batch
    failed += only(Fail, answer)
    assert [fail.batch for fail in failed] == [Batch(1, 0, 0)]
    answer = hub.start(2, 1, epoch=1)
    deaths = 0
    while orders := only(Assign, answer):
        answer = die_at(hub, orders[0])
        deaths += 1
    (fail,) = only(Fail, answer)
    assert deaths == fail.attempts == 3
    assert "whole crew was failing" in fail.cause


# --- workers ---------------------------------------------------------------------------------


def test_an_idle_worker_comes_before_a_second_batch_for_a_busy_one() -> None:
    """CONTRACT 59"""
    hub = Hub(workers=2, worker_concurrency=2)
    hub.ready()
    hub.register(1, slots=4)
    orders = only(Assign, hub.start(1, 4))
    assert {order.worker for order in orders[:2]} == set(hub.workers)
    assert len(orders) == 4


def test_a_batch_past_its_deadline_costs_its_worker_its_life() -> None:
    """CONTRACT 51"""
    hub = Hub(workers=2)
    hub.ready()
    hub.register(1, slots=1, deadline=5.0)
    order = one(hub.start(1, 1))
    hub.begin(order)
    assert hub.scheduler.next_wakeup() == 5.0
    assert hub.tick(5.0) == [KillWorker(order.worker, Fault.DEADLINE, order.batch)]
    answer = hub.lose(order.worker, "killed: deadline")
    assert one(answer).batch == order.batch
    assert one(answer).worker != order.worker


def test_a_deadline_counts_from_the_beginning_of_the_attempt(hub: Hub) -> None:
    """CONTRACT 51"""
    hub.register(1, deadline=5.0)
    order = one(hub.start(1, 1))
    assert hub.tick(9.0) == []
    hub.begin(order)
    assert hub.scheduler.next_wakeup() == 14.0


def test_a_worker_that_is_silent_is_killed_though_it_is_idle(hub: Hub) -> None:
    """CONTRACT 51"""
    hub.send(WorkerBeat(4.0, hub.workers[0]))
    assert hub.tick(13.9) == []
    assert hub.tick(14.0) == [KillWorker(hub.workers[0], Fault.SILENCE, None)]
    assert hub.tick(50.0) == []
    assert len(only(StartWorker, hub.lose(hub.workers[0]))) == 1


def test_a_worker_that_does_not_become_ready_is_killed() -> None:
    """CONTRACT 51"""
    hub = Hub(start_limit=60.0)
    assert hub.tick(60.0) == [KillWorker(hub.workers[0], Fault.START, None)]


def test_a_worker_above_its_soft_limit_finishes_and_is_replaced() -> None:
    """CONTRACT 52"""
    hub = Hub(soft_memory=100)
    hub.ready()
    hub.register(1)
    order = one(hub.start(1, 3))
    answer = hub.send(WorkerBeat(0.0, order.worker, 101))
    assert only(RetireWorker, answer) == [RetireWorker(order.worker, Leave.MEMORY)]
    assert len(only(StartWorker, answer)) == 1
    assert only(Assign, hub.done(order)) == []
    assert only(StartWorker, hub.lose(order.worker, "left")) == []


def test_a_worker_above_its_hard_limit_is_killed_and_its_batch_tried_again() -> None:
    """CONTRACT 52"""
    hub = Hub(hard_memory=100)
    hub.ready()
    hub.register(1)
    order = one(hub.start(1, 1))
    hub.begin(order)
    answer = hub.send(WorkerBeat(0.0, order.worker, 101))
    assert answer == [KillWorker(order.worker, Fault.MEMORY, order.batch)]
    (start,) = only(StartWorker, hub.lose(order.worker))
    assert one(hub.ready(start.worker)).batch == order.batch


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"max_batches": 2}, Leave.BATCHES), ({"max_age": 7.0}, Leave.AGE)],
    ids=["batches", "age"],
)
def test_a_worn_worker_is_replaced_at_once(settings: dict[str, object], reason: Leave) -> None:
    """CONTRACT 52"""
    hub = Hub(**settings)  # type: ignore[arg-type]
    hub.ready()
    hub.register(1)
    second = one(hub.done(one(hub.start(1, 9))))
    hub.now = 7.0
    answer = hub.done(second) + hub.tick(7.0)
    assert only(RetireWorker, answer) == [RetireWorker(hub.workers[0], reason)]
    assert len(only(StartWorker, answer)) == 1


def test_a_smaller_crew_lets_the_idle_go_first() -> None:
    hub = Hub(workers=3)
    hub.ready()
    hub.register(1, slots=1)
    busy = one(hub.start(1, 5)).worker
    answer = hub.send(CrewSized(0.0, "c", 1))
    assert {order.worker for order in only(RetireWorker, answer)} == set(hub.workers) - {busy}


def test_a_larger_crew_gets_its_workers_at_once(hub: Hub) -> None:
    assert len(only(StartWorker, hub.send(CrewSized(0.0, "c", 4)))) == 3


# --- back-off and breaker --------------------------------------------------------------------


def test_the_first_death_is_made_good_at_once_and_each_later_one_after_twice_as_long() -> None:
    """CONTRACT 53"""
    hub = Hub(backoff_first=1.0, backoff_most=4.0, breaker_deaths=99)
    worker, waits = hub.workers[0], []
    for _ in range(5):
        died = hub.now
        answer = hub.lose(worker)
        wakeup = hub.scheduler.next_wakeup()
        starts = only(StartWorker, answer if wakeup is None or answer else hub.tick(wakeup))
        waits.append(hub.now - died)
        worker = starts[0].worker
    assert waits == [0.0, 1.0, 2.0, 4.0, 4.0]


def test_a_batch_that_was_made_ends_a_row_of_deaths() -> None:
    """CONTRACT 53"""
    hub = Hub(workers=3, backoff_first=10.0)
    hub.ready()
    hub.register(1, slots=1)
    order = one(hub.start(1, 5))
    idle = [worker for worker in hub.workers if worker != order.worker]
    assert len(only(StartWorker, hub.lose(idle[0]))) == 1
    assert only(StartWorker, hub.lose(idle[1])) == []
    assert len(only(StartWorker, hub.done(order))) == 1


def broken(hub: Hub) -> list[Instruction]:
    """Workers die at their start until the breaker opens; what was answered to the last death."""
    answer: list[Instruction] = []
    starting = list(hub.workers)
    while hub.scheduler.statistics().crews[0].breaker == "closed":
        if not starting:
            wakeup = hub.scheduler.next_wakeup()
            assert wakeup is not None
            starting = [order.worker for order in only(StartWorker, hub.tick(wakeup))]
        answer = hub.lose(starting.pop(), "no module named x")
        starting += [order.worker for order in only(StartWorker, answer)]
    return answer


def test_a_crew_that_cannot_start_breaks_its_channels_with_the_cause() -> None:
    """CONTRACT 53"""
    hub = Hub(breaker_deaths=3)
    hub.register(1)
    hub.start(1, 5)
    assert broken(hub) == [BreakChannel(1, 0, "no module named x")]
    assert hub.scheduler.next_wakeup() is None


def test_the_breaker_of_one_crew_is_nothing_to_another() -> None:
    """CONTRACT 53"""
    hub = Hub(breaker_deaths=1)
    (start,) = only(StartWorker, hub.send(CrewSized(0.0, "d", 1)))
    hub.send(ChannelRegistered(0.0, 1, "d", 2))
    hub.start(1, 5)
    broken(hub)
    assert one(hub.ready(start.worker)).batch.channel == 1


def test_whoever_asks_while_the_breaker_rests_is_told_at_once() -> None:
    """CONTRACT 53"""
    hub = Hub(breaker_deaths=1, breaker_rest=30.0)
    hub.register(1)
    broken(hub)
    assert hub.start(1, 5) == [BreakChannel(1, 0, "no module named x")]


def test_whoever_asks_after_the_rest_gets_one_trial() -> None:
    """CONTRACT 53"""
    hub = Hub(workers=3, breaker_deaths=3, breaker_rest=30.0)
    hub.register(1)
    broken(hub)
    hub.now = 31.0
    (trial,) = only(StartWorker, hub.start(1, 5))
    assert only(StartWorker, hub.start(1, 5, epoch=1)) == []
    answer = hub.ready(trial.worker)
    assert len(only(StartWorker, answer)) == 2
    assert one(answer).batch == Batch(1, 1, 0)


def test_a_trial_that_fails_opens_the_breaker_again() -> None:
    """CONTRACT 53"""
    hub = Hub(breaker_deaths=1, breaker_rest=30.0)
    hub.register(1)
    broken(hub)
    hub.now = 31.0
    (trial,) = only(StartWorker, hub.start(1, 5))
    assert hub.lose(trial.worker, "still no module") == [BreakChannel(1, 0, "still no module")]
    hub.now = 60.0
    assert only(StartWorker, hub.start(1, 5, epoch=1)) == []


def test_channels_that_somebody_serves_are_not_broken() -> None:
    """CONTRACT 53: the breaker then only keeps new workers from being started."""
    hub = Hub(workers=2, breaker_deaths=1)
    hub.ready(hub.workers[0])
    hub.register(1)
    order = one(hub.start(1, 5))
    assert hub.lose(hub.workers[1]) == []
    assert one(hub.done(order)).worker == hub.workers[0]


def test_a_worn_worker_is_kept_while_nobody_can_be_started() -> None:
    """CONTRACT 53"""
    hub = Hub(workers=2, breaker_deaths=1, breaker_rest=30.0, max_batches=1)
    hub.ready(hub.workers[0])
    hub.register(1)
    order = one(hub.start(1, 9))
    hub.lose(hub.workers[1])
    order = one(hub.done(order))
    hub.now = 31.0
    (trial,) = only(StartWorker, hub.register(2))
    answer = hub.ready(trial.worker)
    assert only(RetireWorker, answer) == [RetireWorker(order.worker, Leave.BATCHES)]


def test_deaths_after_ready_do_not_feed_the_breaker() -> None:
    """CONTRACT 53"""
    hub = Hub(breaker_deaths=2, backoff_first=0.1)
    worker = hub.workers[0]
    for _ in range(9):
        hub.ready(worker)
        answer = hub.lose(worker)
        wakeup = hub.scheduler.next_wakeup()
        (start,) = only(StartWorker, answer if wakeup is None or answer else hub.tick(wakeup))
        worker = start.worker
    assert hub.scheduler.statistics().crews[0].breaker == "closed"


# --- pages -----------------------------------------------------------------------------------


def test_slots_that_rest_give_their_pages_back_once(hub: Hub) -> None:
    hub.register(1, slots=3)
    order = one(hub.start(1, 1))
    hub.done(order)
    hub.now = 2.0
    hub.give_back(order)
    hub.send(WorkerBeat(6.9, hub.workers[0]))
    assert hub.scheduler.next_wakeup() == 7.0
    assert hub.tick(7.0) == [TrimSlots(1, (order.slot,))]
    assert only(TrimSlots, hub.tick(16.0)) == []


# --- refusals and doubts ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["begin", "done", "failed"])
def test_a_report_about_a_batch_that_was_not_given_is_false_and_changes_nothing(
    hub: Hub, kind: str
) -> None:
    hub.register(1, slots=1)
    order = one(hub.start(1, 5))
    before = hub.scheduler.statistics()
    false = Assign(order.worker, Batch(1, 0, 3), 0, 3, 1)
    with pytest.raises(FalseReport, match="EpochStarted"):
        getattr(hub, kind)(false)
    assert hub.scheduler.statistics() == before
    assert only(Deliver, hub.done(order))


def test_a_batch_begins_once(hub: Hub) -> None:
    hub.register(1)
    order = one(hub.start(1, 5))
    hub.begin(order)
    with pytest.raises(FalseReport, match="twice"):
        hub.begin(order)


def test_what_comes_from_a_worker_that_is_gone_is_ignored(hub: Hub) -> None:
    hub.register(1)
    order = one(hub.start(1, 5))
    hub.lose(order.worker)
    assert hub.begin(order) == hub.done(order) == hub.failed(order) == []
    assert hub.lose(order.worker) == []


def test_an_answer_on_the_way_when_its_worker_was_killed_counts(hub: Hub) -> None:
    """CONTRACT 14"""
    hub.register(1, deadline=5.0)
    order = one(hub.start(1, 1))
    hub.begin(order)
    hub.tick(5.0)
    assert only(Deliver, hub.done(order))


def test_time_does_not_go_back(hub: Hub) -> None:
    hub.tick(8.0)
    hub.send(WorkerBeat(3.0, hub.workers[0]))
    assert hub.scheduler.next_wakeup() == 18.0


def test_a_fault_of_our_own_is_told_with_the_story(hub: Hub) -> None:
    hub.register(1)
    hub.start(1, 5)
    hub.scheduler._channels[1].slots.state.clear()  # as no event could
    with pytest.raises(SchedulerError, match="ChannelRegistered") as caught:
        hub.scheduler.check()
    assert [type(event) for event, _ in caught.value.story] == [ChannelRegistered, EpochStarted]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_an_exception_on_the_way_becomes_one_with_the_story(hub: Hub) -> None:
    hub.register(1)
    order = one(hub.start(1, 5))
    hub.scheduler._channels[1].slots.state.clear()  # as no event could
    with pytest.raises(SchedulerError, match="EpochStarted") as caught:
        hub.scheduler.handle(BatchDone(0.0, order.worker, order.batch, 1.0))
    assert not isinstance(caught.value, FalseReport)
    assert isinstance(caught.value.__cause__, IndexError)


@pytest.mark.parametrize(
    "settings",
    [{"worker_concurrency": 0}, {"silence": -1.0}, {"backoff_first": 9.0, "backoff_most": 1.0}],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        Settings(**settings)  # type: ignore[arg-type]


# --- seeing ----------------------------------------------------------------------------------


def test_one_line_shows_the_scheduler(hub: Hub) -> None:
    """CONTRACT 54"""
    for channel in (1, 2, 3, 4):
        hub.register(channel, slots=3, estimate=1.0)
    order = one(hub.start(2, 10))
    hub.start(3, 7)
    hub.send(EpochStarted(0.0, 4, 5, range(4, 6)))
    hub.done(order)
    hub.send(ChannelUnregistered(0.0, 3))
    assert hub.scheduler.describe() == (
        "channels: 3 registered, 2 active, 2 runnable, 1 leaving; 1:idle 2:e0/1/1/10 4:e5/0/0/2"
    )


def test_the_line_names_only_a_few(hub: Hub) -> None:
    """CONTRACT 54"""
    for channel in range(1000):
        hub.register(channel)
    line = hub.scheduler.describe()
    assert line.endswith("7:idle …")
    assert "1000 registered" in line


def test_totals_remember_channels_that_are_gone(hub: Hub) -> None:
    """CONTRACT 57"""
    hub.register(1)
    second = one(hub.done(one(hub.start(1, 4))))
    hub.failed(second)
    hub.send(ChannelUnregistered(0.0, 1))
    totals = hub.scheduler.statistics().totals
    assert (totals.channels, totals.delivered, totals.failed, totals.cancelled) == (1, 1, 1, 2)


def test_statistics_can_be_written_as_json_at_any_time() -> None:
    """CONTRACT 57"""
    assert json.loads(json.dumps(asdict(Scheduler().statistics())))["channels"] == []
    hub = Hub()
    hub.ready()
    hub.register(1, max_attempts=1)
    hub.failed(one(hub.start(1, 4)))
    numbers = json.loads(json.dumps(asdict(hub.scheduler.statistics())))
    assert numbers["quarantined"][0]["cause"] == "bad seed"
    assert numbers["crews"][0]["ready"] == 1


def test_a_copy_goes_its_own_way(hub: Hub) -> None:
    hub.register(1)
    order = one(hub.start(1, 5))
    twin = copy.deepcopy(hub.scheduler)
    assert only(Deliver, twin.handle(BatchDone(0.0, order.worker, order.batch, 1.0)))
    twin.check()
    assert hub.scheduler.statistics().channels[0].delivered == 0
    assert only(Deliver, hub.done(order))
