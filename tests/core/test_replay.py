"""The story of one channel, told by a scheduler that had many, played again alone."""

from __future__ import annotations

from collections import deque

import pytest

from penstock.core.events import (
    Assign,
    BatchDone,
    ChannelUnregistered,
    Deliver,
    EpochStarted,
    OnError,
    StartWorker,
    Tick,
)
from penstock.core.recap import Recap
from penstock.core.replay import replay
from penstock.core.scheduler import Scheduler, SchedulerError, Settings
from penstock.core.story import Entry
from tests.core.scheduler_hub import Hub, one, only


def told(scheduler: Scheduler, channel: int) -> tuple[object, ...]:
    """What a channel's statistics say that does not depend on the others."""
    (found,) = [c for c in scheduler.statistics().channels if c.id == channel]
    return (
        found.epoch,
        found.handed_out,
        found.delivered,
        found.failed,
        found.in_flight,
        found.slots_free,
        found.slots_with_rank,
        found.substitutes,
        found.attempts_lost,
    )


def busy_hub(**settings: object) -> Hub:
    """Two channels; one of them has lost a worker, failed, substituted and been trimmed."""
    hub = Hub(workers=2, **settings)
    hub.register(1, slots=3, on_error=OnError.SUBSTITUTE, max_substitutes=1, max_attempts=2)
    hub.register(2, slots=3)
    hub.start(1, 6)
    hub.start(2, 6)
    first, other = only(Assign, hub.ready())
    assert (first.batch.channel, other.batch.channel) == (1, 2)
    hub.begin(first)
    answer = hub.lose(first.worker)
    (start,) = only(StartWorker, answer)
    again = one(hub.ready(start.worker))
    assert again.batch == first.batch
    stand_in = one(hub.failed(again))
    hub.done(stand_in)
    hub.give_back(stand_in)
    hub.tick(8.0)
    return hub


def test_the_story_of_one_channel_comes_to_the_same_end_without_the_others() -> None:
    hub = busy_hub()
    for channel in (1, 2):
        again = replay(hub.scheduler.story(channel), hub.scheduler.settings)
        assert told(again, channel) == told(hub.scheduler, channel)


def test_a_story_goes_on_after_its_replay() -> None:
    hub = busy_hub()
    again = replay(hub.scheduler.story(2), hub.scheduler.settings)
    (held,) = [
        order
        for _, answers in hub.scheduler.story(2)
        for order in answers
        if isinstance(order, Assign) and order.batch.channel == 2 and order.batch.step == 0
    ]
    answer = again.handle(BatchDone(9.0, held.worker, held.batch, 1.0))
    assert only(Deliver, answer) == [Deliver(held.batch, held.slot, held.source, held.worker)]


def test_a_story_that_does_not_add_up_is_told_from_where_it_does_not() -> None:
    hub = busy_hub()
    story = hub.scheduler.story(1)
    number = next(n for n, (event, _) in enumerate(story) if isinstance(event, EpochStarted))
    event = story[number].event
    assert isinstance(event, EpochStarted)
    shorter = EpochStarted(event.now, event.channel, event.epoch, range(0))
    with pytest.raises(SchedulerError, match="the story tells \\[\\], its replay \\[FinishEpoch"):
        replay([*story[:number], Entry(shorter, ()), *story[number + 1 :]])


@pytest.mark.parametrize("length", range(1, 12))
def test_a_story_whose_beginning_was_forgotten_is_played_from_a_recap_on(length: int) -> None:
    hub = busy_hub(story_length=length)
    for channel in (1, 2):
        story = hub.scheduler.story(channel)
        assert sum(not isinstance(event, Recap) for event, _ in story) <= length
        again = replay(story, hub.scheduler.settings)
        assert told(again, channel) == told(hub.scheduler, channel)
        # What was there when the story began is not changed by playing it.
        assert told(replay(story, hub.scheduler.settings), channel) == told(again, channel)


def test_after_any_number_of_batches_a_story_can_be_played() -> None:
    hub = Hub(worker_concurrency=2)
    hub.register(1, slots=3)
    hub.start(1, 200)
    orders = deque(only(Assign, hub.ready()))
    while orders:
        order = orders.popleft()
        hub.begin(order)
        orders += only(Assign, hub.done(order) + hub.give_back(order))
        again = replay(hub.scheduler.story(1), hub.scheduler.settings)
        assert told(again, 1) == told(hub.scheduler, 1)
    assert told(again, 1)[2] == 200
    assert isinstance(hub.scheduler.story(1)[0].event, Recap)
    assert "before that: Recap(" in str(hub.scheduler.story(1)[0])


def test_a_story_without_its_beginning_cannot_be_played() -> None:
    hub = busy_hub()
    for story in ((), hub.scheduler.story(1)[1:]):
        with pytest.raises(ValueError, match="begins with neither"):
            replay(story, hub.scheduler.settings)


def test_a_story_up_to_its_last_event_can_be_played() -> None:
    hub = busy_hub()
    story = hub.scheduler.story(1)
    last = Entry(ChannelUnregistered(9.0, 1), ())
    again = replay([*story, last], Settings(worker_concurrency=1))
    assert again.statistics().channels[0].phase == "leaving"
    assert again.handle(Tick(10.0)) == []


def test_attempts_that_others_excused_are_excused_in_the_replay_too() -> None:
    hub = Hub(workers=2, story_length=1000)
    hub.register(1, slots=1, max_attempts=1)
    hub.register(2, slots=1, max_attempts=1)
    hub.start(1, 1)
    hub.start(2, 1)
    first, second = only(Assign, hub.ready())
    for order in (first, second):
        hub.begin(order)
        hub.lose(order.worker)
    # Both workers are lost, with different batches: the second batch is not to blame.
    assert told(hub.scheduler, 1)[3] == 1
    assert told(hub.scheduler, 2)[3] == 0
    for channel in (1, 2):
        again = replay(hub.scheduler.story(channel), hub.scheduler.settings)
        assert told(again, channel) == told(hub.scheduler, channel)
