"""`penstock partition`: cut a saved graph into parts, one for each server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from penstock.cli.inspect import progress_on_stderr
from penstock.graph import Graph
from penstock.graph.inventory import type_text
from penstock.graph.partition.assignment import METHODS
from penstock.graph.partition.partition import EDGES, LAYOUTS, Edges, Layout, Parts


@click.command()
@click.argument("graph", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--parts", "-n", required=True, type=click.IntRange(min=1), help="How many.")
@click.option(
    "--method",
    default="range",
    show_default=True,
    metavar="range|hash|FILE",
    help="How nodes are assigned: by ranges of ids, by hashes, or as a file of NumPy's says: .npy "
    "with the part of each node, or .npz with such an array for each node type.",
)
@click.option(
    "--edges",
    type=click.Choice(EDGES),
    default="destination",
    show_default=True,
    help="The end that an edge goes with: a part serves the in-edges or the out-edges of its "
    "nodes, or both.",
)
@click.option(
    "--topology",
    type=click.Choice(LAYOUTS),
    default="parts",
    show_default=True,
    help="Whether a part has the edges of its own nodes, or all edges; attributes are in parts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def partition(
    graph: Path,
    folder: Path,
    parts: int,
    method: str,
    edges: Edges,
    topology: Layout,
    as_json: bool,
) -> None:
    """Cut the graph saved in the folder GRAPH into parts, and write them into FOLDER.

    Nodes keep their attributes, labels and splits. Parts that are in FOLDER already are replaced
    when all new ones are written; anything else there stays as it is.

    \b
    Examples:
      penstock partition products.graph parts -n 4
      penstock partition products.graph parts -n 4 --method hash --topology whole
      penstock partition products.graph parts -n 4 --method metis.npy
      penstock serve parts/part-0
    """
    assigned = _assigned(method)
    with Graph.open(graph) as whole, progress_on_stderr() as progress:
        task = progress.add_task("cutting", total=None)
        written = whole.partition(
            parts,
            folder,
            method=assigned,
            edges=edges,
            topology=topology,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    told = [_told(path) for path in written]
    if as_json:
        click.echo(msgspec.json.encode(told))
        return
    for part in told:
        click.echo(
            f"{part['path']}: {part['num_nodes']:,} nodes, {part['num_edges']:,} edges, "
            f"{part['edges_cut']:,} of them cut"
        )
    for line in _cut(written):
        click.echo(line)


def _assigned(method: str) -> Any:
    """Return the method, or the arrays in the file that it names."""
    if method in METHODS:
        return method
    if Path(method).suffix not in (".npy", ".npz"):
        raise click.BadParameter(
            f"{method!r}; expected {', '.join(METHODS)}, or a file that ends in .npy or .npz",
            param_hint="--method",
        )
    found = np.load(method, mmap_mode="r", allow_pickle=False)
    return found if isinstance(found, np.ndarray) else dict(found)


def _told(path: Path) -> dict[str, Any]:
    with Graph.open(path) as graph:
        part = graph.part
        assert part is not None
        return {
            "path": str(path),
            "part": part.number,
            "num_nodes": graph.num_own_nodes(),
            "num_edges": graph.num_own_edges(),
            "edges_cut": sum(part.edges_cut),
        }


def _cut(parts: Parts) -> list[str]:
    """Return lines that say how many edges lead from one part to another."""
    lines = []
    for name, total in parts.num_edges.items():
        cut, kind = parts.edges_cut[name], f" {type_text(name)}" if any(name) else ""
        share = f" ({cut / total:.1%})" if total else ""
        lines.append(f"cut: {cut:,} of {total:,}{kind} edges{share}")
    return lines
