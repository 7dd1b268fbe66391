"""Work that others do, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock.server.transport.threads import Threads, Wakeup
from tests.processes import PATIENCE_S, until


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    made = Wakeup()
    yield made
    made.close()


def test_what_came_of_work_is_told_in_the_thread_that_runs_the_calls(wakeup: Wakeup) -> None:
    threads, told = Threads("work", 2, wakeup), []
    this = threading.current_thread
    threads.ask(this, lambda who: told.append((who, this())))
    until(lambda: (wakeup.run(), told)[1] != [], "it is told")
    ((worker, teller),) = told
    assert worker.name == "work-0"
    assert teller is threading.current_thread()
    threads.close()


def test_an_error_is_told_like_any_outcome(wakeup: Wakeup) -> None:
    threads, told = Threads("work", 1, wakeup), []
    threads.ask(lambda: 1 // 0, told.append)
    threads.ask(lambda: 7, told.append)
    until(lambda: (wakeup.run(), len(told))[1] == 2, "both are told")
    assert isinstance(told[0], ZeroDivisionError)
    assert told[1] == 7
    threads.close()


def test_there_are_no_more_threads_than_are_needed_and_allowed(wakeup: Wakeup) -> None:
    threads, go, told = Threads("few", 2, wakeup), threading.Event(), []
    for _ in range(5):
        threads.ask(lambda: go.wait(PATIENCE_S), told.append)
    assert sum(thread.name.startswith("few-") for thread in threading.enumerate()) == 2
    go.set()
    until(lambda: (wakeup.run(), len(told))[1] == 5, "all are told")
    threads.close()
    threads.close()
    assert not any(thread.name.startswith("few-") for thread in threading.enumerate())


def test_closing_does_not_wait_for_ever_for_those_at_work(wakeup: Wakeup) -> None:
    threads, go, told = Threads("slow", 1, wakeup), threading.Event(), []
    threads.ask(lambda: go.wait(PATIENCE_S), told.append)
    threads.close(timeout=0.01)
    go.set()
    until(lambda: (wakeup.run(), told)[1] == [True], "it is told all the same")


def test_one_that_was_closed_still_keeps_what_it_is_told(wakeup: Wakeup) -> None:
    told: list[int] = []
    wakeup.close()
    wakeup.call(lambda: told.append(1))
    wakeup.run()
    assert told == [1]


def test_one_call_that_fails_keeps_no_other_from_being_made(wakeup: Wakeup) -> None:
    told: list[int] = []
    wakeup.call(lambda: told.append(1 // 0))
    wakeup.call(lambda: told.append(1))
    wakeup.run()
    assert told == [1]
