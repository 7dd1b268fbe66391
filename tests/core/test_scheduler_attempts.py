"""Batches that cannot be made, and reports that cannot be: short stories, one promise each."""

from __future__ import annotations

import pickle

import pytest

from penstock.core.events import (
    Assign,
    BatchDone,
    BatchFailed,
    BatchKey,
    ChannelRegistered,
    Deliver,
    EpochStarted,
    Fail,
    FinishEpoch,
    Instruction,
    StartWorker,
    WorkerBeat,
)
from penstock.core.scheduler import (
    FalseReport,
    SchedulerError,
    Settings,
)
from penstock.options import OnError
from tests.core.scheduler_hub import Hub, one, only


@pytest.fixture
def hub() -> Hub:
    """One worker, ready, that takes one batch at a time."""
    hub = Hub()
    hub.ready()
    return hub


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


def test_a_batch_begun_by_a_worker_that_is_being_killed_is_not_charged() -> None:
    """CONTRACT 19: what ends it was decided before it began."""
    hub = Hub(worker_concurrency=2)
    hub.register(1, deadline=5.0, max_attempts=1)
    hub.start(1, 2)
    late, next_one = only(Assign, hub.ready())
    hub.begin(late)
    hub.tick(5.0)
    assert only(Deliver, hub.done(late))
    hub.begin(next_one)
    hub.now = 6.0
    answer = hub.lose(next_one.worker, "past its deadline")
    assert only(Fail, answer) == []
    (channel,) = hub.scheduler.statistics().channels
    assert (channel.attempts_lost, channel.service) == (0, 1.0)
    (start,) = only(StartWorker, answer)
    again = one(hub.ready(start.worker))
    assert (again.batch, again.attempt) == (next_one.batch, 1)


def test_a_worker_that_is_being_killed_begins_a_batch_once() -> None:
    hub = Hub(worker_concurrency=2)
    hub.register(1, deadline=5.0)
    hub.start(1, 2)
    late, next_one = only(Assign, hub.ready())
    hub.begin(late)
    hub.tick(5.0)
    hub.done(late)
    hub.begin(next_one)
    with pytest.raises(FalseReport, match="twice"):
        hub.begin(next_one)


def die_at(hub: Hub, order: Assign) -> list[Instruction]:
    """The worker begins the batch and dies; its successor is started, after a while, and ready."""
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
    assert only(Fail, answer) == [Fail(BatchKey(1, 0, 0), "SIGKILL", 3)]
    assert one(answer).batch.step == 1
    (record,) = hub.scheduler.statistics().quarantined
    assert (record.batch, record.cause, record.attempts) == (BatchKey(1, 0, 0), "SIGKILL", 3)


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
    # Steps 1 and 2 are known to be bad by now, and nothing may take their place.
    assert [fail.batch.step for fail in only(Fail, answer)] == [0, 1, 2]


def test_a_step_that_failed_in_the_place_of_another_is_not_tried_in_its_own(hub: Hub) -> None:
    """CONTRACT 19"""
    hub.register(1, on_error=OnError.SUBSTITUTE, max_substitutes=9)
    answer = hub.failed(one(hub.failed(one(hub.start(1, 9)))))
    answer = hub.done(one(answer))
    assert (one(answer).batch.step, one(answer).source) == (1, 2)


def test_while_the_whole_group_is_failing_nobody_is_charged() -> None:
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


def test_a_group_that_never_stops_failing_is_excused_only_so_often() -> None:
    """CONTRACT 17, CONTRACT 19: everything ends."""
    hub = Hub()
    hub.ready()
    hub.register(1, slots=2, max_attempts=1)
    hub.register(2, slots=2, max_attempts=1)
    hub.start(2, 1)
    answer = hub.start(1, 1)
    failed: list[Fail] = []
    answer = hub.failed(Assign(hub.workers[0], BatchKey(2, 0, 0), 0, 0, 1))
    order = one(answer)
    answer = die_at(hub, order)  # charged: one worker, one batch
    failed += only(Fail, answer)
    assert [fail.batch for fail in failed] == [BatchKey(1, 0, 0)]
    answer = hub.start(2, 1, epoch=1)
    deaths = 0
    while orders := only(Assign, answer):
        answer = die_at(hub, orders[0])
        deaths += 1
    (fail,) = only(Fail, answer)
    assert deaths == fail.attempts == 3
    assert "whole group was failing" in fail.cause


# --- errors that may go away -----------------------------------------------------------------


def raise_at(hub: Hub, order: Assign, *, passing: bool = True) -> list[Instruction]:
    """The worker begins the batch and answers that it raised."""
    hub.begin(order)
    return hub.send(BatchFailed(hub.now, order.worker, order.batch, 1.0, "OSError: reset", passing))


def test_a_passing_error_is_tried_again_in_its_slot_after_a_while(hub: Hub) -> None:
    hub.register(1, retry_errors=2)
    first = one(hub.start(1, 1))
    assert raise_at(hub, first) == []
    assert hub.scheduler.next_wakeup() == pytest.approx(0.1)
    again = one(hub.tick(0.1))
    assert again == Assign(first.worker, first.batch, first.slot, first.source, attempt=2)
    hub.begin(again)
    answer = hub.done(again)
    assert only(Deliver, answer) == [Deliver(first.batch, first.slot, 0, first.worker, retries=1)]
    assert only(FinishEpoch, answer) == [FinishEpoch(1, 0, delivered=1, failed=0, cancelled=0)]


def test_the_waits_double_and_are_counted(hub: Hub) -> None:
    hub.register(1, retry_errors=3)
    order, waits = one(hub.start(1, 1)), []
    for _ in range(3):
        raise_at(hub, order)
        wakeup = hub.scheduler.next_wakeup()
        assert wakeup is not None
        waits.append(wakeup - hub.now)
        order = one(hub.tick(wakeup))
    assert waits == pytest.approx([0.1, 0.2, 0.4])
    statistics = hub.scheduler.statistics()
    assert statistics.channels[0].errors_retried == statistics.totals.errors_retried == 3


def test_a_long_wait_is_bounded() -> None:
    hub = Hub(error_backoff_most=0.3)
    hub.ready()
    hub.register(1, retry_errors=200)
    order = one(hub.start(1, 1))
    for _ in range(200):
        raise_at(hub, order)
        wakeup = hub.scheduler.next_wakeup()
        assert wakeup is not None
        assert wakeup - hub.now <= 0.3 + 1e-9
        order = one(hub.tick(wakeup))


def test_after_the_last_retry_the_batch_is_quarantined_with_its_cause(hub: Hub) -> None:
    hub.register(1, retry_errors=1)
    first = one(hub.start(1, 1))
    raise_at(hub, first)
    answer = raise_at(hub, one(hub.tick(0.1)))
    assert only(Fail, answer) == [Fail(first.batch, "OSError: reset", 2)]
    (entry,) = hub.scheduler.statistics().quarantined
    assert (entry.batch, entry.cause, entry.attempts) == (first.batch, "OSError: reset", 2)


def test_a_substitute_follows_the_last_retry_and_has_retries_of_its_own(hub: Hub) -> None:
    hub.register(1, retry_errors=1, on_error=OnError.SUBSTITUTE)
    first = one(hub.start(1, 2))
    hub.done(one(raise_at(hub, first)))  # the second batch is made meanwhile
    substitute = one(raise_at(hub, one(hub.tick(0.1))))
    assert (substitute.batch, substitute.source, substitute.attempt) == (first.batch, 1, 1)
    assert only(Fail, raise_at(hub, substitute)) == []
    assert one(hub.tick(1.0)).attempt == 2


def test_any_other_error_is_not_tried_again(hub: Hub) -> None:
    hub.register(1, retry_errors=5)
    first = one(hub.start(1, 1))
    assert only(Fail, raise_at(hub, first, passing=False)) == [
        Fail(first.batch, "OSError: reset", 1)
    ]


def test_later_batches_do_not_wait_for_one_that_is_tried_again(hub: Hub) -> None:
    hub.register(1, retry_errors=1)
    first = one(hub.start(1, 2))
    second = one(raise_at(hub, first))
    assert second.batch.step == 1
    assert only(Deliver, hub.done(second))
    assert one(hub.tick(0.1)).batch == first.batch


def test_another_worker_tries_again_if_one_has_room() -> None:
    hub = Hub(workers=2)
    hub.ready()
    hub.register(1, retry_errors=1, slots=1)
    first = one(hub.start(1, 1))
    raise_at(hub, first)
    assert one(hub.tick(0.1)).worker != first.worker


def test_the_same_worker_tries_again_if_no_other_has_room(hub: Hub) -> None:
    hub.register(1, retry_errors=1)
    first = one(hub.start(1, 1))
    raise_at(hub, first)
    assert one(hub.tick(0.1)).worker == first.worker


def test_an_epoch_that_ends_takes_its_delayed_batches_along(hub: Hub) -> None:
    hub.register(1, retry_errors=1, slots=1)
    raise_at(hub, one(hub.start(1, 1)))
    fresh = one(hub.start(1, 1, epoch=1))
    assert fresh.batch.epoch == 1
    assert only(Assign, hub.tick(0.1)) == []


# --- refusals and doubts ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["begin", "done", "failed"])
def test_a_report_about_a_batch_that_was_not_given_is_false_and_changes_nothing(
    hub: Hub, kind: str
) -> None:
    hub.register(1, slots=1)
    order = one(hub.start(1, 5))
    before = hub.scheduler.statistics()
    false = Assign(order.worker, BatchKey(1, 0, 3), 0, 3, 1)
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
