"""Watching loaders: what is shown, where, how it ends, and that nobody waits for it."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from penstock.loader.device.statistics import DeviceStatistics
from penstock.loader.watch import watcher
from penstock.loader.watch.meter import LoaderStatistics, Waits
from penstock.loader.watch.picture import Lines, LivePicture, is_fit, line, picture, rates, shares
from penstock.loader.watch.watcher import Look, Watched
from tests.loader.epochs import digests, everyday, hub_of, small_data

pytestmark = pytest.mark.usefixtures("no_leaks")

LONG_S = 60.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A last look is taken, however busy the machine: a user would rather go without it."""
    monkeypatch.setattr(watcher, "_LEAVING_S", LONG_S)


NUMBERS = LoaderStatistics(
    epoch=2,
    step=30,
    steps=120,
    batches=270,
    inputs=4320,
    failed=0,
    retries=0,
    substitutes=0,
    copied=0,
    bytes=1 << 20,
    seconds=27.0,
    batches_per_second=10.0,
    inputs_per_second=160.0,
    time_to_first_batch=0.5,
    sampling_cost=20.0,
    waits=Waits(sampling=2.7, transfer=0.27, transform=0.0, credit=13.5, turn=1.0),
    restarts_of_workers=0,
    restarts_of_hub=0,
    num_workers=0,
)


class Told:
    """Something to watch that says what it is told to."""

    def __init__(self, numbers: LoaderStatistics = NUMBERS) -> None:
        self.numbers = numbers
        self.asked = threading.Semaphore(0)

    def statistics(self) -> LoaderStatistics:
        self.asked.release()
        return self.numbers


class Stuck(Told):
    """Its hub does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()

    def statistics(self) -> LoaderStatistics:
        self.asked.release()
        assert self.answers.wait(LONG_S)
        return self.numbers


def seen(*looks: tuple[float, LoaderStatistics], name: str = "Loader-1") -> Watched:
    watched = Watched(name, weakref.ref(Told()))
    watched.looks.extend(Look(at, numbers) for at, numbers in looks)
    return watched


def is_watching() -> bool:
    return any(thread.name == "penstock-watch" for thread in threading.enumerate())


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline, moment = time.monotonic() + LONG_S, threading.Event()
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {LONG_S:g} s: {what}"
        moment.wait(0.01)


# --- where there is no terminal ------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_is_told_of_in_lines(workers: int, capsys: Any) -> None:
    with everyday(small_data(), num_workers=workers) as loader:
        with loader.watch():
            digests(loader)
    out, err = capsys.readouterr()
    assert out == ""
    last = err.splitlines()[-1]
    assert re.match(r"penstock: NeighborLoader-\d+: epoch 0, 15 of 15 batches, \d+\.\d/s", last)
    assert ("1 workers, 0 lost" in last) == (workers == 1)


def test_it_ends_with_the_loader(capsys: Any) -> None:
    with everyday(small_data()) as loader:
        loader.watch()
        digests(loader)
    assert not is_watching()
    assert "15 of 15 batches" in capsys.readouterr().err


def test_it_ends_with_a_loader_that_is_dropped(capsys: Any) -> None:
    loader = Told()
    watcher.begin(loader, "dropped")
    assert loader.asked.acquire(timeout=LONG_S)
    del loader
    other = Told()
    with watcher.begin(other, "other"):  # has the thread look round
        assert other.asked.acquire(timeout=LONG_S)
    until(lambda: not is_watching(), "the thread has ended")


def test_the_environment_asks_for_it(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_WATCH", "1")
    with everyday(small_data()) as loader:
        assert not is_watching()
        digests(loader)
        assert is_watching()
    assert not is_watching()
    assert "15 of 15 batches" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["", "0", None])
def test_without_being_asked_for_nothing_is_shown(
    value: str | None, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_WATCH", raising=False)
    if value is not None:
        monkeypatch.setenv("PENSTOCK_WATCH", value)
    with everyday(small_data()) as loader:
        digests(loader)
        assert not is_watching()
    assert capsys.readouterr() == ("", "")


def test_by_the_environment_only_the_first_rank_is_shown(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_WATCH", "1")
    with everyday(small_data(), rank=1, world_size=2) as loader:
        digests(loader)
        assert not is_watching()
    assert capsys.readouterr().err == ""


def test_several_loaders_have_one_thread_and_a_line_each(capsys: Any) -> None:
    data = small_data()
    with everyday(data) as train, everyday(data) as val:
        with train.watch(), val.watch():
            digests(train)
            digests(val)
            names = [thread.name for thread in threading.enumerate()]
            assert names.count("penstock-watch") == 1
        assert not is_watching()
    assert len(re.findall("NeighborLoader-.*15 of 15", capsys.readouterr().err)) == 2


def test_a_loader_can_be_watched_again_and_twice_is_once(capsys: Any) -> None:
    with everyday(small_data()) as loader:
        for _ in range(2):
            with loader.watch(), loader.watch():
                digests(loader)
            assert not is_watching()
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_loader_that_was_closed_cannot_be_watched() -> None:
    loader = everyday(small_data())
    loader.close()
    with pytest.raises(Exception, match="closed"):
        loader.watch()


def test_lines_come_after_pauses_and_only_if_there_is_news(capsys: Any) -> None:
    lines = Lines(pause=5.0)

    def at(now: float, batches: int, **changes: Any) -> int:
        watched = seen((now, replace(NUMBERS, batches=batches, **changes)))
        watched.leaving = now > 100
        lines.show([watched])
        return len(capsys.readouterr().err.splitlines())

    assert at(10, 0) == 0  # nothing was read
    assert at(12, 3) == 0  # too soon
    assert at(15, 4) == 1
    assert at(19, 5) == 0
    assert at(20, 5) == 1
    assert at(25, 5) == 0  # no news
    assert at(30, 5, restarts_of_workers=1) == 1
    assert at(101, 6) == 1
    assert at(101, 6) == 0


def test_a_loop_that_is_over_before_the_first_look_has_its_line(capsys: Any) -> None:
    """And one in which nothing was read has none, whatever was before."""
    for before in (0, NUMBERS.batches):
        lines, watched = Lines(), seen((10.0, NUMBERS))
        watched.before = before
        lines.show([watched])
        watched.leaving = True
        lines.show([watched])
        assert len(capsys.readouterr().err.splitlines()) == (before == 0)


def test_nobody_need_be_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for nobody in (None, closed):
        monkeypatch.setattr(sys, "stderr", nobody)
        watched = seen((10.0, NUMBERS))
        watched.leaving = True
        Lines().show([watched])


# --- in words and in numbers ---------------------------------------------------------------------


def test_rates_and_waits_are_those_of_the_last_seconds() -> None:
    later = replace(
        NUMBERS,
        batches=310,
        inputs=4960,
        waits=Waits(sampling=4.7, transfer=0.37, transform=1.0, credit=0.0, turn=9.0),
    )
    watched = seen((100.0, NUMBERS), (104.0, later))
    assert rates(watched) == (10.0, 160.0)
    found = shares(watched)
    assert (found.sampling, found.transfer, found.transform) == pytest.approx((0.5, 0.025, 0.25))
    assert (found.credit, found.turn) == (0.0, 1.0)


def test_one_look_tells_of_all_the_time() -> None:
    watched = seen((100.0, NUMBERS))
    assert rates(watched) == (10.0, 160.0)
    assert shares(watched).sampling == pytest.approx((2.7 - 0.5) / (27 - 0.5))
    assert shares(seen((1.0, replace(NUMBERS, seconds=0.0)))).sampling == 0.0


def test_looks_that_are_out_of_date_are_dropped() -> None:
    loader = Told()
    watched = Watched("Loader-1", weakref.ref(loader))
    for now in (0.0, 2.0, 4.0, 6.0, 8.0):
        assert watched.look(now)
    assert [look.at for look in watched.looks] == [2.0, 4.0, 6.0, 8.0]
    del loader
    assert not watched.look(9.0)


def test_a_line_says_what_went_wrong_if_anything_did() -> None:
    text = line(seen((1.0, NUMBERS)))
    assert text.startswith("Loader-1: epoch 2, 30 of 120 batches, 10.0/s (160 inputs/s); waits: ")
    assert "failed" not in text
    wrong = replace(NUMBERS, failed=2, restarts_of_hub=1, num_workers=4, restarts_of_workers=3)
    text = line(seen((1.0, wrong)))
    assert "4 workers, 3 lost; hub restarted 1 times; 2 failed, 0 substituted" in text


def test_a_line_and_a_picture_say_what_is_waited_for() -> None:
    numbers = replace(NUMBERS, device=DeviceStatistics("cuda:0", 10, 0, 10, 10.6, 2.65))
    watched, plain = seen((1.0, numbers)), seen((1.0, NUMBERS), name="Loader-2")
    verdict = "the GPU waits for batches 40% of the time: give more workers (num_workers)"
    assert "; GPU waits: batches 40%, copies 10%; " in line(watched)
    assert line(watched).endswith(f"; {verdict}")
    assert "GPU waits" not in line(plain)
    assert line(plain).endswith(
        "; your program waits for batches 8% of the time: give more workers (num_workers)"
    )
    text = drawn(watched, plain)
    assert f"Loader-1: {verdict}" in text
    assert "GPU:" in text  # above two columns
    assert "GPU:" not in drawn(plain)


def test_a_verdict_is_of_the_last_seconds_if_they_had_enough_batches() -> None:
    def later(batches: int) -> Watched:
        waits = replace(NUMBERS.waits, sampling=7.7)
        now = replace(NUMBERS, batches=NUMBERS.batches + batches, waits=waits, seconds=32.0)
        return seen((100.0, NUMBERS), (105.0, now))

    assert "waits for batches 100% of the time" in line(later(10))
    assert "waits for batches 23% of the time" in line(later(9))


def drawn(*watched: Watched) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(picture(watched))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_a_picture_has_loaders_workers_and_what_others_read() -> None:
    with everyday(small_data(), num_workers=2) as loader:
        next(iter(loader))
        numbers = loader.statistics()
    (channel,) = numbers.hub["channels"].values()
    assert "read by" not in drawn(seen((1.0, numbers)))
    channel["pid"], channel["job"] = 12345, "rank 1"
    numbers.hub["losses"].append({"worker": 7, "pid": 99, "verdict": "killed by SIGKILL"})
    text = drawn(seen((1.0, numbers)), seen((1.0, numbers), name="Loader-2"))
    for word in ("Loader-1", "Loader-2", "1/15", "read by", "rank 1", "12345", "0 of workers"):
        assert word in text
    assert "worker 7 (pid 99) was lost: killed by SIGKILL" in text
    for worker in numbers.hub["pool"]["workers"]:
        assert text.count(str(worker["pid"])) == 1  # both have the same hub


# --- nobody waits --------------------------------------------------------------------------------


def test_a_hub_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "_LEAVING_S", 2.0)
    loader = Stuck()
    watching = watcher.begin(loader, "stuck")
    assert loader.asked.acquire(timeout=LONG_S)
    began = time.monotonic()
    watching.stop()
    watching.stop()
    assert time.monotonic() - began < LONG_S / 2
    assert is_watching()  # still asking
    loader.answers.set()
    until(lambda: not is_watching(), "the thread has ended")


def test_statistics_that_fail_are_asked_for_again(capsys: Any) -> None:
    class Failing(Told):
        fails = True

        def statistics(self) -> LoaderStatistics:
            numbers = super().statistics()
            if self.fails:
                self.fails = False
                raise TimeoutError("no hub answers yet")
            return numbers

    loader, other = Failing(), Told()
    with watcher.begin(loader, "failing"):
        assert loader.asked.acquire(timeout=LONG_S)
        with watcher.begin(other, "other"):  # has the thread look round
            assert loader.asked.acquire(timeout=LONG_S)
        loader.numbers = replace(NUMBERS, step=31, batches=271)
    assert "failing: epoch 2, 31 of 120" in capsys.readouterr().err


def test_looking_does_not_start_the_clock_between_epochs() -> None:
    with everyday(small_data()) as loader:
        digests(loader)
        first = loader.statistics().seconds
        assert first > 0
        assert loader.statistics().seconds == first


def test_looking_at_a_loader_that_is_gone_starts_no_hub() -> None:
    with everyday(small_data(), num_workers=1) as loader:
        next(iter(loader))
        hub = hub_of(loader)
        hub.close()
        assert loader.statistics().hub == {}
        assert hub.pid is None


# --- in a terminal -------------------------------------------------------------------------------


def test_a_terminal_that_can_be_drawn_in_gets_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    def console(**environment: str) -> Console:
        return Console(file=io.StringIO(), force_terminal=True, _environ=environment)

    assert is_fit(console(TERM="xterm"))
    assert not is_fit(console(TERM="dumb"))
    assert not is_fit(Console(file=io.StringIO()))
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert not is_fit(console(TERM="xterm"))  # somebody types there


def test_a_picture_leaves_the_cursor_where_it_can_be_seen() -> None:
    file = io.StringIO()
    with LivePicture(Console(file=file, force_terminal=True, width=100)) as live:
        live.show([seen((1.0, NUMBERS))])
        text = file.getvalue()
        assert "Loader-1" in text
        assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


SCRIPT = """
import warnings
warnings.simplefilter("ignore")
from tests.loader.epochs import everyday, small_data
loader = everyday(small_data(), num_workers=1)
print("begun")
while True:
    for batch in loader:
        pass
"""


def test_ctrl_c_in_a_terminal_leaves_nothing_but_one_traceback() -> None:
    """The whole of it: a script that knows nothing of watching, in a terminal, interrupted."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
        env={**os.environ, "PENSTOCK_WATCH": "1", "TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(follower)
        try:
            text = _interrupted(leader, process.pid)
        finally:
            process.kill()  # it has ended, unless something went wrong
        os.close(leader)
    assert process.returncode in (130, -signal.SIGINT), text
    # One that strikes a finalizer is lost, and Python says so: nobody can do anything about that.
    assert text.count("Traceback") - text.count("Exception ignored") == 1
    assert "KeyboardInterrupt" in text
    assert "begun" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def _interrupted(terminal: int, pid: int) -> str:
    """All that a process draws until it ends; it is interrupted when it has drawn something."""
    text, due = "", None
    while chunk := _read(terminal):
        text += chunk
        if due is None and "processor" in text:
            due = time.monotonic()
        if due is not None and time.monotonic() >= due:
            due = time.monotonic() + LONG_S / 2  # one that strikes a finalizer is lost
            os.killpg(pid, signal.SIGINT)
    assert due is not None, text
    return text


def _read(terminal: int) -> str:
    ready, _, _ = select.select([terminal], [], [], LONG_S)
    assert ready, "nothing is drawn"
    try:
        return os.read(terminal, 1 << 16).decode(errors="replace")
    except OSError:  # the last of those who wrote to it has gone
        return ""
