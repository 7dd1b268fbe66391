"""Virtual time: who is next, and what sleeping, waking and wrong guesses do to it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.fair import Flow, Mean, RunQueue


def queue_of(*vtimes: float) -> tuple[RunQueue[Flow], list[Flow]]:
    queue: RunQueue[Flow] = RunQueue()
    flows = [Flow(vtime=vtime) for vtime in vtimes]
    for flow in flows:
        queue.push(flow)
    return queue, flows


def test_the_flow_furthest_behind_is_next() -> None:
    """CONTRACT 7"""
    queue, flows = queue_of(3.0, 1.0, 2.0)
    assert [queue.pop() for _ in range(4)] == [flows[1], flows[2], flows[0], None]


def test_equals_come_in_the_order_of_their_arrival() -> None:
    queue, flows = queue_of(1.0, 1.0, 1.0)
    queue.renew(flows[0])  # nothing has changed: it keeps its place
    assert [queue.pop() for _ in range(3)] == flows


def test_a_flow_whose_time_changed_moves_and_stays_one() -> None:
    """CONTRACT 8"""
    queue, (first, second) = queue_of(1.0, 2.0)
    first.vtime = 3.0
    queue.renew(first)
    second.vtime = 2.5
    queue.renew(second)
    assert len(queue) == 2
    assert [queue.pop() for _ in range(3)] == [second, first, None]


def test_a_flow_that_left_is_not_served() -> None:
    queue, (first, second) = queue_of(1.0, 2.0)
    queue.remove(first)
    assert len(queue) == 1
    assert [queue.pop(), queue.pop()] == [second, None]


def test_a_flow_that_wakes_starts_where_the_last_one_served_stood() -> None:
    """CONTRACT 7: nothing is banked."""
    queue, _ = queue_of(10.0, 20.0)
    queue.pop()
    sleeper = Flow(vtime=4.0)
    queue.wake(sleeper)
    assert sleeper.vtime == 10.0


def test_a_flow_that_slept_no_longer_than_its_own_batch_loses_nothing() -> None:
    """CONTRACT 7: whoever waits for its one slot to come back has not been idle."""
    queue, (quick, slow) = queue_of(0.0, 10.0)
    assert queue.pop() is quick
    quick.vtime += 1.0
    queue.wake(quick)
    assert quick.vtime == 1.0
    assert queue.pop() is quick
    assert slow.place


def test_an_estimate_that_was_too_high_costs_newcomers_nothing() -> None:
    """CONTRACT 7"""
    queue, (first,) = queue_of(0.0)
    charges = []
    for _ in range(3):
        assert queue.pop() is first
        charges.append(first.charge(1000.0))
        queue.push(first)
    newcomer = Flow()
    queue.wake(newcomer)
    for left, charge in enumerate(reversed(charges)):
        first.settle(charge, 1.0, last=left == 2)
        queue.renew(first)
    assert first.vtime == 3.0
    assert newcomer.vtime == 0.0


def test_a_charge_is_by_weight_and_settled_to_what_was_served() -> None:
    flow = Flow(weight=4.0)
    charged = flow.charge(8.0)
    assert (charged, flow.vtime, flow.outstanding) == (2.0, 2.0, 2.0)
    flow.settle(charged, 0.5, last=True)
    assert (flow.vtime, flow.outstanding) == (0.5, 0.0)


def test_counting_from_zero_again_changes_neither_order_nor_distances() -> None:
    queue, flows = queue_of(1e7 + 2, 1e7, 1e7, 1e7 + 5)
    assert queue.pop() is flows[1]
    queue.rebase(flows)
    assert queue.virtual_now == 0.0
    assert [flow.vtime for flow in flows] == [2.0, 0.0, 0.0, 5.0]
    assert [queue.pop() for _ in range(3)] == [flows[2], flows[0], flows[3]]


def test_dead_entries_do_not_pile_up() -> None:
    queue, flows = queue_of(*map(float, range(10)))
    dice = random.Random(1)
    for _ in range(10_000):
        flow = dice.choice(flows)
        flow.vtime += 1.0
        queue.renew(flow)
    assert len(queue) == 10
    assert len(queue.entries()) <= 2 * 10 + 64


@given(st.lists(st.tuples(st.sampled_from("pushaway"), st.integers(0, 7)), max_size=80))
def test_any_history_pops_the_flows_that_are_there_by_their_time(
    history: list[tuple[str, int]],
) -> None:
    """CONTRACT 8"""
    queue: RunQueue[Flow] = RunQueue()
    flows = [Flow() for _ in range(8)]
    for act, number in history:
        flow = flows[number]
        if act in "push" and not flow.place:
            queue.push(flow)
        elif act == "a" and flow.place:
            flow.vtime += number - 3
            queue.renew(flow)
        elif act in "wy" and flow.place:
            queue.remove(flow)
    there = [flow for flow in flows if flow.place]
    popped = [queue.pop() for _ in range(len(queue))]
    assert {id(flow) for flow in popped} == {id(flow) for flow in there}
    times = [flow.vtime for flow in popped if flow is not None]
    assert times == sorted(times)


@pytest.mark.parametrize("memory", [1, 4, 100])
def test_a_mean_is_exact_at_first_and_forgets_later(memory: int) -> None:
    mean = Mean(memory)
    for value in (1.0, 2.0, 6.0):
        mean.add(value)
    assert mean.value == (6.0 if memory == 1 else 3.0)
    for _ in range(20 * memory):
        mean.add(9.0)
    assert mean.value == pytest.approx(9.0, rel=0.3 if memory == 100 else 1e-6)
