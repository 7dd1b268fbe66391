"""How far a long build or save has come: who is told, and where nothing is written."""

from __future__ import annotations

import io
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.graph import Graph, build, progress
from penstock.graph.progress import shown

pytestmark = pytest.mark.usefixtures("no_leaks")

EDGES = np.array([[0, 1, 2], [1, 2, 0]])


class Screen(io.StringIO):
    """Standard error; `seen` is set when `awaited` has been written to it."""

    def __init__(self, *, is_terminal: bool, awaited: str = "") -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self._awaited = awaited
        self.seen = threading.Event()

    def isatty(self) -> bool:
        return self._is_terminal

    def flush(self) -> None:
        if self._awaited in self.getvalue():
            self.seen.set()


def screen(patch: pytest.MonkeyPatch, *, is_terminal: bool, awaited: str = "") -> Screen:
    made = Screen(is_terminal=is_terminal, awaited=awaited)
    patch.setattr(sys, "stderr", made)
    return made


def built(progress: Any) -> None:
    with Graph.from_coo(EDGES, 3, x=np.ones((3, 4)), progress=progress):
        pass


def saved(folder: Path) -> Callable[[Any], None]:
    def save(progress: Any) -> None:
        with Graph.from_coo(EDGES, 3, x=np.ones((3, 4)), progress=False) as graph:
            graph.save(folder / "x.graph", progress)

    return save


def test_a_callable_is_told_of_bytes_until_all_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PIECE_BYTES", 32)  # one row of `x`
    for work in (built, saved(tmp_path)):
        told: list[tuple[int, int]] = []
        work(lambda done, total, told=told: told.append((done, total)))
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert len({total for _, total in told}) == 1
        assert told[-1][0] == told[-1][1] > 0
    assert len(told) >= 2


def test_an_array_that_is_copied_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PIECE_BYTES", 100)
    x, empty = np.random.default_rng(0).normal(size=(50, 3)), np.ones((50, 0))
    with Graph.from_coo(EDGES, 50, x=x, node_attrs={"empty": empty}) as graph:
        assert np.array_equal(graph.node_attribute("x"), x)
        assert graph.node_attribute("empty").shape == (50, 0)


@pytest.mark.parametrize("asked", [None, False])
def test_nothing_is_written_where_no_terminal_is(
    asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    written = screen(monkeypatch, is_terminal=asked is False)
    for work in (built, saved(tmp_path)):
        work(asked)
    assert written.getvalue() == ""


def test_work_that_takes_less_than_a_second_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER_S", 1000.0)
    written = screen(monkeypatch, is_terminal=True)
    built(None)
    assert written.getvalue() == ""


def test_longer_work_shows_a_line_in_a_terminal_and_takes_it_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    written = screen(monkeypatch, is_terminal=True, awaited="25%")
    with shown("saving x", None) as report:
        assert report is not None
        report(1_500_000, 6_000_000)
        assert written.seen.wait(60)
    *_, shown_last, last = written.getvalue().split("\r")
    assert re.fullmatch(
        r"saving x: 25% of 6 MB, \d+ s, [\d.e+]+ \w?B/s, \d+ s left\x1b\[K", shown_last
    )
    assert last == "\x1b[K"


def test_lines_are_written_to_a_pipe_if_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = screen(monkeypatch, is_terminal=False)
    with shown("building a graph", True) as report:
        assert report is not None
        report(6, 6)
        assert written.seen.wait(60)
    assert written.getvalue().splitlines()[-1].startswith("building a graph: 100% of 6 B, ")
    assert "\x1b" not in written.getvalue()


def test_a_terminal_that_is_closed_meanwhile_ends_the_line_and_not_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    written = screen(monkeypatch, is_terminal=True)
    with shown("saving x", True):
        assert written.seen.wait(60)
        written.close()
