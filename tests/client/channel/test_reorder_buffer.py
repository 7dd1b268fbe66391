"""The bookkeeping of one epoch: every step once, in order, whatever comes when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.channel.reorder_buffer import ReorderBuffer
from penstock.core.plan import EpochPlan


def reading(steps: int, first_step: int = 0) -> ReorderBuffer[Any]:
    return ReorderBuffer(0, EpochPlan(steps, 1), 0, first_step)


def fetch(epoch: ReorderBuffer[Any]) -> list[Any]:
    found = []
    while epoch.ready and not epoch.over:
        found.append(epoch.take())
        epoch.due += 1
    return found


@given(st.permutations(range(9)), st.integers(0, 9))
def test_steps_are_fetched_in_order_whatever_order_they_come_in(
    order: list[int], first: int
) -> None:
    epoch, found = reading(9, first), []
    for step in order:
        assert epoch.accept(step, step) == (step >= first)
        found += fetch(epoch)
    assert found == list(range(first, 9))
    assert epoch.over
    assert epoch.complete


@given(st.lists(st.integers(-2, 8), max_size=40))
def test_a_step_is_taken_once_however_often_it_comes(steps: list[int]) -> None:
    epoch, found = reading(6), []
    for number, step in enumerate(steps):
        epoch.accept(step, (step, number))
        found += fetch(epoch)
    assert [step for step, _ in found] == list(range(len(found)))
    first = {step: number for number, step in reversed(list(enumerate(steps)))}
    assert all(first[step] == number for step, number in found)


@given(st.sets(st.integers(0, 9)), st.integers(0, 10))
def test_going_on_asks_for_the_first_step_that_has_not_come(come: set[int], due: int) -> None:
    epoch = reading(10)
    for step in range(due):
        epoch.accept(step, step)
    fetch(epoch)
    for step in come:
        epoch.accept(step, step)
    step, beyond = epoch.resume()
    there = {later for later in come if later >= due}
    assert step == next(later for later in range(due, 12) if later not in there)
    assert beyond == sorted(later for later in there if later > step)
    assert fetch(epoch) == list(range(due, step))


def test_an_epoch_is_complete_when_everything_has_come() -> None:
    epoch = reading(2)
    epoch.accept(1, "b")
    assert not epoch.complete
    epoch.accept(0, "a")
    assert epoch.complete
    assert not epoch.over


def test_an_epoch_without_steps_is_over_from_the_start() -> None:
    epoch = reading(0)
    assert epoch.ready
    assert epoch.over
    assert epoch.complete


def test_a_first_step_beyond_the_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="first_step is 3"):
        reading(2, 3)
