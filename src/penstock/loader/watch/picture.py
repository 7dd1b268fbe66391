"""Display watched loaders: live in a terminal, elsewhere with a line now and then.

It writes to standard error, so that a program's output stays as it is. It reads the snapshots taken
by the watcher, and changes nothing.
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

from penstock.loader.watch.verdict import Shares, between, verdict_of, whole_run
from penstock.loader.watch.watcher import Watched, WatchView

_LIVE_S: Final = 0.5
_LINES_S: Final = 5.0
_LOSSES_SHOWN: Final = 3
_CAUSES: Final = ("sampling", "transfer", "transform", "credit", "turn")
_DEVICE_CAUSES: Final = {"device_batches": "GPU: batches", "device_copies": "GPU: copies"}


def view_here() -> WatchView:
    """Return the view that suits standard error: lines in notebooks, files and pipes."""
    console = Console(stderr=True, force_jupyter=False)
    return LivePicture(console) if is_fit(console) else Lines()


def is_fit(console: Console) -> bool:
    """Return whether the console can redraw in place, and nobody types at a prompt there."""
    return console.is_terminal and not console.is_dumb_terminal and not hasattr(sys, "ps1")


class Lines:
    """Writes a line for each loader that has read something since its last line."""

    def __init__(self, pause: float = _LINES_S) -> None:
        self.pause = pause
        self._said: dict[str, tuple[int, ...]] = {}
        self._due: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, watched: Sequence[Watched]) -> None:
        """Write what is new: after each pause, and at once for loaders that are leaving."""
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
        # What a loader had read before it was watched is not new. What the first snapshot shows may
        # be, since it is taken some time after that.
        if self._said.get(watched.name, (watched.before, *state[1:])) != state:
            self._said[watched.name] = state
            # Standard error may be closed by now, or may never have existed.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"penstock: {line(watched)}\n")
                sys.stderr.flush()


class LivePicture:
    """Draws loaders, workers and other ranks again and again, in place."""

    pause = _LIVE_S

    def __init__(self, console: Console) -> None:
        self._console = console
        # Standard output of the program goes above the picture, but only if it is a terminal.
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=bool(sys.stdout) and sys.stdout.isatty(),
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        self._console.show_cursor(True)  # a killed process could not show it again
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, watched: Sequence[Watched]) -> None:
        """Draw the picture."""
        if any(one.looks for one in watched):
            self._live.update(picture(watched), refresh=True)


# --- in words and in tables ----------------------------------------------------------------------


def line(watched: Watched) -> str:
    """Return a loader's progress as one line."""
    numbers, spent = watched.looks[-1].numbers, shares(watched)
    batches, inputs = rates(watched)
    parts = [
        f"{watched.name}: epoch {numbers.epoch}, {numbers.step} of {numbers.steps} batches, "
        f"{batches:.1f}/s ({inputs:.0f} inputs/s)",
        "waits: " + ", ".join(f"{cause} {getattr(spent, cause):.0%}" for cause in _CAUSES),
    ]
    if spent.device_batches is not None:
        parts.append(
            f"GPU waits: batches {spent.device_batches:.0%}, copies {spent.device_copies:.0%}"
        )
    if numbers.num_workers:
        parts.append(f"{numbers.num_workers} workers, {numbers.restarts_of_workers} lost")
    if numbers.restarts_of_hub:
        parts.append(f"hub restarted {numbers.restarts_of_hub} times")
    if numbers.failed or numbers.substitutes:
        parts.append(f"{numbers.failed} failed, {numbers.substitutes} substituted")
    if numbers.retries:
        parts.append(f"{numbers.retries} errors tried again")
    return "; ".join([*parts, verdict(watched)])


def picture(watched: Sequence[Watched]) -> RenderableType:
    """Return the picture of all watched loaders."""
    shown = [one for one in watched if one.looks]
    parts: list[RenderableType] = [_loaders(shown)]
    parts += [Text(f"{one.name}: {verdict(one)}") for one in shown]
    for one in _by_hub(shown):
        parts += _hub(one)
    return Group(*parts, Text(f"restarts: {_restarts(shown)}"))


def _loaders(watched: Sequence[Watched]) -> Table:
    causes = {cause: cause for cause in _CAUSES}
    if any(one.looks[-1].numbers.device is not None for one in watched):
        causes |= _DEVICE_CAUSES
    table = Table("loader", "epoch", "progress", "batches", "per s", *causes.values(), expand=False)
    for one in watched:
        numbers, (batches, _), spent = one.looks[-1].numbers, rates(one), shares(one)
        table.add_row(
            one.name,
            str(numbers.epoch),
            ProgressBar(max(numbers.steps, 1), numbers.step, width=16),
            f"{numbers.step}/{numbers.steps}",
            f"{batches:.1f}",
            *(_percent(getattr(spent, cause)) for cause in causes),
        )
    return table


def _by_hub(watched: Sequence[Watched]) -> list[Watched]:
    """Return one loader for each hub, the last: all of them have the same numbers of the hub."""
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
    """Return a table of the hub's channels in other processes, which are mostly ranks."""
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
    """Return batches and inputs per second: over the window, if it has two snapshots."""
    first, last = watched.looks[0], watched.looks[-1]
    seconds = last.at - first.at
    if not seconds:
        return last.numbers.batches_per_second, last.numbers.inputs_per_second
    batches = last.numbers.batches - first.numbers.batches
    return batches / seconds, (last.numbers.inputs - first.numbers.inputs) / seconds


def shares(watched: Watched) -> Shares:
    """Return the shares of waiting: in the window if it has two snapshots, else in all the time."""
    first, last = watched.looks[0], watched.looks[-1]
    if last.at > first.at:
        return between(first.numbers, last.numbers, last.at - first.at)
    return whole_run(last.numbers)


def verdict(watched: Watched) -> str:
    """Return what is waited for: in the window, if it has enough batches, else in all the time."""
    recent = shares(watched)
    return verdict_of(watched.looks[-1].numbers, recent if recent.is_enough else None)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"
