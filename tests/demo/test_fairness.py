"""Jain's index, and the time in which shares can be compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.demo.fairness import Span, common, jain


@given(st.integers(1, 20), st.floats(0.1, 1e6))
def test_equal_shares_have_index_one(count: int, share: float) -> None:
    assert jain([share] * count) == pytest.approx(1.0)


@given(st.integers(1, 20))
def test_if_one_has_it_all_the_index_is_one_in_so_many(count: int) -> None:
    assert jain([5.0] + [0.0] * (count - 1)) == pytest.approx(1 / count)


def test_of_nothing_there_is_no_index() -> None:
    assert jain([0, 0, 0]) is None


def test_a_known_case() -> None:
    assert jain([1, 2, 3]) == pytest.approx(36 / (3 * 14))


def test_common_time_is_what_lies_in_a_span_of_everybodys() -> None:
    one = [Span(0, 4), Span(6, 10)]
    other = [Span(1, 7), Span(9, 12)]
    third = [Span(0, 20)]
    assert common([one, other, third]) == [Span(1, 4), Span(6, 7), Span(9, 10)]


def test_spans_that_only_touch_have_no_time_in_common() -> None:
    assert common([[Span(0, 1)], [Span(1, 2)]]) == []


def test_the_time_of_one_alone_is_its_own() -> None:
    assert common([[Span(0, 1)]]) == [Span(0, 1)]
