"""A plot of each rank's rate over time, with the kill and the pause marked. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.demo.report import DemoReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME: Final = "rates.png"
_MISSING: Final = "matplotlib is not installed: pip install 'penstock-gnn[demo]'"
# The rate at a moment is averaged over the time around it, a fortieth of the whole: long enough to
# be a rate.
_POINTS: Final = 400
_WINDOW: Final = 1 / 40
_COLOURS: Final = ("#3366aa", "#cc6633", "#339966", "#8855aa", "#777777", "#bb9900")


class NoPlot(Exception):
    """The plot cannot be drawn, for a reason that is no fault of the demonstration."""


def plot(report: DemoReport, folder: Path) -> Path:
    """Draw the plot and return its path; `NoPlot` if it cannot be drawn."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoPlot(_MISSING) from error
    figure = Figure(figsize=(10, 4.8), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    _draw_rates(axes, report)
    _mark(axes, report)
    axes.set(
        title=f"{len(report.ranks)} ranks, one hub of {report.workers} workers, "
        + ("" if report.store is None else f"{report.store.parts} parts at servers, ")
        + f"{report.batches} batches",
        xlabel="seconds of training",
        ylabel="batches per second",
        xlim=(0, report.seconds),
    )
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right", ncols=2, fontsize="small")
    axes.grid(alpha=0.25)
    path = folder / NAME
    figure.savefig(path)
    return path


def _draw_rates(axes: Axes, report: DemoReport) -> None:
    at = np.linspace(0, report.seconds, _POINTS)
    half = max(report.seconds * _WINDOW, 1e-9) / 2
    for rank in report.ranks:
        times = np.asarray(rank.batch_seconds)
        # The window is cut off at both ends.
        begin, end = np.maximum(at - half, 0), np.minimum(at + half, report.seconds)
        read = np.searchsorted(times, end) - np.searchsorted(times, begin)
        colour = _COLOURS[rank.rank % len(_COLOURS)]
        axes.plot(at, read / (end - begin), label=f"rank {rank.rank}", color=colour, linewidth=1.3)


def _mark(axes: Axes, report: DemoReport) -> None:
    pause = report.pause
    for at, what in _kills(report):
        axes.axvline(at, color="#bb2222", linestyle="--", label=f"{what} killed")
    axes.axvspan(
        pause.at_seconds,
        pause.at_seconds + pause.seconds,
        color="#999999",
        alpha=0.3,
        label=f"rank {pause.rank} pauses",
    )


def _kills(report: DemoReport) -> Iterator[tuple[float, str]]:
    if (worker := report.killed_worker) is not None:
        yield worker.at_seconds, f"worker {worker.worker}"
    if report.store is not None:
        server = report.store.killed_server
        yield server.at_seconds, f"server of part {server.part}"
