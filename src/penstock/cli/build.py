"""`penstock build`: a graph from tables."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.filesize import decimal

from penstock.cli.inspect import (
    edge_table,
    memory_text,
    node_table,
    progress_on_stderr,
    table_of_the_whole,
    things_of_the_whole,
)
from penstock.cli.interrupts import interruptible_once
from penstock.cli.tables import new_table, plain_console
from penstock.cli.words import counted
from penstock.graph import Graph


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    "out",
    required=True,
    type=click.Path(path_type=Path),
    help="The folder for the graph. One that is there is replaced when the new one is complete.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="How much memory to use, about, such as 4GB.  [default: a quarter of what there is]",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say what there is to read and what it will take, and build nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def build(spec: Path, out: Path, memory: str | None, dry_run: bool, as_json: bool) -> None:
    """Build a graph from the tables that the TOML file SPEC describes.

    Tables are Parquet, CSV, Arrow or NumPy files, of any size; paths in SPEC begin at its folder.
    If the build fails or is killed, the folder of the graph has what it had before: start it again.

    \b
    An example of SPEC:
      [nodes.item]
      files = "items/*.parquet"
      id = "sku"
      features = {x = ["price", "vec"]}
      split = {by = "hash", val = 0.1, test = 0.1}
      [edges."user,buys,item"]
      files = "buys-*.csv"
      source = "who"
      target = "what"
      time = "at"
      reverse = true

    \b
    Examples:
      penstock build shop.toml -o shop.graph --dry-run
      penstock build shop.toml -o shop.graph
      penstock build shop.toml -o shop.graph --memory 4GB --json
      penstock inspect shop.graph
    """
    try:
        from penstock.ingest.build import build as build_graph
        from penstock.ingest.forecast import forecast
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    with interruptible_once():
        try:
            if dry_run:
                show_forecast(forecast(out, spec=spec, memory=memory), as_json)
                return
            began = time.monotonic()
            with progress_on_stderr() as bars:
                task = bars.add_task(f"building {out}", total=None)
                graph = build_graph(
                    out,
                    spec=spec,
                    memory=memory,
                    progress=lambda done, total: bars.update(task, completed=done, total=total),
                )
        except ImportError as error:  # DuckDB is not installed, and there is CSV to read
            raise click.ClickException(str(error)) from error
    with graph:
        show(out, graph, time.monotonic() - began, as_json)


def show(path: Path, graph: Graph, seconds: float, as_json: bool) -> None:
    """Say what has been built."""
    description, left_out = graph.describe(), graph.graph_attributes().get("left_out", {})
    if as_json:
        told = {
            "path": str(path),
            "seconds": round(seconds, 3),
            "left_out": left_out,
            "graph": description,
        }
        click.echo(msgspec.json.format(msgspec.json.encode(told)))
        return
    console = plain_console()
    console.print(f"{path}: {memory_text(description)}, built in {seconds:.1f} s")
    console.print(node_table(description.nodes))
    console.print(edge_table(description.edges))
    whole = [row for row in things_of_the_whole(description) if row[1] != "left_out"]
    if whole:  # links that are held out, and what codes of categories mean
        console.print(table_of_the_whole(whole))
    for table, reasons in left_out.items():
        for reason, count in reasons.items():
            console.print(f"left out: {counted(count, 'row')} of {table} ({_WORDS[reason]})")


_WORDS = {
    "missing": "an id is missing, or unknown",
    "duplicate": "the id is there already",
    "duplicates": "the same edge is there already",
    "self_loops": "from a node to itself",
}


def show_forecast(found: Any, as_json: bool) -> None:
    """Say what there is to read."""
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)))
        return
    console = plain_console()
    table = new_table(
        "table", "files", "size", "rows", "columns", numbers=("files", "size", "rows")
    )
    for each in found.tables:
        columns = "\n".join(f"{name} {kind}" for name, kind in each.columns.items())
        rows = "?" if each.rows is None else f"{each.rows:,}"
        table.add_row(each.name, f"{each.files:,}", decimal(each.nbytes), rows, columns)
    console.print(table)
    tables = {each.name for each in found.tables}
    for name, count in found.nodes.items():
        has_table = (f"nodes.{name}" if name else "nodes") in tables
        unknown = "as many as rows" if has_table else "as many as edges name"
        known = unknown if count is None else f"at most {count:,}"
        console.print(f"nodes{' of ' + repr(name) if name else ''}: {known}")
    console.print(f"memory: {decimal(found.memory)}")
    about = "" if found.is_exact else ", at least (rows of CSV are not counted)"
    console.print(
        f"disk: {decimal(found.disk)} for the graph, {decimal(found.scratch)} for temporary files"
        f"{about}; {decimal(found.free)} are free"
    )
