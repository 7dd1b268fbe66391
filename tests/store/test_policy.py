"""Which server of a part is asked, and when a lost one is tried again."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice, pairwise

import pytest

from penstock.store.policy import (
    FIRST_PASSES,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MOST_PASSES,
    SLOW_S,
    Choice,
    Pace,
    load_of,
    pauses,
)


class Readers:
    """One reader of two servers that have the same part."""

    def __init__(self, *seconds: float) -> None:
        self.choice = Choice(random.Random(0))
        self.seconds = list(seconds)
        self.loads: list[int | None] = [0] * len(seconds)
        self.paces = [Pace() for _ in seconds]

    def choose(self, kind: str = "get_rows") -> int | None:
        servers = range(len(self.seconds))
        return self.choice.among(
            servers, kind, lambda at: self.loads[at], lambda at: self.paces[at]
        )

    def ask(self, kind: str = "get_rows") -> int:
        """Ask the chosen server, which answers at once."""
        chosen = self.choose(kind)
        assert chosen is not None
        self.paces[chosen].note(kind, self.seconds[chosen])
        return chosen

    def asked(self, times: int) -> list[int]:
        counts = Counter(self.ask() for _ in range(times))
        return [counts[at] for at in range(len(self.seconds))]


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_servers_share_the_questions_however_many_parts_are_asked_at_once(parts: int) -> None:
    choice, counts, pace = Choice(random.Random(1)), Counter[tuple[int, int]](), Pace()
    for _ in range(1000):
        for part in range(parts):
            server = choice.among(range(2), "get_rows", lambda _: 0, lambda _: pace)
            assert server is not None
            counts[part, server] += 1
    assert all(400 < counts[part, server] < 600 for part in range(parts) for server in range(2))


def test_the_server_that_owes_fewer_answers_is_asked() -> None:
    readers = Readers(0.01, 0.01)
    readers.loads = [load_of(2, is_late=False, is_leaving=False), 1]
    assert {readers.choose() for _ in range(20)} == {1}


def test_a_server_that_is_late_is_asked_after_one_that_leaves_and_that_after_a_busy_one() -> None:
    loads = [
        load_of(40, is_late=False, is_leaving=False),
        load_of(0, is_late=False, is_leaving=True),
        load_of(0, is_late=True, is_leaving=False),
    ]
    assert loads == sorted(loads)


def test_nobody_is_chosen_if_nobody_can_be_asked() -> None:
    readers = Readers(0.01, 0.01)
    readers.loads = [None, None]
    assert readers.choose() is None
    readers.loads = [None, 7]
    assert readers.choose() == 1


def test_a_slow_server_is_asked_ever_more_rarely_but_never_forgotten() -> None:
    readers = Readers(0.01, 0.1)
    first, then = readers.asked(200)[1], readers.asked(10 * MOST_PASSES)[1]
    assert 1 <= first <= 200 / FIRST_PASSES
    assert 5 <= then <= 12


def test_a_server_that_is_no_longer_slow_gets_its_share_again() -> None:
    readers = Readers(0.01, 0.1)
    readers.asked(1000)
    readers.seconds[1] = 0.01
    readers.asked(10 * MOST_PASSES)
    assert min(readers.asked(1000)) > 400


def test_servers_that_are_nearly_as_fast_share_the_questions() -> None:
    readers = Readers(0.01, 0.02)
    assert min(readers.asked(1000)) > 400
    short = Readers(SLOW_S / 10, SLOW_S / 2)  # as little as noise
    assert min(short.asked(1000)) > 400


def test_one_slow_answer_does_not_make_a_server_slow() -> None:
    readers = Readers(0.01, 0.01)
    readers.asked(20)
    readers.paces[0].note("get_rows", 100.0)
    assert min(readers.asked(1000)) > 400


def test_a_slow_server_is_asked_if_the_other_one_owes_much_more() -> None:
    readers = Readers(0.01, 0.1)
    readers.asked(20)
    readers.loads = [30, 0]
    assert {readers.choose() for _ in range(5)} == {1}


def test_a_slow_server_alone_is_asked() -> None:
    readers = Readers(5.0)
    assert readers.asked(10) == [10]


def test_what_takes_long_of_one_kind_may_be_fast_of_another() -> None:
    readers = Readers(0.01, 0.1)
    readers.asked(100)
    readers.seconds = [0.01, 0.01]
    assert min(Counter(readers.ask("get_draws") for _ in range(1000)).values()) > 400


def test_an_answer_in_no_time_does_not_make_a_server_the_fastest_for_ever() -> None:
    readers = Readers(0.0, 0.01)
    readers.asked(20)
    readers.seconds[0] = 0.01
    readers.asked(1000)
    assert min(readers.asked(1000)) > 400


def test_an_answer_that_was_not_waited_for_counts_if_it_is_longer_than_usual() -> None:
    pace = Pace()
    pace.note("get_rows", 0.02)
    pace.note_at_least("get_rows", 0.01)
    assert pace.seconds("get_rows") == 0.02
    pace.note_at_least("get_rows", 0.06)
    assert pace.seconds("get_rows") == pytest.approx(0.03)


def test_pauses_double_up_to_the_longest() -> None:
    found = list(islice(pauses(), 8))
    assert found[0] == FIRST_PAUSE_S
    assert all(b in (2 * a, LONGEST_PAUSE_S) for a, b in pairwise(found))
    assert found[-1] == LONGEST_PAUSE_S
