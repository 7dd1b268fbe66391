"""`penstock demo`: the whole way in a minute, from nothing to a trained model."""

from __future__ import annotations

import json
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from penstock.demo.sbm import BlockModel, block_model
from penstock.errors import PenstockError
from penstock.graph import Graph

if TYPE_CHECKING:
    from penstock.demo.training import Report

NEEDED = ("torch", "torch_geometric")


@click.command()
@click.option(
    "--nodes",
    default=200_000,
    show_default=True,
    type=click.IntRange(200),
    help="Size of the graph.",
)
@click.option("--epochs", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**64 - 1))
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    help="Save the graph in this folder and leave it there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON, nothing else.")
def demo(nodes: int, epochs: int, seed: int, keep: Path | None, as_json: bool) -> None:
    """Generate a graph, save and open it, train a GNN on sampled batches.

    The graph is a stochastic block model: classes show in who links to whom, and only faintly in
    the features, so the accuracy tells whether sampling works.

    \b
    Examples:
      penstock demo
      penstock demo --nodes 50000 --epochs 5
      penstock demo --keep sbm.graph && penstock inspect sbm.graph
    """
    _look_for_what_training_needs()
    console = Console(stderr=as_json)
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as scratch:
        path = keep or Path(scratch) / "sbm.graph"
        graph = _make(BlockModel(num_nodes=nodes, seed=seed), path, console, seconds)
        with graph:
            report = _train(graph, epochs, seed, console)
    if as_json:
        click.echo(json.dumps(_as_dict(report, seconds), indent=2))
    else:
        _show(report, seconds, console)


def _look_for_what_training_needs() -> None:
    """Complains before any work is done, not after; imports nothing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise _untrainable(f"no module named {' or '.join(missing)}")


def _untrainable(reason: object) -> PenstockError:
    return PenstockError(
        f"the demo trains with PyTorch and PyG ({reason}): pip install 'penstock[pyg]'"
    )


def _make(spec: BlockModel, path: Path, console: Console, seconds: dict[str, float]) -> Graph:
    """Generates, saves and opens; notes how long each takes."""
    with console.status(f"generating {spec.num_nodes:,} nodes"):
        start = time.perf_counter()
        graph = block_model(spec)
        seconds["generated"] = time.perf_counter() - start
    # As text: brackets and colons in a path are no markup.
    with console.status(Text(f"saving to {path}")), graph:
        start = time.perf_counter()
        graph.save(path)
        seconds["saved"] = time.perf_counter() - start
    start = time.perf_counter()
    opened = Graph.open(path)
    seconds["opened"] = time.perf_counter() - start
    console.print(
        f"{opened.num_nodes():,} nodes, {opened.num_edges():,} edges: generated in "
        f"{seconds['generated']:.1f} s, saved in {seconds['saved']:.1f} s, opened in "
        f"{1e3 * seconds['opened']:.1f} ms"
    )
    return opened


def _train(graph: Graph, epochs: int, seed: int, console: Console) -> Report:
    try:
        from penstock.demo.training import Settings, num_steps, train
    except ImportError as error:  # there, but broken
        raise _untrainable(error) from error
    settings = Settings(epochs=epochs, seed=seed)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("training", total=num_steps(graph, settings))
        return train(graph, settings, lambda: progress.advance(task))


def _as_dict(report: Report, seconds: dict[str, float]) -> dict[str, object]:
    return {
        "accuracy": report.accuracy,
        "chance": report.chance,
        "losses": report.losses,
        "batches": report.batches,
        "batches_per_second": report.batches_per_second,
        "training_seconds": report.seconds,
        "graph_seconds": seconds,
    }


def _show(report: Report, seconds: dict[str, float], console: Console) -> None:
    console.print(
        f"test accuracy [bold]{report.accuracy:.1%}[/] (chance {report.chance:.1%}), "
        f"{report.batches} batches at [bold]{report.batches_per_second:.1f}[/] per second; loss "
        + " -> ".join(f"{loss:.3f}" for loss in report.losses)
    )
    table = Table(title="where the time went", title_justify="left")
    for column in ("", "seconds", "share"):
        table.add_column(column, justify="left" if not column else "right")
    total = sum(report.seconds.values())
    for what, spent in sorted(report.seconds.items(), key=lambda item: -item[1]):
        table.add_row(what, f"{spent:.2f}", f"{spent / total:.0%}")
    console.print(table)
