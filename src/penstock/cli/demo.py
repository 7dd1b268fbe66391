"""`penstock demo`: from nothing to a model trained by several ranks, in a minute."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.interrupts import interruptible_once
from penstock.demo.plan import Plan
from penstock.demo.plot import NoPlot, plot
from penstock.demo.report import DemoReport, in_words
from penstock.demo.run import run
from penstock.demo.subject import generated, subject_of
from penstock.demo.view import DemoView, LiveView, NoView, PlainView
from penstock.errors import PenstockError
from penstock.graph import Graph

NEEDED: Final = ("torch", "torch_geometric")
REPORT: Final = "report.json"


class BatchesDiffer(PenstockError):
    """The ranks' batches are not those of an undisturbed run."""


@click.command()
@click.option(
    "--graph",
    "path",
    type=click.Path(path_type=Path),
    help="Train on this saved graph, of one type, with x, y and splits train and test.",
)
@click.option(
    "--nodes",
    default=200_000,
    show_default=True,
    type=click.IntRange(200),
    help="Size of the generated graph.",
)
@click.option("--ranks", default=4, show_default=True, type=click.IntRange(1, 64))
@click.option("--workers", default=2, show_default=True, type=click.IntRange(1, 64))
@click.option(
    "--store",
    "servers",
    metavar="PARTS",
    type=click.IntRange(2, 64),
    help="Cut the graph into parts, each at a server, and kill one of these.",
)
@click.option("--epochs", default=4, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**64 - 1))
@click.option(
    "--pause",
    default=2.5,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds that one rank pauses.",
)
@click.option(
    "--output",
    default="penstock-demo",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the plot and the report.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    help="Save the generated graph in this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, nothing else.")
@click.option("--quiet", is_flag=True, help="Show nothing before the end.")
def demo(
    path: Path | None,
    nodes: int,
    ranks: int,
    workers: int,
    servers: int | None,
    epochs: int,
    seed: int,
    pause: float,
    output: Path,
    keep: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train a GNN with several ranks from one hub, and let things go wrong.

    Ranks are processes that train GraphSAGE together (DDP) on batches which the workers of one
    shared hub sample. On the way a worker is killed, and a rank pauses for a while. At the end:
    accuracy, speed, fairness, what became of the worker, the proof that all batches are those of an
    undisturbed run, and a plot of each rank's rate.

    With --store, the graph is cut into parts, and the batches are put together from what servers
    answer, of which each has a part. One of them is killed, instead of a worker. Its part has a
    second server. At the end: for how long nobody got a batch, and the proof that all batches are
    those of the whole graph.

    The graph, unless you bring your own, is a stochastic block model: classes show in the edges,
    and only faintly in the features, so that accuracy tells whether sampling works.

    \b
    Examples:
      penstock demo
      penstock demo --nodes 50000 --ranks 2 --epochs 6
      penstock demo --store 3
      penstock demo --graph products.graph --output products
      penstock demo --json --quiet > report.json
    """
    _look_for_what_training_needs()
    console = Console(stderr=as_json)
    began = time.monotonic()
    output.mkdir(parents=True, exist_ok=True)  # fails before any work is done
    with (
        interruptible_once(),
        _graph(path, nodes, seed, keep, _say(as_json, quiet)) as graph,
    ):
        subject = subject_of(graph, path or "the generated graph")
        plan = Plan(
            ranks=ranks,
            workers=workers,
            epochs=epochs,
            seed=seed,
            classes=subject.classes,
            width=subject.width,
            train=len(graph.split("train")),
            pause_s=pause,
            servers=servers or 0,
        )
        report = _drawn(run(subject, plan, _view(console, as_json, quiet)), output)
    report = msgspec.structs.replace(report, total_seconds=time.monotonic() - began)
    _tell(report, output, console, as_json)


def _look_for_what_training_needs() -> None:
    """Raise an error before any work is done if torch or PyG is missing; import nothing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise PenstockError(
            f"the demo trains with PyTorch and PyG (no module named {' or '.join(missing)}): "
            "pip install 'penstock-gnn[demo]'"
        )


# --- the graph -------------------------------------------------------------------------------


@contextmanager
def _graph(
    path: Path | None, nodes: int, seed: int, keep: Path | None, say: PlainView | None
) -> Iterator[Graph]:
    """Open the user's graph, or generate one."""
    if path is not None and keep is not None:
        raise click.UsageError("--keep is for the generated graph, --graph for one that is there")
    began = time.monotonic()
    with generated(nodes, seed) if path is None else Graph.open(path) as graph:
        if keep is not None:
            graph.save(keep)
        if say is not None:
            where = "generated" if path is None else f"opened ({path})"
            size = f"{graph.num_nodes():,} nodes, {graph.num_edges():,} edges"
            say.event(time.monotonic() - began, f"{size}: {where}")
        yield graph


# --- what is seen ----------------------------------------------------------------------------


def _say(as_json: bool, quiet: bool) -> PlainView | None:
    return None if quiet else PlainView(lambda line: click.echo(line, err=as_json))


def _view(console: Console, as_json: bool, quiet: bool) -> DemoView:
    if quiet:
        return NoView()
    if console.is_terminal:
        return LiveView(console)
    return PlainView(lambda line: click.echo(line, err=as_json))


def _drawn(report: DemoReport, output: Path) -> DemoReport:
    try:
        return msgspec.structs.replace(report, plot=str(plot(report, output)))
    except NoPlot as reason:
        return msgspec.structs.replace(report, no_plot=str(reason))


def _tell(report: DemoReport, output: Path, console: Console, as_json: bool) -> None:
    """Write the report, print it, and fail if the proof did."""
    told = msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
    (output / REPORT).write_text(told + "\n")
    if as_json:
        click.echo(told)
    else:
        _print(report, console)
    if not report.proof.holds:
        raise BatchesDiffer(f"the proof failed: {'; '.join(report.proof.differing)}")


def _print(report: DemoReport, console: Console) -> None:
    if not console.is_terminal:
        for heading, words in in_words(report):
            click.echo(f"{heading:<14} {words}")
        return
    table = Table.grid(padding=(0, 2))
    for heading, words in in_words(report):
        # As text: brackets and colons in a path are no markup.
        table.add_row(Text(heading, style="bold"), Text(words))
    console.print(table)
