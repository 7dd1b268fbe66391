"""Work that others do, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock.server.desk import Bell, Desk
from tests.processes import PATIENCE_S, until


@pytest.fixture
def bell() -> Iterator[Bell]:
    made = Bell()
    yield made
    made.close()


def test_what_came_of_work_is_told_in_the_thread_that_answers_the_bell(bell: Bell) -> None:
    desk, told = Desk("desk", 2, bell), []
    desk.ask(threading.current_thread, lambda who: told.append((who, threading.current_thread())))
    until(lambda: (bell.answer(), told)[1] != [], "it is told")
    ((worker, teller),) = told
    assert worker.name == "desk-0"
    assert teller is threading.current_thread()
    desk.close()


def test_an_error_is_told_like_any_outcome(bell: Bell) -> None:
    desk, told = Desk("desk", 1, bell), []
    desk.ask(lambda: 1 // 0, told.append)
    desk.ask(lambda: 7, told.append)
    until(lambda: (bell.answer(), len(told))[1] == 2, "both are told")
    assert isinstance(told[0], ZeroDivisionError)
    assert told[1] == 7
    desk.close()


def test_there_are_no_more_threads_than_are_needed_and_allowed(bell: Bell) -> None:
    desk, go, told = Desk("few", 2, bell), threading.Event(), []
    for _ in range(5):
        desk.ask(lambda: go.wait(PATIENCE_S), told.append)
    assert sum(thread.name.startswith("few-") for thread in threading.enumerate()) == 2
    go.set()
    until(lambda: (bell.answer(), len(told))[1] == 5, "all are told")
    desk.close()
    desk.close()
    assert not any(thread.name.startswith("few-") for thread in threading.enumerate())


def test_a_desk_does_not_wait_for_ever_for_those_at_work(bell: Bell) -> None:
    desk, go, told = Desk("slow", 1, bell), threading.Event(), []
    desk.ask(lambda: go.wait(PATIENCE_S), told.append)
    desk.close(timeout=0.01)
    go.set()
    until(lambda: (bell.answer(), told)[1] == [True], "it is told all the same")


def test_a_bell_that_was_closed_still_keeps_what_it_is_told(bell: Bell) -> None:
    told: list[int] = []
    bell.close()
    bell.ring(lambda: told.append(1))
    bell.answer()
    assert told == [1]


def test_one_call_that_fails_keeps_no_other_from_being_made(bell: Bell) -> None:
    told: list[int] = []
    bell.ring(lambda: told.append(1 // 0))
    bell.ring(lambda: told.append(1))
    bell.answer()
    assert told == [1]
