"""What a build would read, and what it would take: for `penstock build --dry-run`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.graph.folder import check_place
from penstock.ingest.description import Description, described
from penstock.ingest.found import Tables, columns_of_edges, columns_of_nodes
from penstock.ingest.memory import memory_of
from penstock.ingest.tables import Table
from penstock.ingest.workspace import Workspace, workspace_of
from penstock.kernels.id_table import slots_needed

# Bytes of an edge: of a row of the graph, and of the files in which it is sorted.
_EDGE: Final = 8
_RECORD: Final = 12


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


class Forecast(msgspec.Struct, frozen=True):
    """What a build would read and take, in bytes.

    Attributes:
        tables: The tables.
        nodes: By node type, how many nodes there are at most; None: as many as edges name.
        memory: The memory that it would use, about.
        disk: The size of the graph, about.
        scratch: What temporary files take besides, about.
        free: What the file system has left.
        is_exact: Whether all rows could be counted.
    """

    tables: list[TableForecast]
    nodes: dict[str, int | None]
    memory: int
    disk: int
    scratch: int
    free: int
    is_exact: bool


def forecast(
    out: str | os.PathLike[str],
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[Any, Any] | None = None,
    spec: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    memory: str | int | None = None,
) -> Forecast:
    """Look at the tables of a build: their files, columns, types and rows, and check what can be.

    Args:
        out: The folder of the graph that would be built.
        nodes: As for `build`.
        edges: As for `build`.
        spec: As for `build`.
        memory: As for `build`.
    """
    said = described(nodes, edges, spec)
    limit = memory_of(said.memory if memory is None else memory)
    folder = Path(os.path.abspath(out))
    check_place(folder)
    with workspace_of(folder) as workspace:
        return _forecast(said, workspace, limit, folder)


def _forecast(said: Description, workspace: Workspace, limit: int, folder: Path) -> Forecast:
    found = Tables(said, workspace, limit, only_look=True)
    told = [
        _told(found, found.nodes[name], columns_of_nodes(table))
        for name, table in said.nodes.items()
    ]
    told += [
        _told(found, found.edges[kind], columns_of_edges(table))
        for kind, table in said.edges.items()
    ]
    counts = {name: found.rows_of(table) for name, table in found.nodes.items()}
    disk = scratch = 0
    for name, nodes in said.nodes.items():
        rows = counts[name] or 0
        table = found.nodes[name]
        disk += table.nbytes(column for _, column in columns_of_nodes(nodes))
        if nodes.id is not None:
            disk += 4 * slots_needed(rows)
            scratch += table.nbytes([nodes.id])
    for kind, edges in said.edges.items():
        table = found.edges[kind]
        rows, times = found.rows_of(table) or 0, 2 if edges.reverse else 1
        ends = (edges.source, edges.target)
        more = [column for _, column in columns_of_edges(edges) if column not in ends]
        disk += times * (_EDGE * rows + table.nbytes(more))
        scratch += times * _RECORD * rows
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
    )


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
