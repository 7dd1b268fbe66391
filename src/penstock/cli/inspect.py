"""`penstock inspect`: what is in a saved graph, and whether it is sound.

It prints `Graph.describe()` as tables, and computes nothing. Tables and JSON go to standard output,
progress to standard error.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from penstock.cli.tables import new_table, plain_console
from penstock.graph import Graph
from penstock.graph.describe import (
    ArrayDescription,
    Degrees,
    Description,
    EdgeDescription,
    NodeDescription,
    PartDescription,
)
from penstock.graph.format import verify as verify_sums
from penstock.graph.inventory import type_text
from penstock.graph.partition.partition import parts_in


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option(
    "--verify",
    is_flag=True,
    help="Read all of it; check all sums, the topology, ids and derived arrays.",
)
def inspect(path: Path, as_json: bool, verify: bool) -> None:
    """Describe the graph saved in the folder PATH, or a part of one, and check it.

    Opening a graph checks the sizes of its files only. With --verify all of it is read; damage is
    reported with the file it is in, and the exit status is 1.

    \b
    Examples:
      penstock inspect products.graph
      penstock inspect products.graph --verify
      penstock inspect products.graph --json | jq .num_edges
      penstock inspect parts/part-0
    """
    if verify:
        check(path)
    with opened(path) as graph:
        description = graph.describe()
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(description)))
    else:
        show(path, description, verified=verify)


@contextmanager
def opened(path: Path) -> Iterator[Graph]:
    """Open a graph, or a part of one."""
    check_one(path)
    with Graph.open(path) as graph:
        yield graph


def check_one(path: Path) -> None:
    """Raise an error that says what to inspect, if the folder has several parts of a graph."""
    if parts := parts_in(path):
        raise FileNotFoundError(
            errno.ENOENT,
            f"no graph, but {len(parts)} parts of one are here: inspect one, such as {parts[0]}",
            str(path),
        )


# --- checking ------------------------------------------------------------------------------------


def check(path: Path) -> None:
    """Raise an error for a graph that is damaged or unsound."""
    check_one(path)
    with progress_on_stderr() as progress:
        sums = progress.add_task("checking sums", total=None)
        verify_sums(path, lambda done, total: progress.update(sums, completed=done, total=total))
        progress.add_task("checking topology and derived arrays", total=None)
        with opened(path) as graph:
            graph.validate()


def progress_on_stderr() -> Progress:
    """Return progress bars that vanish when done; silent unless standard error is a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


# --- showing -------------------------------------------------------------------------------------


def show(path: Path, description: Description, *, verified: bool) -> None:
    console = plain_console()
    console.print(summary(path, description, verified=verified))
    if description.part is not None:
        console.print(part_table(description.part))
    console.print(node_table(description.nodes))
    console.print(edge_table(description.edges))
    console.print(degree_table(description.edges))
    if any(edge.derived for edge in description.edges):
        console.print(derived_table(description.edges))
    if belongings := list(things_of_the_whole(description)):
        console.print(table_of_the_whole(belongings))


def summary(path: Path, description: Description, *, verified: bool) -> Table:
    table, part = Table.grid(padding=(0, 2)), description.part
    kind = "heterogeneous" if description.is_hetero else "homogeneous"
    sizes = f"{description.num_nodes:,} nodes, {description.num_edges:,} edges"
    table.add_row("graph", str(path), style="bold")
    if part is not None:
        table.add_row("part", f"{part.number}, of {part.of} (0 to {part.of - 1}): {cut_text(part)}")
        table.add_row("cut", f"{part.cut}, of the graph's version {part.version}")
        sizes += " in all parts"
    table.add_row("kind", f"{kind}, {sizes}")
    table.add_row("size", memory_text(description))
    if saved := sum(array.saved for array in attributes_of(description)):
        table.add_row("saved", f"{decimal(saved)}, by attributes stored in fewer bytes")
    table.add_row("version", description.version or "not computed")
    if verified:
        derived_arrays = ", derived arrays agree with it" if description.memory.derived else ""
        ids = ", every id is there once" if description.memory.ids else ""
        table.add_row("verified", f"all sums agree, the topology is sound{derived_arrays}{ids}")
    return table


def cut_text(part: PartDescription) -> str:
    """Return in words how a graph was cut."""
    nodes = "nodes as given" if part.method == "given" else f"nodes by {part.method}"
    ends = "both ends" if part.edges == "both" else f"their {part.edges}"
    whole = "; every part has all edges" if part.topology == "whole" else ""
    return f"{nodes}, edges with {ends}{whole}"


def part_table(part: PartDescription) -> Table:
    """Return how much of each type the part has; cut edges lead to other parts."""
    columns = ("in the part", "within", "cut", "in all")
    table = new_table("of the whole graph", *columns, numbers=columns)
    for name, owned, total in part.nodes:
        table.add_row(type_text(name) or "nodes", f"{owned:,}", "", "", f"{total:,}")
    counts = zip(part.edges_within, part.edges_cut, part.edges_in_all, strict=True)
    for (kind, within), (_, cut), (_, total) in counts:
        cells = (f"{within + cut:,}", f"{within:,}", f"{cut:,}", f"{total:,}")
        table.add_row(type_text(kind) or "edges", *cells)
    return table


def memory_text(description: Description) -> str:
    memory = msgspec.structs.asdict(description.memory)
    total = memory.pop("total")
    parts = ", ".join(f"{name} {decimal(nbytes)}" for name, nbytes in memory.items() if nbytes)
    return f"{decimal(total)} ({parts})" if parts else decimal(total)


def attributes_of(description: Description) -> Iterator[ArrayDescription]:
    """Yield all attributes of nodes and edges."""
    owners: tuple[NodeDescription | EdgeDescription, ...]
    owners = (*description.nodes, *description.edges)
    for owner in owners:
        yield from owner.attributes


def node_table(nodes: Iterable[NodeDescription]) -> Table:
    table = new_table("node type", "nodes", "attributes", "splits", numbers=("nodes",))
    for node in nodes:
        splits = "\n".join(f"{name} {size:,}" for name, size in node.splits.items())
        lines = [array_lines(node), f"ids {node.ids}" if node.ids else ""]
        attributes = "\n".join(line for line in lines if line)
        table.add_row(type_text(node.name) or "(all)", f"{node.num_nodes:,}", attributes, splits)
    return table


def edge_table(edges: Iterable[EdgeDescription]) -> Table:
    table = new_table("edge type", "edges", "attributes", "topology", numbers=("edges",))
    for edge in edges:
        kind = type_text(edge.name) or "(all)"
        table.add_row(kind, f"{edge.num_edges:,}", array_lines(edge), topology_text(edge))
    return table


def degree_table(edges: Iterable[EdgeDescription]) -> Table:
    """Return the in-degrees of destinations; the last column counts those without an in-edge."""
    columns = ("min", "median", "mean", "max", "zero")
    table = new_table("in-degrees", *columns, numbers=columns)
    for edge in edges:
        if edge.degrees is not None:
            table.add_row(type_text(edge.name) or "(all)", *degree_cells(edge.degrees))
    return table


def derived_table(edges: Iterable[EdgeDescription]) -> Table:
    """Return the derived arrays that were saved with the graph."""
    table = new_table("made of", "aid", "array", "size", numbers=("size",))
    for edge in edges:
        for derived in edge.derived:
            kind = type_text(edge.name) or "(all)"
            table.add_row(kind, derived.name, array_text(derived), decimal(derived.nbytes))
    return table


def degree_cells(degrees: Degrees) -> tuple[str, ...]:
    return (
        f"{degrees.min:,}",
        f"{degrees.median:,.1f}",
        f"{degrees.mean:,.1f}",
        f"{degrees.max:,}",
        f"{degrees.zero:,}",
    )


def topology_text(edge: EdgeDescription) -> str:
    words = [edge.index_dtype]
    if edge.sorted_by_destination:
        words.append("sorted")
    if edge.has_csr:
        words.append("with csr")
    return ", ".join(words)


def array_lines(owner: NodeDescription | EdgeDescription) -> str:
    return "\n".join(f"{array.name} {array_text(array)}" for array in owner.attributes)


def array_text(array: ArrayDescription) -> str:
    read = f" → {array.read_as}" if array.read_as else ""
    return f"{array.dtype}{read}{list(array.shape)}"


def things_of_the_whole(description: Description) -> Iterator[tuple[str, str, str]]:
    """Yield owner, name and value of what belongs to the graph, or to a type, as a whole."""
    owners: list[tuple[str, Description | NodeDescription | EdgeDescription]] = [
        ("", description),
        *((type_text(node.name), node) for node in description.nodes),
        *((type_text(edge.name), edge) for edge in description.edges),
    ]
    for name, owner in owners:
        yield from ((name, key, value_text(value)) for key, value in owner.values.items())
        yield from ((name, array.name, array_text(array)) for array in owner.arrays)


def value_text(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:59]}…"


def table_of_the_whole(rows: Iterable[tuple[str, str, str]]) -> Table:
    table = new_table("of the whole", "attribute", "value")
    for owner, name, value in rows:
        table.add_row(owner or "graph", name, value)
    return table
