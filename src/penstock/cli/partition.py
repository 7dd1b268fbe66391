"""`penstock partition`: cut a saved graph into parts, one for each server."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import track

from penstock.graph import Graph
from penstock.graph.partition.cutter import Method, Side
from penstock.graph.partition.partition import METHODS, SIDES, Partition


@click.command()
@click.argument("graph", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--parts", "-n", required=True, type=click.IntRange(min=1), help="How many.")
@click.option(
    "--method", type=click.Choice(METHODS), default="range", show_default=True, help="By what."
)
@click.option(
    "--edges",
    type=click.Choice(SIDES),
    default="destination",
    show_default=True,
    help="The end that an edge goes with.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def partition(
    graph: Path, folder: Path, parts: int, method: Method, edges: Side, as_json: bool
) -> None:
    """Cut the graph saved in the folder GRAPH into parts, and write them into FOLDER.

    Nodes keep their attributes, labels and splits. Parts that are in FOLDER already are replaced
    when all new ones are written; anything else there stays as it is.

    \b
    Examples:
      penstock partition products.graph parts -n 4
      penstock partition products.graph parts -n 4 --method hash
      penstock serve parts/part-0
    """
    console = Console(stderr=True)
    with Graph.open(graph) as whole:
        steps = iter(
            track(range(parts), "cutting", console=console, disable=not console.is_terminal)
        )
        next(steps)
        written = whole.partition(
            parts,
            folder,
            method=method,
            edges=edges,
            progress=lambda done, total: next(steps, None),
        )
    told = [_told(path) for path in written]
    if as_json:
        click.echo(msgspec.json.encode(told))
        return
    for part in told:
        click.echo(
            f"{part['path']}: {part['num_nodes']:,} nodes, {part['num_edges']:,} edges within"
        )


def _told(path: Path) -> dict[str, object]:
    with Partition.open(path) as part:
        graph = part.graph
        sizes = {"num_nodes": graph.num_nodes(), "num_edges": graph.num_edges()}
        return {"path": str(path), "part": part.number, **sizes}
