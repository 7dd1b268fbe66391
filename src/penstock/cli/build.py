"""`penstock build`: a graph from tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.filesize import decimal
from rich.progress import Progress, TaskID

from penstock.cli.inspect import (
    edge_table,
    memory_text,
    node_table,
    progress_on_stderr,
    table_of_the_whole,
    things_of_the_whole,
)
from penstock.cli.interrupts import interruptible_once
from penstock.cli.partition import method_named, show_parts, told_parts
from penstock.cli.tables import new_table, plain_console
from penstock.cli.words import counted
from penstock.graph import Graph
from penstock.graph.partition.assignment import METHODS
from penstock.graph.partition.note import EDGES, LAYOUTS, Edges, Layout
from penstock.graph.partition.partition import Parts


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    "out",
    required=True,
    type=click.Path(path_type=Path),
    help="The folder for the graph, or for its parts. What is there is replaced when the new ones "
    "are complete.",
)
@click.option(
    "--parts", "-n", "number", type=click.IntRange(min=1), help="Build so many parts, no whole."
)
@click.option(
    "--method",
    metavar="|".join((*METHODS, "column", "FILE")),
    help="How nodes are assigned to parts: as for penstock partition, or by the column `part` of "
    "each table of nodes.",
)
@click.option(
    "--passes",
    type=click.IntRange(min=1),
    help="How often --method streaming goes through all edges at most. [default: 20]",
)
@click.option(
    "--edges",
    type=click.Choice(EDGES),
    help="The end that an edge goes with, or both. [default: destination]",
)
@click.option(
    "--topology",
    type=click.Choice(LAYOUTS),
    help="Whether a part has the edges of its own nodes, or all edges. [default: parts]",
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="How much memory to use, about, such as 4GB.  [default: a quarter of what there is]",
)
@click.option(
    "--ray",
    "on_ray",
    is_flag=True,
    help="Build parts by tasks on the Ray cluster that this host belongs to, or that RAY_ADDRESS "
    "names. Each task uses --memory, or else half of a CPU's share.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Say what there is to read and what it will take, and build nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def build(
    spec: Path,
    out: Path,
    number: int | None,
    method: str | None,
    passes: int | None,
    edges: Edges | None,
    topology: Layout | None,
    memory: str | None,
    on_ray: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Build a graph from the tables that the TOML file SPEC describes.

    Tables are Parquet, CSV, Arrow or NumPy files, of any size; paths in SPEC begin at its folder.
    If the build fails or is killed, the folder of the graph has what it had before: start it again.
    With --parts (or a table [parts] in SPEC) it is built in parts, one for each server, and never
    there as a whole; every file is that of building it, and of penstock partition. With --ray the
    hosts of a Ray cluster do that together, and a host that dies costs what it was doing; all hosts
    reach the tables and the folder of the parts by the same paths.

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
      penstock build shop.toml -o shop.parts --parts 8 --method hash
      penstock build shop.toml -o /shared/shop.parts --parts 64 --ray
    """
    try:
        from penstock.ingest.build import build as build_graph
        from penstock.ingest.description import described
        from penstock.ingest.forecast import forecast
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    parts = _words_of_parts(number, method, passes, edges, topology)
    with interruptible_once():
        try:
            if dry_run:
                found = forecast(out, spec=spec, memory=memory, parts=parts, ray=on_ray)
                show_forecast(found, as_json)
                return
            began = time.monotonic()
            with progress_on_stderr() as bars:
                task = bars.add_task(f"building {out}", total=None)
                built: Graph | Parts
                if on_ray:
                    built = _built_on_ray(out, spec, memory, parts, bars, task)
                else:
                    built = build_graph(
                        out,
                        spec=spec,
                        memory=memory,
                        progress=lambda done, total: bars.update(task, completed=done, total=total),
                        parts=parts,
                    )
        except ImportError as error:  # DuckDB is not installed, and there is CSV to read
            raise click.ClickException(str(error)) from error
    seconds = time.monotonic() - began
    if isinstance(built, Graph):
        with built:
            show(out, built, seconds, as_json)
    else:
        said = described(spec=spec, parts=parts).cutting
        assert said is not None
        show_built_parts(out, built, method or said.method, seconds, as_json)


def _built_on_ray(
    out: Path,
    spec: Path,
    memory: str | None,
    parts: Mapping[str, Any] | None,
    bars: Progress,
    task: TaskID,
) -> Parts:
    """Build parts on Ray, and tell of each step, in a terminal or not."""
    from penstock.ingest.build import build_by_tasks
    from penstock.ingest.description import described
    from penstock.ingest.tasks.plan import check_tasks
    from penstock.ingest.tasks.runner import on_ray

    def say(step: str, told: str | None) -> None:
        if told is None:
            bars.update(task, description=step)
        else:
            bars.console.print(f"{step}: {told}", markup=False, highlight=False, soft_wrap=True)

    said = described(spec=spec, parts=parts)
    check_tasks(said)
    with on_ray(None) as runner:
        return build_by_tasks(
            out,
            said,
            runner,
            memory,
            lambda done, total: bars.update(task, completed=done, total=total),
            say,
        )


def _words_of_parts(
    number: int | None,
    method: str | None,
    passes: int | None,
    edges: Edges | None,
    topology: Layout | None,
) -> dict[str, Any] | None:
    """Return what was said of parts; None if nothing was."""
    named = None if method is None else method_named(method, (*METHODS, "column"))
    words = {"n": number, "method": named, "passes": passes, "edges": edges, "topology": topology}
    return {word: value for word, value in words.items() if value is not None} or None


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
    for line in _left_out_lines(left_out):
        console.print(line)


def show_built_parts(path: Path, parts: Parts, method: str, seconds: float, as_json: bool) -> None:
    """Say which parts have been built."""
    with Graph.open(parts[0]) as first:
        left_out = first.graph_attributes().get("left_out", {})
    if as_json:
        told = {
            "path": str(path),
            "seconds": round(seconds, 3),
            "left_out": left_out,
            **told_parts(method, parts),
        }
        click.echo(msgspec.json.format(msgspec.json.encode(told)))
        return
    show_parts(parts)
    for line in _left_out_lines(left_out):
        click.echo(line)
    click.echo(f"built in {seconds:.1f} s")


def _left_out_lines(left_out: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield lines that say how many rows of which tables are not there, and why."""
    for table, reasons in left_out.items():
        for reason, count in reasons.items():
            yield f"left out: {counted(count, 'row')} of {table} ({_WORDS[reason]})"


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
    each = "" if found.tasks is None else f" for each task, of which {found.cpus} run at a time"
    console.print(f"memory: {decimal(found.memory)}{each}")
    if found.tasks is not None:
        steps = ", ".join(f"{step} {count:,}" for step, count in found.tasks.items() if count)
        console.print(f"tasks: {steps}", soft_wrap=True)
    about = "" if found.is_exact else ", at least (rows of CSV are not counted)"
    if found.parts is not None:
        console.print(_parts_line(found.parts))
    what = "the graph" if found.parts is None else "all parts"
    console.print(
        f"disk: {decimal(found.disk)} for {what}, {decimal(found.scratch)} for temporary files"
        f"{about}; {decimal(found.free)} are free"
    )


def _parts_line(parts: Any) -> str:
    """Return a line that says which parts there would be."""
    each = [
        f"{count:,} nodes{' of ' + repr(name) if name else ''}"
        for name, count in parts.nodes.items()
        if count
    ]
    return (
        f"parts: {parts.n:,} by {parts.method}, edges by {parts.edges}, topology {parts.topology}; "
        f"about {', '.join([*each, decimal(parts.nbytes)])} each"
    )
