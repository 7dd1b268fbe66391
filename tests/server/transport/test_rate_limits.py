"""How often something may happen: told with times that tests make up, so that none waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.transport.rate_limits import Penalties, TokenBucket

HOST, OTHER = "192.0.2.1", "192.0.2.2"
# Of a computer that has run for a year, in seconds: what is added to it is no longer exact.
LATE = 3.15e7
# What such a clock may be wrong by.
ABOUT = 1e-6


# --- so many a second ---


@pytest.mark.parametrize("now", [0.0, LATE])
def test_as_many_as_a_burst_may_come_at_once_and_no_more(now: float) -> None:
    bucket = TokenBucket(rate=10, burst=3)
    assert [bucket.take(now) for _ in range(5)] == [True, True, True, False, False]


def test_what_was_refused_does_not_count() -> None:
    bucket = TokenBucket(rate=10, burst=1)
    assert bucket.take(0.0)
    assert not any(bucket.take(0.05) for _ in range(100))
    assert bucket.take(0.11)


def test_after_a_burst_they_come_at_the_rate() -> None:
    bucket = TokenBucket(rate=4, burst=2)
    taken = [at for at in range(81) if bucket.take(at / 8)]
    assert taken == [0, 1, *range(2, 81, 2)]  # in eighths of a second; the second of the burst is 1


def test_a_long_pause_is_worth_no_more_than_a_burst() -> None:
    bucket = TokenBucket(rate=1000, burst=5)
    while bucket.take(0.0):
        pass
    assert sum(bucket.take(LATE) for _ in range(100)) == 5


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    bucket = TokenBucket(rate=1, burst=1)
    assert bucket.take(100.0)
    assert not bucket.take(50.0)
    assert not bucket.take(100.5)
    assert bucket.take(101.0)


def test_who_may_come_at_once_need_not_wait() -> None:
    assert TokenBucket(rate=10, burst=1).when(5.0) == 5.0


def test_asking_when_takes_nothing() -> None:
    bucket = TokenBucket(rate=10, burst=1)
    for _ in range(10):
        bucket.when(0.0)
    assert bucket.take(0.0)


@given(
    rate=st.floats(0.1, 1e5),
    burst=st.integers(1, 1000),
    before=st.lists(st.floats(0.0, 10.0), max_size=50),
    now=st.floats(10.0, LATE),
)
def test_it_may_happen_when_it_was_said_to_and_not_long_before(
    rate: float, burst: int, before: list[float], now: float
) -> None:
    bucket = TokenBucket(rate, burst)
    for at in sorted(before):
        bucket.take(at)
    while bucket.take(now):
        pass
    when = bucket.when(now)
    assert now < when + ABOUT
    assert when <= now + 1 / rate + ABOUT
    if when - now > 2 * ABOUT + 0.01 / rate:
        assert not bucket.take(when - ABOUT - 0.01 / rate)
    assert bucket.take(when + ABOUT + 0.01 / rate)


@given(
    rate=st.floats(0.1, 1000.0),
    burst=st.integers(1, 100),
    times=st.lists(st.floats(0.0, 20.0), max_size=300),
)
def test_in_any_time_there_are_no_more_than_a_burst_and_the_rate_allow(
    rate: float, burst: int, times: list[float]
) -> None:
    bucket = TokenBucket(rate, burst)
    taken = [at for at in sorted(times) if bucket.take(at)]
    for place, first in enumerate(taken):
        for count, last in enumerate(taken[place:], 1):
            assert count <= burst + rate * (last - first) + ABOUT


# --- who was refused ---


def test_who_was_never_refused_does_not_wait() -> None:
    assert not Penalties().waits(HOST, 0.0)


def test_who_was_refused_waits_and_then_no_more() -> None:
    penalties = Penalties(first=1.0)
    assert penalties.note(HOST, 10.0) == 1.0
    assert penalties.waits(HOST, 10.0)
    assert penalties.waits(HOST, 10.99)
    assert not penalties.waits(HOST, 11.0)


def test_others_do_not_wait_for_it() -> None:
    penalties = Penalties()
    penalties.note(HOST, 0.0)
    assert not penalties.waits(OTHER, 0.0)


def test_each_further_refusal_doubles_the_wait_up_to_the_longest() -> None:
    penalties, now, seconds = Penalties(first=1.0, longest=60.0), 0.0, []
    for _ in range(9):
        seconds.append(penalties.note(HOST, now))
        now += seconds[-1]  # it comes back as soon as it may
    assert seconds == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_a_refusal_while_one_waits_doubles_the_wait_too() -> None:
    """Of connections that it had made before."""
    penalties = Penalties(first=1.0)
    assert [penalties.note(HOST, 0.5) for _ in range(3)] == [1.0, 2.0, 4.0]
    assert penalties.waits(HOST, 4.4)
    assert not penalties.waits(HOST, 4.5)


def test_who_has_behaved_for_as_long_as_it_waited_begins_anew() -> None:
    penalties = Penalties(first=1.0)
    penalties.note(HOST, 0.0)
    assert penalties.note(HOST, 1.0) == 2.0  # until 3
    assert penalties.note(HOST, 5.0) == 4.0  # until 9
    assert penalties.note(HOST, 13.1) == 1.0


def test_who_was_let_in_after_all_begins_anew() -> None:
    penalties = Penalties(first=1.0)
    for _ in range(5):
        penalties.note(HOST, 0.0)
    penalties.forget(HOST)
    assert not penalties.waits(HOST, 0.0)
    assert penalties.note(HOST, 0.0) == 1.0


def test_forgetting_somebody_unknown_does_nothing() -> None:
    Penalties().forget(HOST)


def test_only_so_many_hosts_are_remembered_those_refused_last() -> None:
    """CONTRACT 73: with the newer kind of address one has as many as one likes."""
    penalties = Penalties(first=1000.0)
    hosts = [f"2001:db8::{number:x}" for number in range(10_000)]
    for at, host in enumerate(hosts):
        penalties.note(host, at / 1000)
    waiting = [penalties.waits(host, 10.0) for host in hosts]
    assert sum(waiting) < 5000
    assert all(waiting[-sum(waiting) :])


def test_who_is_refused_again_and_again_is_not_forgotten_for_others() -> None:
    """CONTRACT 73"""
    penalties = Penalties(first=1000.0, longest=10_000.0)
    for number in range(20_000):
        penalties.note(f"2001:db8::{number:x}", 0.0)
        if number % 1000 == 0:
            penalties.note(HOST, 0.0)
    assert penalties.waits(HOST, 5000.0)
