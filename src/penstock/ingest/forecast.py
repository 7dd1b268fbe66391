"""What a build would read, and what it would take: for `penstock build --dry-run`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.ingest.build import check_destination, memory_of_task
from penstock.ingest.cutting.words import Cutting
from penstock.ingest.description import Description, described
from penstock.ingest.found import Tables, columns_of_edges, columns_of_nodes, read_of_nodes
from penstock.ingest.memory import memory_of
from penstock.ingest.tables import Table
from penstock.ingest.tasks.plan import check_tasks, tasks_of
from penstock.ingest.tasks.runner import Runner, on_ray
from penstock.ingest.workspace import Workspace, workspace_of
from penstock.kernels.id_table import slots_needed

# Bytes of an edge: of a row of the graph, and of the files in which it is sorted.
_EDGE: Final = 8
_RECORD: Final = 12
# Of the bits that say which rows a part has, with their ranks.
_MEMBERS_PER_BYTE: Final = 4


class TableForecast(msgspec.Struct, frozen=True):
    """A table.

    Attributes:
        name: Which one it is, as in the description.
        files: How many files it has, or 1 for a table in memory.
        nbytes: How large they are.
        rows: How many rows it has; None: unknown before it is read (CSV).
        columns: The columns that are read, and their types.
    """

    name: str
    files: int
    nbytes: int
    rows: int | None
    columns: dict[str, str]


class PartsForecast(msgspec.Struct, frozen=True):
    """The parts that a graph would be built in.

    Attributes:
        n: How many there are.
        method: How nodes are assigned; "given" as an array.
        edges: The end that edges go with.
        topology: Whether parts have the edges of their own nodes, or all.
        nodes: By node type, how many nodes a part has, about; None: as many as edges name.
        nbytes: The size of a part, about.
    """

    n: int
    method: str
    edges: str
    topology: str
    nodes: dict[str, int | None]
    nbytes: int


class Forecast(msgspec.Struct, frozen=True):
    """What a build would read and take, in bytes.

    Attributes:
        tables: The tables.
        nodes: By node type, how many nodes there are at most; None: as many as edges name.
        memory: The memory that it would use, about.
        disk: The size of the graph, or of all its parts, about.
        scratch: What temporary files take besides, about.
        free: What the file system has left.
        is_exact: Whether all rows could be counted.
        parts: The parts; None: the graph would be built as a whole.
        tasks: How many tasks each step would have on Ray, about; None: without Ray. `memory` is
            that of each task then.
        cpus: How many of them Ray would perform at a time.
    """

    tables: list[TableForecast]
    nodes: dict[str, int | None]
    memory: int
    disk: int
    scratch: int
    free: int
    is_exact: bool
    parts: PartsForecast | None = None
    tasks: dict[str, int] | None = None
    cpus: int | None = None


def forecast(
    out: str | os.PathLike[str],
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[Any, Any] | None = None,
    spec: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    memory: str | int | None = None,
    parts: int | Mapping[str, Any] | None = None,
    ray: bool | str = False,
) -> Forecast:
    """Look at the tables of a build: their files, columns, types and rows, and check what can be.

    Args:
        out: The folder of the graph that would be built.
        nodes: As for `build`.
        edges: As for `build`.
        spec: As for `build`.
        memory: As for `build`.
        parts: As for `build`.
        ray: As for `build`.
    """
    said = described(nodes, edges, spec, parts)
    if ray:
        check_tasks(said)
        with on_ray(None if ray is True else ray) as runner:
            return _forecast_of_tasks(said, Path(os.path.abspath(out)), memory, runner)
    limit = memory_of(said.memory if memory is None else memory)
    folder = Path(os.path.abspath(out))
    check_destination(folder, said)
    with workspace_of(folder) as workspace:
        return _forecast(said, workspace, limit, folder)


def _forecast_of_tasks(
    said: Description, folder: Path, memory: str | int | None, runner: Runner
) -> Forecast:
    limit = memory_of_task(said, memory, runner)
    check_destination(folder, said)
    with workspace_of(folder) as workspace:
        whole = _forecast(said, workspace, limit, folder)
        tables = Tables(said, workspace, limit, only_look=True)
        tasks = tasks_of(said, tables, limit, runner.cpus)
    # Ends are in files before they are given out, and so is all that parts get.
    ends = sum(_EDGE * table.num_rows for table in tables.edges.values())
    return msgspec.structs.replace(
        whole, scratch=whole.scratch + whole.disk + ends, tasks=tasks, cpus=runner.cpus
    )


def _forecast(said: Description, workspace: Workspace, limit: int, folder: Path) -> Forecast:
    found = Tables(said, workspace, limit, only_look=True)
    told = [_told(found, found.nodes[name], read_of_nodes(said, name)) for name in said.nodes]
    told += [
        _told(found, found.edges[kind], columns_of_edges(table))
        for kind, table in said.edges.items()
    ]
    counts = {name: found.rows_of(table) for name, table in found.nodes.items()}
    disk = scratch = 0
    n = 1 if said.cutting is None else said.cutting.n
    for name, nodes in said.nodes.items():
        rows = counts[name] or 0
        table = found.nodes[name]
        disk += table.nbytes(column for _, column in columns_of_nodes(nodes))
        disk += 0 if said.cutting is None else n * rows // _MEMBERS_PER_BYTE
        if nodes.id is not None:
            disk += 4 * slots_needed(rows)
            scratch += table.nbytes([nodes.id])
    for kind, edges in said.edges.items():
        table = found.edges[kind]
        rows, times = found.rows_of(table) or 0, 2 if edges.reverse else 1
        ends = (edges.source, edges.target)
        more = [column for _, column in columns_of_edges(edges) if column not in ends]
        disk += times * (_EDGE * rows * _copies(said.cutting) + table.nbytes(more))
        scratch += times * _RECORD * rows * _sorts(said.cutting)
        if said.cutting is not None and more:
            disk += times * n * rows // _MEMBERS_PER_BYTE
            scratch += times * rows
        if said.cutting is not None and said.cutting.by_neighbours:
            scratch += times * _EDGE * rows * _sorts(said.cutting)
    for name in found.nodes_without_table():
        counts[name] = None
    return Forecast(
        told,
        counts,
        limit,
        disk,
        scratch,
        shutil.disk_usage(folder.parent).free,
        all(each.rows is not None for each in told),
        None if said.cutting is None else _parts(said.cutting, counts, disk),
    )


def _parts(cutting: Cutting, counts: Mapping[str, int | None], disk: int) -> PartsForecast:
    return PartsForecast(
        cutting.n,
        cutting.method if isinstance(cutting.method, str) else "given",
        cutting.edges,
        cutting.topology,
        {name: None if rows is None else -(-rows // cutting.n) for name, rows in counts.items()},
        disk // cutting.n,
    )


def _copies(cutting: Cutting | None) -> int:
    """Return in how many parts, or on how many sides, an edge is."""
    if cutting is None:
        return 1
    if cutting.topology == "whole":
        return cutting.n
    return 2 if cutting.edges == "both" else 1


def _sorts(cutting: Cutting | None) -> int:
    """Return by how many of its ends an edge is sorted."""
    is_one = cutting is None or cutting.topology == "whole" or cutting.edges == "destination"
    return 1 if is_one else 2


def _told(found: Tables, table: Table, columns: list[tuple[str, str]]) -> TableForecast:
    names = dict.fromkeys(column for _, column in columns)
    kinds = table.columns
    return TableForecast(
        table.label,
        table.num_parts,
        table.num_bytes,
        found.rows_of(table),
        {name: str(kinds[name]) for name in names},
    )
