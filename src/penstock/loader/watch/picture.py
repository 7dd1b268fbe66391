"""How watched loaders are shown: a live picture in a terminal, now and then a line elsewhere.

On standard error, so that what a program prints stays what it printed. Reads what was looked at,
and changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.loader.watch.meter import Waits
from penstock.loader.watch.watcher import Watched, WatchView

_LIVE_S: Final = 0.5
_LINES_S: Final = 5.0
_LOSSES_SHOWN: Final = 3
_CAUSES: Final = ("sampling", "transfer", "transform", "credit", "turn")


def view_here() -> WatchView:
    """What suits standard error: in notebooks, files and pipes, lines."""
    console = Console(stderr=True, force_jupyter=False)
    return LivePicture(console) if is_fit(console) else Lines()


def is_fit(console: Console) -> bool:
    """Whether something can be drawn again in place, and will not disturb somebody who types."""
    return console.is_terminal and not console.is_dumb_terminal and not hasattr(sys, "ps1")


class Lines:
    """A line for each loader that has read something since the last one."""

    def __init__(self, pause: float = _LINES_S) -> None:
        self.pause = pause
        self._said: dict[str, tuple[int, ...]] = {}
        self._due: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, watched: Sequence[Watched]) -> None:
        """Says what is new. Before a line about a loader is the pause, but for the last."""
        now = max((one.looks[-1].at for one in watched if one.looks), default=0.0)
        self._due = now + self.pause if self._due is None else self._due
        is_due = now >= self._due
        for one in watched:
            if one.looks and (is_due or one.leaving):
                self._say(one)
        if is_due:
            self._due = now + self.pause

    def _say(self, watched: Watched) -> None:
        numbers = watched.looks[-1].numbers
        state = numbers.batches, numbers.restarts_of_workers, numbers.restarts_of_hub
        # What a loader had read before it was watched is no news; what came of the first look may
        # be, which is taken some time after that.
        if self._said.get(watched.name, (watched.before, *state[1:])) != state:
            self._said[watched.name] = state
            # Nobody may be listening any more, and there may never have been anybody.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"penstock: {line(watched)}\n")
                sys.stderr.flush()


class LivePicture:
    """Loaders, workers and other ranks, drawn again and again in place."""

    pause = _LIVE_S

    def __init__(self, console: Console) -> None:
        self._console = console
        # What is printed meanwhile goes above the picture; but not to where it was not meant for.
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=bool(sys.stdout) and sys.stdout.isatty(),
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        self._console.show_cursor(True)  # a process that is killed could not bring it back
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, watched: Sequence[Watched]) -> None:
        """Draws."""
        if any(one.looks for one in watched):
            self._live.update(picture(watched), refresh=True)


# --- in words and in tables ----------------------------------------------------------------------


def line(watched: Watched) -> str:
    """How a loader stands, in a line."""
    numbers = watched.looks[-1].numbers
    batches, inputs = rates(watched)
    parts = [
        f"{watched.name}: epoch {numbers.epoch}, {numbers.step} of {numbers.steps} batches, "
        f"{batches:.1f}/s ({inputs:.0f} inputs/s)",
        "waits: " + ", ".join(f"{cause} {share:.0%}" for cause, share in shares(watched).items()),
    ]
    if numbers.num_workers:
        parts.append(f"{numbers.num_workers} workers, {numbers.restarts_of_workers} lost")
    if numbers.restarts_of_hub:
        parts.append(f"hub restarted {numbers.restarts_of_hub} times")
    if numbers.failed or numbers.substitutes:
        parts.append(f"{numbers.failed} failed, {numbers.substitutes} substituted")
    return "; ".join(parts)


def picture(watched: Sequence[Watched]) -> RenderableType:
    """How things stand, of all who are watched."""
    shown = [one for one in watched if one.looks]
    parts: list[RenderableType] = [_loaders(shown)]
    for one in _by_hub(shown):
        parts += _hub(one)
    return Group(*parts, Text(f"restarts: {_restarts(shown)}"))


def _loaders(watched: Sequence[Watched]) -> Table:
    table = Table("loader", "epoch", "progress", "batches", "per s", *_CAUSES, expand=False)
    for one in watched:
        numbers, (batches, _) = one.looks[-1].numbers, rates(one)
        table.add_row(
            one.name,
            str(numbers.epoch),
            ProgressBar(max(numbers.steps, 1), numbers.step, width=16),
            f"{numbers.step}/{numbers.steps}",
            f"{batches:.1f}",
            *(f"{share:.0%}" for share in shares(one).values()),
        )
    return table


def _by_hub(watched: Sequence[Watched]) -> list[Watched]:
    """One for each hub, the last who looked: they would all tell the same of it."""
    found = {one.looks[-1].numbers.hub["hub"]["address"]: one for one in watched if _has_hub(one)}
    return list(found.values())


def _has_hub(watched: Watched) -> bool:
    return bool(watched.looks[-1].numbers.hub)


def _hub(watched: Watched) -> Iterator[RenderableType]:
    hub = watched.looks[-1].numbers.hub
    yield _workers(hub)
    others = _others(watched)
    if others.row_count:
        yield others
    for loss in hub["losses"][-_LOSSES_SHOWN:]:
        lost = f"worker {loss['worker']} (pid {loss['pid']}) was lost: {loss['verdict']}"
        yield Text(lost, style="yellow", no_wrap=True, overflow="ellipsis")


def _workers(hub: dict[str, Any]) -> Table:
    table = Table("worker", "pid", "state", "batches", "processor", expand=False)
    for worker in hub["pool"]["workers"]:
        table.add_row(
            str(worker["worker"]),
            str(worker["pid"]),
            Text(worker["state"], style="" if worker["state"] == "ready" else "yellow"),
            str(worker["batches"]),
            f"{worker['cpu']:.1f} s",
        )
    return table


def _others(watched: Watched) -> Table:
    """Channels of the same hub that other processes read: ranks, most of the time."""
    table = Table("read by", "pid", "epoch", "batches", "per s", expand=False)
    first, last = watched.looks[0], watched.looks[-1]
    seconds = last.at - first.at
    before = {channel["id"]: _delivered(channel) for channel in _channels(first.numbers.hub)}
    who = last.numbers.hub["channels"]
    for channel in _channels(last.numbers.hub):
        known = who.get(str(channel["id"]))
        if known is None or known["pid"] == os.getpid():
            continue
        made = _delivered(channel) - before.get(channel["id"], _delivered(channel))
        table.add_row(
            known["job"],
            str(known["pid"]),
            str(channel["epoch"]),
            f"{channel['delivered']}/{channel['total']}",
            f"{made / seconds if seconds else 0.0:.1f}",
        )
    return table


def _channels(hub: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return hub["scheduler"]["channels"] if hub else ()


def _delivered(channel: dict[str, Any]) -> int:
    return int(channel["delivered"]) + int(channel["delivered_before"])


def _restarts(watched: Sequence[Watched]) -> str:
    numbers = [one.looks[-1].numbers for one in watched]
    workers = sum(one.looks[-1].numbers.restarts_of_workers for one in _by_hub(watched))
    hubs = max((one.restarts_of_hub for one in numbers), default=0)
    failed = sum(one.failed for one in numbers)
    return f"{workers} of workers, {hubs} of the hub; {failed} batches failed"


# --- arithmetic ----------------------------------------------------------------------------------


def rates(watched: Watched) -> tuple[float, float]:
    """Batches and inputs per second: of the last few seconds, if there were two looks."""
    first, last = watched.looks[0], watched.looks[-1]
    seconds = last.at - first.at
    if not seconds:
        return last.numbers.batches_per_second, last.numbers.inputs_per_second
    batches = last.numbers.batches - first.numbers.batches
    return batches / seconds, (last.numbers.inputs - first.numbers.inputs) / seconds


def shares(watched: Watched) -> dict[str, float]:
    """The share of the last few seconds that went by waiting, by cause."""
    first, last = watched.looks[0], watched.looks[-1]
    before, seconds = first.numbers.waits, last.at - first.at
    if not seconds:
        before, seconds = Waits(), last.numbers.seconds
    now = last.numbers.waits
    return {
        cause: _share(getattr(now, cause), getattr(before, cause), seconds) for cause in _CAUSES
    }


def _share(now: float, before: float, seconds: float) -> float:
    # The pool counts anew when a channel is opened again; a wait that goes on is counted at its end
    # only, and may be longer than the window.
    return min(max(now - before, 0.0) / seconds, 1.0) if seconds else 0.0
