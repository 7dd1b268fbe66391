"""The display while a demonstration runs: live in a terminal, plain lines elsewhere.

It reads the chronicle and changes nothing.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.demo.chronicle import Chronicle
from penstock.demo.fairness import jain
from penstock.demo.telling import Stage

_EVENTS_SHOWN: Final = 6
_WINDOW_S: Final = 2.0
_REFRESH: Final = 8
_STYLES: Final = {Stage.PAUSED: "bold yellow", Stage.DONE: "green", Stage.MEETING: "dim"}


class DemoView(ABC):
    """A display of the demonstration."""

    @abstractmethod
    def event(self, seconds: float, words: str) -> None:
        """Show an event; `seconds` since the beginning."""

    def show(self, story: Chronicle) -> None:  # noqa: B027 - not everybody looks all the time
        """Update the display; called regularly."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class NoView(DemoView):
    """Displays nothing."""

    def event(self, seconds: float, words: str) -> None:
        """Do nothing."""


class PlainView(DemoView):
    """Prints a line for each event."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def event(self, seconds: float, words: str) -> None:
        """Print the event."""
        self._say(f"{seconds:6.1f} s  {words}")


class LiveView(DemoView):
    """Draws ranks, workers, fairness and the last events again and again, in place."""

    def __init__(self, console: Console) -> None:
        self._events: deque[tuple[float, str]] = deque(maxlen=_EVENTS_SHOWN)
        self._story: Chronicle | None = None
        # Drawn by our own loop: a thread could see a chronicle that is being written.
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn = 0.0

    def event(self, seconds: float, words: str) -> None:
        """Add the event to the list."""
        self._events.append((seconds, words))

    def show(self, story: Chronicle) -> None:
        """Draw, if it is time to."""
        now = time.monotonic()
        if now - self._drawn >= 1 / _REFRESH:
            self._drawn = now
            self._live.update(picture(story, list(self._events), now), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def picture(story: Chronicle, events: list[tuple[float, str]], now: float) -> RenderableType:
    """Return the current picture."""
    lines = [Text(f"{seconds:6.1f} s  {words}", style="dim") for seconds, words in events]
    servers = [_servers(story)] if story.servers else []
    return Group(_ranks(story, now), _workers(story), *servers, _summary(story, now), *lines)


def _ranks(story: Chronicle, now: float) -> Table:
    table = Table("rank", "", "epoch", "progress", "batches", "per second", "waited", expand=False)
    total = story.plan.epochs * story.plan.steps
    rates = story.rates(now, _WINDOW_S)
    for number, rank in enumerate(story.ranks):
        read = len(rank.times)
        table.add_row(
            str(number),
            Text(f"{rank.stage.value:<18}", style=_STYLES.get(rank.stage, "")),
            f"{rank.epoch + 1}/{story.plan.epochs}",
            ProgressBar(total, read, width=24),
            f"{read:>5}",
            f"{rates[number]:6.1f}",
            f"{rank.waited:.1f} s",
        )
    return table


def _workers(story: Chronicle) -> Table:
    table = Table("worker", "pid", "state", "batches", "processor", expand=False)
    for worker in story.numbers.get("pool", {}).get("workers", ()):
        table.add_row(
            str(worker["worker"]),
            str(worker["pid"]),
            Text(worker["state"], style="" if worker["state"] == "ready" else "yellow"),
            f"{worker['batches']:>5}",
            f"{worker['cpu']:.1f} s",
        )
    return table


def _servers(story: Chronicle) -> Table:
    table = Table("server", "pid", "part", "state", expand=False)
    for server in story.servers:
        killed = server.killed_at is not None
        table.add_row(
            server.address,
            str(server.pid),
            f"{server.part} of {story.plan.servers}",
            Text("killed" if killed else "serving", style="bold red" if killed else ""),
        )
    return table


def _summary(story: Chronicle, now: float) -> Text:
    rates = story.rates(now, _WINDOW_S)
    index = jain(rates)
    fair = "–" if index is None else f"{index:.3f}"
    return Text(
        f"{story.batches} of {story.plan.batches} batches, {sum(rates):.1f} per second; "
        f"fairness of the last {_WINDOW_S:.0f} s {fair}; workers lost and replaced: {story.lost}"
    )
