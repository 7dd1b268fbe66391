"""When an answer is late, and how often that may be acted upon."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.store.lateness import (
    FEW,
    LEAST_S,
    MEDIANS,
    MOST_SAVED,
    SHARE,
    UNKNOWN_S,
    Lateness,
)

seconds = st.floats(0.0, 100.0)


@given(st.lists(seconds, max_size=FEW - 1))
def test_little_is_late_while_little_is_known(waits: list[float]) -> None:
    lateness = Lateness()
    for wait in waits:
        lateness.note("get_it", wait)
    assert lateness.late_after("get_it") == UNKNOWN_S
    assert lateness.late_after("get_other") == UNKNOWN_S


@given(seconds, st.integers(FEW, 200))
def test_an_answer_is_late_after_several_medians(wait: float, times: int) -> None:
    lateness = Lateness()
    for _ in range(times):
        lateness.note("get_it", wait)
    assert lateness.late_after("get_it") == max(LEAST_S, MEDIANS * wait)
    assert lateness.medians() == {"get_it": wait}


@given(st.lists(seconds, min_size=FEW, max_size=300))
def test_no_single_wait_decides_what_is_late(waits: list[float]) -> None:
    lateness = Lateness()
    for wait in waits:
        lateness.note("get_it", wait)
    assert LEAST_S <= lateness.late_after("get_it") <= max(LEAST_S, MEDIANS * max(waits))
    assert lateness.late_after("get_it") >= MEDIANS * min(waits)


def test_what_is_usual_now_replaces_what_was_usual_before() -> None:
    lateness = Lateness()
    for wait in (1.0, 0.1):
        for _ in range(200):
            lateness.note("get_it", wait)
    assert lateness.late_after("get_it") == MEDIANS * 0.1


@given(st.integers(0, 400))
def test_only_a_share_of_calls_is_asked_twice(calls: int) -> None:
    """However late all of them are."""
    lateness, twice = Lateness(), 0
    for _ in range(calls):
        twice += lateness.may_ask_twice()
        lateness.note("get_it", 1.0)
    assert twice <= MOST_SAVED + SHARE * calls
    assert twice >= min(calls, MOST_SAVED)
