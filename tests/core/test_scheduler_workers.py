"""Workers that are slow, silent, worn or dead: short stories, one promise each."""

from __future__ import annotations

import pytest

from penstock.core.events import (
    Assign,
    BatchKey,
    BreakChannel,
    ChannelRegistered,
    GroupSized,
    Instruction,
    KillReason,
    KillWorker,
    Leave,
    RetireWorker,
    StartWorker,
    WorkerBeat,
    WorkerLost,
    WorkerReady,
)
from penstock.core.scheduler import Scheduler, Settings
from tests.core.scheduler_hub import Hub, one, only


@pytest.fixture
def hub() -> Hub:
    """One worker, ready, that takes one batch at a time."""
    hub = Hub()
    hub.ready()
    return hub


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
    assert hub.tick(5.0) == [KillWorker(order.worker, KillReason.DEADLINE, order.batch)]
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
    assert hub.tick(14.0) == [KillWorker(hub.workers[0], KillReason.SILENCE, None)]
    assert hub.tick(50.0) == []
    assert len(only(StartWorker, hub.lose(hub.workers[0]))) == 1


def test_a_worker_that_does_not_become_ready_is_killed() -> None:
    """CONTRACT 51"""
    hub = Hub(start_limit=60.0)
    assert hub.tick(60.0) == [KillWorker(hub.workers[0], KillReason.START, None)]


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
    assert answer == [KillWorker(order.worker, KillReason.MEMORY, order.batch)]
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


def test_a_smaller_group_lets_the_idle_go_first() -> None:
    hub = Hub(workers=3)
    hub.ready()
    hub.register(1, slots=1)
    busy = one(hub.start(1, 5)).worker
    answer = hub.send(GroupSized(0.0, "c", 1))
    assert {order.worker for order in only(RetireWorker, answer)} == set(hub.workers) - {busy}


def test_a_larger_group_gets_its_workers_at_once(hub: Hub) -> None:
    assert len(only(StartWorker, hub.send(GroupSized(0.0, "c", 4)))) == 3


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


def test_deaths_at_work_are_made_good_before_long_however_many_there_were() -> None:
    """CONTRACT 53: whoever waits hears of a sampler that always crashes within seconds."""
    hub = Hub(backoff_first=0.5, backoff_most=30.0, death_backoff_most=2.0)
    worker, waits = hub.workers[0], []
    for _ in range(6):
        hub.ready(worker)
        died = hub.now
        answer = hub.lose(worker)
        wakeup = hub.scheduler.next_wakeup()
        (start,) = only(StartWorker, answer if wakeup is None or answer else hub.tick(wakeup))
        waits.append(hub.now - died)
        worker = start.worker
    assert waits == [0.0, 0.5, 1.0, 2.0, 2.0, 2.0]


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
    """Workers die at their start until the breaker opens; what was answered then. None is left."""
    answer: list[Instruction] = []
    starting = list(hub.workers)
    while hub.scheduler.statistics().groups[0].breaker == "closed":
        if not starting:
            wakeup = hub.scheduler.next_wakeup()
            assert wakeup is not None
            starting = [order.worker for order in only(StartWorker, hub.tick(wakeup))]
        answer = hub.lose(starting.pop(), "no module named x")
        starting += [order.worker for order in only(StartWorker, answer)]
    for worker in starting:
        hub.lose(worker, "no module named x")
    return answer


def test_a_group_that_cannot_start_breaks_its_channels_with_the_cause() -> None:
    """CONTRACT 53"""
    hub = Hub(breaker_deaths=3)
    hub.register(1)
    hub.start(1, 5)
    assert broken(hub) == [BreakChannel(1, 0, "no module named x")]
    assert hub.scheduler.next_wakeup() is None


def test_the_breaker_of_one_group_is_nothing_to_another() -> None:
    """CONTRACT 53"""
    hub = Hub(breaker_deaths=1)
    (start,) = only(StartWorker, hub.send(GroupSized(0.0, "d", 1)))
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
    assert one(answer).batch == BatchKey(1, 1, 0)


def test_a_group_that_is_not_kept_is_forgotten_once_it_is_empty() -> None:
    """Or there would be one for every sampler that was ever used."""
    scheduler = Scheduler()
    (start,) = scheduler.handle(GroupSized(0.0, "one", 1))
    scheduler.handle(WorkerReady(0.0, start.worker))
    scheduler.handle(GroupSized(1.0, "one", 0, kept=False))
    scheduler.handle(GroupSized(1.0, "rests", 0))
    assert [group.group for group in scheduler.statistics().groups] == ["one", "rests"]
    scheduler.handle(WorkerLost(2.0, start.worker, "left as asked"))
    scheduler.handle(GroupSized(2.0, "other", 0))
    assert [group.group for group in scheduler.statistics().groups] == ["rests", "other"]
    assert scheduler.handle(GroupSized(3.0, "one", 1)) == [StartWorker(start.worker + 1, "one")]
    scheduler.check()


def test_the_breaker_of_a_group_that_is_not_kept_is_remembered_until_it_has_rested() -> None:
    """CONTRACT 53: leaving and coming back is no way round it."""
    scheduler = Scheduler(Settings(breaker_deaths=1, breaker_rest=30.0))
    (start,) = scheduler.handle(GroupSized(0.0, "one", 1))
    scheduler.handle(WorkerLost(0.0, start.worker, "cannot be loaded"))
    scheduler.handle(GroupSized(1.0, "one", 0, kept=False))
    assert scheduler.handle(GroupSized(2.0, "one", 1)) == []
    scheduler.handle(GroupSized(3.0, "one", 0, kept=False))
    scheduler.handle(GroupSized(31.0, "other", 0))
    assert [group.group for group in scheduler.statistics().groups] == ["other"]


def test_sizing_a_group_again_is_asking_too() -> None:
    """CONTRACT 53"""
    hub = Hub(breaker_deaths=1, breaker_rest=30.0)
    broken(hub)
    assert hub.send(GroupSized(29.0, "c", 1)) == []
    (trial,) = only(StartWorker, hub.send(GroupSized(30.0, "c", 1)))
    assert hub.send(GroupSized(31.0, "c", 1)) == []
    hub.ready(trial.worker)
    assert hub.scheduler.statistics().groups[0].breaker == "closed"


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
    assert hub.scheduler.statistics().groups[0].breaker == "closed"
