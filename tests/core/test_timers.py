"""Timers whose owners change their minds: nobody is woken early, late, or twice."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.timers import Timers


@dataclass(eq=False)
class Owner:
    """Due when it says."""

    at: float = inf
    alarm: float = inf
    alarm_order: int = 0

    def due(self) -> float:
        return self.at


def armed(*times: float) -> tuple[Timers[Owner], list[Owner]]:
    timers: Timers[Owner] = Timers()
    owners = [Owner(time) for time in times]
    for owner in owners:
        timers.arm(owner)
    return timers, owners


def ring(timers: Timers[Owner], now: float) -> list[Owner]:
    """Wakes whoever is due; nobody is due again after that."""
    woken = []
    for owner in timers.expired(now):
        woken.append(owner)
        owner.at = inf
    return woken


def test_nobody_waits_for_nothing() -> None:
    timers, _ = armed(inf)
    assert timers.next() is None


def test_the_first_one_due_is_next() -> None:
    timers, (_, second) = armed(5.0, 3.0)
    assert timers.next() == 3.0
    assert ring(timers, 3.0) == [second]
    assert timers.next() == 5.0


def test_one_that_is_due_later_after_all_is_not_woken_early() -> None:
    timers, (owner,) = armed(5.0)
    owner.at = 9.0
    assert ring(timers, 5.0) == []
    assert timers.next() == 9.0


def test_one_that_is_due_sooner_after_all_is_woken_once() -> None:
    timers, (owner,) = armed(9.0)
    owner.at = 5.0
    timers.arm(owner)
    assert timers.next() == 5.0
    assert ring(timers, 20.0) == [owner]


def test_one_that_goes_there_and_back_is_woken_once() -> None:
    timers, (owner,) = armed(9.0)
    owner.at = 5.0
    timers.arm(owner)
    owner.at = 9.0
    assert ring(timers, 8.0) == []
    assert ring(timers, 9.0) == [owner]


MOVES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=30)


@given(MOVES, st.lists(st.booleans(), min_size=30, max_size=30))
def test_looking_at_the_clock_changes_nothing(
    moves: list[tuple[int, int]], looks: list[bool]
) -> None:
    (watched, mine), (alone, theirs) = armed(4.0, 4.0, 4.0, 4.0), armed(4.0, 4.0, 4.0, 4.0)
    for (number, time), look in zip(moves, looks, strict=False):
        for timers, owners in ((watched, mine), (alone, theirs)):
            owners[number].at = float(time)
            timers.arm(owners[number])
        if look:
            assert watched.next() == min(owner.at for owner in mine)
    order = [mine.index(owner) for owner in ring(watched, 9.0)]
    assert order == [theirs.index(owner) for owner in ring(alone, 9.0)]
    assert sorted(order) == [0, 1, 2, 3]
