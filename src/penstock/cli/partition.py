"""`penstock partition`: cut a saved graph into parts, one for each server, or compare methods."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from penstock.cli.inspect import progress_on_stderr
from penstock.cli.tables import new_table, plain_console
from penstock.errors import PenstockError, suggestion
from penstock.graph import Graph
from penstock.graph.inventory import type_text
from penstock.graph.partition.assignment import METHODS
from penstock.graph.partition.partition import (
    EDGES,
    LAYOUTS,
    Balance,
    Edges,
    Layout,
    PartCutter,
    Parts,
    assigned,
    check_place,
    write_parts,
)
from penstock.graph.progress import Report


@click.command()
@click.argument("graph", type=click.Path(path_type=Path))
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--parts", "-n", required=True, type=click.IntRange(min=1), help="How many.")
@click.option(
    "--method",
    metavar="|".join((*METHODS, "FILE")),
    help="How nodes are assigned: by ranges of ids (the default), by hashes, so that few edges are "
    "cut (by locality, in memory, with KaMinPar; or streaming, for graphs larger than memory), or "
    "as a file of NumPy's says: .npy with the part of each node, or .npz with such an array for "
    "each node type.",
)
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    help="How often --method streaming goes through all edges at most. [default: 20]",
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
@click.option(
    "--compare",
    is_flag=True,
    help="Write nothing: say how many edges each method would cut, and how even parts would be.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def partition(
    graph: Path,
    folder: Path | None,
    parts: int,
    method: str | None,
    passes: int | None,
    edges: Edges,
    topology: Layout,
    compare: bool,
    as_json: bool,
) -> None:
    """Cut the graph saved in the folder GRAPH into parts, and write them into FOLDER.

    Nodes keep their attributes, labels and splits. Parts that are in FOLDER already are replaced
    when all new ones are written; anything else there stays as it is. Balance is what the largest
    part has, over the mean of all parts.

    \b
    Examples:
      penstock partition products.graph parts -n 4
      penstock partition products.graph -n 4 --compare
      penstock partition products.graph parts -n 4 --method locality
      penstock partition products.graph parts -n 4 --method hash --topology whole
      penstock partition products.graph parts -n 4 --method mine.npy
      penstock serve parts/part-0
    """
    cut = _Cut(parts, edges, topology, passes)
    if compare:
        _compare(cut, graph, method, as_json)
    elif folder is None:
        raise click.UsageError("Missing argument 'FOLDER'; only --compare needs none.")
    else:
        _write(cut, graph, folder, method or "range", as_json)


class _Cut(msgspec.Struct, frozen=True):
    """How a graph is to be cut, but for the method."""

    parts: int
    edges: Edges
    topology: Layout
    passes: int | None

    def assign(self, graph: Graph, method: str, folder: Path | None = None) -> PartCutter:
        passes = None if method in METHODS and method != "streaming" else self.passes
        with _shown(f"assigning nodes ({method})") as report:
            return assigned(
                graph,
                self.parts,
                method_named(method),
                self.edges,
                self.topology,
                passes,
                report,
                folder,
            )


@contextmanager
def _shown(what: str) -> Iterator[Report]:
    """Yield what shows on a terminal how far the work is."""
    with progress_on_stderr() as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def method_named(method: str, known: tuple[str, ...] = METHODS) -> Any:
    """Return the method, or the arrays in the file that it names."""
    if method in known:
        return method
    if Path(method).suffix not in (".npy", ".npz"):
        raise click.BadParameter(
            f"{method!r}; expected {', '.join(known)}, or a file that ends in .npy or .npz"
            f"{suggestion(method, known)}",
            param_hint="--method",
        )
    found = np.load(method, mmap_mode="r", allow_pickle=False)
    return found if isinstance(found, np.ndarray) else dict(found)


# --- cutting -------------------------------------------------------------------------------------


def _write(cut: _Cut, path: Path, folder: Path, method: str, as_json: bool) -> None:
    if cut.passes is not None and method != "streaming":
        raise click.UsageError("--passes is for --method streaming.")
    check_place(folder)
    with Graph.open(path) as graph:
        cutter = cut.assign(graph, method, folder)
        with _shown("cutting") as report:
            written = write_parts(cutter, folder, report)
    if as_json:
        click.echo(msgspec.json.encode(told_parts(method, written)))
    else:
        show_parts(written)


def told_parts(method: str, written: Parts) -> dict[str, Any]:
    """Return what there is to say of parts that have been written, as JSON has it."""
    return {**_figures(method, written), "parts": [_part(path) for path in written]}


def show_parts(written: Parts) -> None:
    """Print what parts have, the edges that are cut, and the balance."""
    for part in map(_part, written):
        click.echo(
            f"{part['path']}: {part['num_nodes']:,} nodes, {part['num_edges']:,} edges, "
            f"{part['edges_cut']:,} of them cut"
        )
    for line in (*_cut_lines(written), _balance_line(written.balance)):
        click.echo(line)


def _part(path: Path) -> dict[str, Any]:
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


def _cut_lines(parts: Parts) -> Iterator[str]:
    """Yield lines that say how many edges lead from one part to another."""
    for name, total in parts.num_edges.items():
        cut, kind = parts.edges_cut[name], f" {type_text(name)}" if any(name) else ""
        share = f" ({cut / total:.1%})" if total else ""
        yield f"cut: {cut:,} of {total:,}{kind} edges{share}"


def _balance_line(balance: Balance) -> str:
    """Return a line that says how much more than the mean the largest part has."""
    ratios = [
        *((type_text(name) or "nodes", ratio) for name, ratio in balance.nodes.items()),
        *((type_text(name) or "edges", ratio) for name, ratio in balance.edges.items()),
    ]
    return "balance: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios)


def _figures(method: str, parts: Parts) -> dict[str, Any]:
    """Return the cut and the balance of a method, as JSON has them; also by type, if there are."""
    num_edges, edges_cut = parts.num_edges, parts.edges_cut
    nodes, edges = parts.balance.nodes, parts.balance.edges
    found: dict[str, Any] = {
        "method": method,
        "num_edges": sum(num_edges.values()),
        "edges_cut": sum(edges_cut.values()),
        "balance": {
            "nodes": max(nodes.values(), default=1.0),
            "edges": max(edges.values(), default=1.0),
        },
    }
    if any(nodes):
        found["by_type"] = {
            "num_edges": _named(num_edges),
            "edges_cut": _named(edges_cut),
            "balance": {"nodes": _named(nodes), "edges": _named(edges)},
        }
    return found


def _named(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Return what is by type with names of types that JSON can have."""
    return {type_text(name): value for name, value in values.items()}


# --- comparing -----------------------------------------------------------------------------------


def _compare(cut: _Cut, path: Path, method: str | None, as_json: bool) -> None:
    """Print cut and balance of all methods, and of a file if one is given."""
    methods = [*METHODS, *(() if method is None or method in METHODS else (method,))]
    rows = []
    with Graph.open(path) as graph:
        for each in methods:
            began = time.perf_counter()
            try:
                cutter = cut.assign(graph, each)
            except PenstockError as error:
                click.echo(f"{each} is left out: {error}", err=True)
                continue
            seconds = time.perf_counter() - began
            rows.append({**_figures(each, Parts.of((), cutter)), "seconds": round(seconds, 3)})
    if as_json:
        click.echo(msgspec.json.encode(rows))
        return
    columns = ("edges cut", "cut", "nodes", "edges", "seconds")
    table = new_table("method", *columns, numbers=columns)
    for row in rows:
        table.add_row(*_cells(row))
    console = plain_console()
    console.print(table)
    console.print("nodes, edges: those of the largest part, over the mean; of the least even type")


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    cut, total, balance = row["edges_cut"], row["num_edges"], row["balance"]
    return (
        str(row["method"]),
        f"{cut:,}",
        f"{cut / total:.1%}" if total else "",
        f"{balance['nodes']:.2f}",
        f"{balance['edges']:.2f}",
        f"{row['seconds']:.1f}",
    )
