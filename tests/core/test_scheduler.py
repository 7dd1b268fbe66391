"""Who is served when, what an epoch owes, and what can be seen: short stories, one promise each.

What holds in any story is proved elsewhere (machine, walk, simulation); here each line of the
contract has an example that shows what it means.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.core.events import (
    Assign,
    BatchKey,
    ChannelRegistered,
    ChannelUnregistered,
    Deliver,
    EpochStarted,
    Fail,
    FinishEpoch,
    Forget,
    Instruction,
    SlotReturned,
    StartWorker,
    TrimSlots,
    WeightChanged,
    WorkerBeat,
)
from penstock.core.scheduler import (
    InvalidEvent,
    UnknownChannel,
)
from tests.core.scheduler_hub import Hub, one, only


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
    assert hub.scheduler.statistics().groups[0].runnable == 1
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


def test_slots_that_rest_give_their_pages_back_once() -> None:
    hub = Hub(trim_after=5.0)
    hub.ready()
    hub.register(1, slots=3)
    order = one(hub.start(1, 1))
    hub.done(order)
    hub.now = 2.0
    hub.give_back(order)
    hub.send(WorkerBeat(6.9, hub.workers[0]))
    assert hub.scheduler.next_wakeup() == 7.0
    assert hub.tick(7.0) == [TrimSlots(1, (order.slot,))]
    assert only(TrimSlots, hub.tick(16.0)) == []


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
    assert one(hub.start(1, 5, epoch=7)).batch == BatchKey(1, 7, 0)


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
    assert one(answer).batch == BatchKey(1, 1, 0)
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


def test_a_channel_of_a_group_that_is_not_there_is_refused(hub: Hub) -> None:
    with pytest.raises(InvalidEvent, match="no group 'd'"):
        hub.send(ChannelRegistered(0.0, 1, "d", 2))
    hub.register(1)
