"""Builds a graph from tables: `penstock.build`.

Nodes are numbered first, then the ends of edges; edges are sorted out of core, and all other arrays
are made while they are written. Whatever happens, the folder of the graph has the graph that was
there before, or the new one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from penstock.graph import Graph
from penstock.graph.external import LEAST_MEMORY
from penstock.graph.folder import check_place
from penstock.graph.format import ArraySource, Meter, write_sources
from penstock.graph.layout import array_nbytes
from penstock.graph.progress import Progress, Report, shown
from penstock.graph.schema import (
    EDGE,
    NODE,
    ArrayKey,
    AttributeCodec,
    EdgeType,
    EdgeTypeInfo,
    NodeTypeInfo,
    Schema,
)
from penstock.ingest.columns import key_is_text
from penstock.ingest.description import (
    Description,
    EdgeTable,
    NodeTable,
    described,
    edges_label,
    nodes_label,
)
from penstock.ingest.edges import EdgeMaker, MadeEdges
from penstock.ingest.features import Column
from penstock.ingest.memory import memory_of
from penstock.ingest.nodes import MadeNodes, ids_of, made_nodes
from penstock.ingest.numbering import Discovered, Numbered, Numbering, RowNumbers, numbered
from penstock.ingest.tables import OpenedTable, Opener, Table
from penstock.ingest.workspace import Workspace, workspace_of

LEFT_OUT: Final = "left_out"


def build(
    out: str | os.PathLike[str],
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Mapping[Any, Any] | None = None,
    spec: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    memory: str | int | None = None,
    progress: Progress = None,
) -> Graph:
    """Build a graph from tables, and save it in the folder `out`.

    Tables are Parquet, CSV, Arrow or NumPy files, or in memory: pandas, polars, DuckDB, pyarrow,
    anything that has `__arrow_c_stream__`, or arrays by name. They may be larger than memory.

    Rows are in the order of the sorted paths of their files. If anything goes wrong, or the process
    is killed, the folder has what it had before.

    Args:
        out: The folder of the graph. One that is there is replaced when the new one is complete.
        nodes: By node type, the words of `penstock.ingest.description.NodeTable`; of a graph with
            one type, those words themselves. Types that only edges name need no table: their nodes
            are what edges name, in the order of first appearance.
        edges: By edge type, (source, relation, target) or "source,relation,target", the words of
            `penstock.ingest.description.EdgeTable`.
        spec: Instead of both: a TOML file with the same words, or what it would say as a mapping.
            Relative paths in a file begin at its folder.
        memory: The bytes of memory to use, about, such as "4GB". None: a quarter of what the
            control group or the machine has.
        progress: Whether to show on standard error how far it is. None: in a terminal, after a
            second. Or called as `progress(done, total)` with bytes, now and then.

    Returns:
        The graph, opened. Rows that were left out (`on_missing="skip"`, duplicates, self-loops) are
            counted in its attribute `left_out`.

    Raises:
        ValueError: The description or a table is not valid; the error names file, row and column.
        FileNotFoundError: A file is not there.
        ImportError: pyarrow, or for CSV DuckDB, is not installed: `penstock-gnn[ingest]`.

    Examples:
        >>> import penstock as ps
        >>> items = {"sku": ["a", "b", "c"], "price": [1.5, 2.0, 0.5]}
        >>> buys = {"who": ["u1", "u2", "u1"], "what": ["a", "c", "b"]}
        >>> graph = ps.build(
        ...     "shop.graph",
        ...     nodes={"item": {"data": items, "id": "sku", "features": {"x": ["price"]}}},
        ...     edges={("user", "buys", "item"): {"data": buys, "source": "who", "target": "what"}},
        ... )
        >>> graph.num_nodes("user"), graph.num_edges(("user", "buys", "item"))
        (2, 3)
    """
    said = described(nodes, edges, spec)
    limit = memory_of(said.memory if memory is None else memory)
    folder = Path(os.path.abspath(out))
    check_place(folder)
    with shown(f"building {os.fspath(out)}", progress) as report:
        with workspace_of(folder) as workspace:
            _Build(said, folder, workspace, limit, report).run()
    return Graph.open(out)


class _Build:
    """One build."""

    def __init__(
        self,
        said: Description,
        folder: Path,
        workspace: Workspace,
        memory: int,
        report: Report | None,
    ) -> None:
        self._said = said
        self._folder = folder
        self._workspace = workspace
        self._memory = memory
        self._work = Work(report)
        self._nodes: dict[str, MadeNodes] = {}
        self._edges: list[MadeEdges] = []
        self._numberings: dict[str, Numbering] = {}

    def run(self) -> None:
        """Read all tables, and write the graph."""
        found = Tables(self._said, self._workspace, self._memory)
        self._work.expect(found.nbytes())
        for table in found.all():
            table.meter = self._work.add
        self._number_nodes(found)
        self._discover_nodes(found)
        with ExitStack() as stack:
            self._make_edges(found, stack)
            self._write()

    def _number_nodes(self, found: Tables) -> None:
        for name, said in self._said.nodes.items():
            table = found.nodes[name]
            if said.id is None:
                known = Numbered(RowNumbers(table.label, table.num_rows), None, {})
            else:
                known = numbered(
                    table,
                    said.id,
                    text=found.is_text[name],
                    skip=said.on_missing == "skip",
                    workspace=self._workspace,
                    memory=self._memory,
                )
            self._numberings[name] = known.numbering
            self._nodes[name] = made_nodes(name, table, said, known, self._workspace)

    def _discover_nodes(self, found: Tables) -> None:
        """Number nodes that have no table: in the order in which edges name them first."""
        names = found.nodes_without_table()
        discovered = {
            name: Discovered(
                nodes_label(name), self._workspace, self._memory, text=found.is_text[name]
            )
            for name in names
        }
        for kind, said in self._said.edges.items() if names else ():
            columns = ends_of(kind, said)
            wanted = [(name, column) for name, column in columns if name in discovered]
            for rows in found.edges[kind].rows(column for _, column in wanted) if wanted else ():
                for name in dict.fromkeys(name for name, _ in wanted):
                    discovered[name].add(rows, [each for other, each in wanted if other == name])
        for name, each in discovered.items():
            numbering = each.numbering()
            self._numberings[name] = numbering
            self._nodes[name] = MadeNodes(numbering.count, dict(ids_of(name, numbering)))

    def _make_edges(self, found: Tables, stack: ExitStack) -> None:
        rows = {kind: found.edges[kind].num_rows + 1 for kind in self._said.edges}
        for kind, said in self._said.edges.items():
            # What is sorted last is in memory until it is written, so that all share it.
            memory = self._memory // 2 * rows[kind] // sum(rows.values())
            ends = (self._numberings[kind[0]], self._numberings[kind[2]])
            maker = EdgeMaker(
                found.edges[kind],
                kind,
                said,
                ends,
                self._workspace,
                max(2 * LEAST_MEMORY, memory),
                stack,
            )
            self._edges.append(maker.made())

    # --- writing ---

    def _write(self) -> None:
        arrays: dict[ArrayKey, ArraySource] = {}
        for nodes in self._nodes.values():
            arrays.update(nodes.arrays)
        for edges in self._edges:
            arrays.update(edges.arrays)
        total = sum(array_nbytes(array.dtype, array.shape) for array in arrays.values())
        self._work.expect(total)
        write_sources(self._folder, self._schema(), arrays, WorkMeter(total, self._work))

    def _schema(self) -> Schema:
        columns = [each for nodes in self._nodes.values() for each in nodes.columns]
        columns += [each for edges in self._edges for each in edges.columns]
        codecs = tuple(
            AttributeCodec(key, column.codec) for key, column in columns if column.codec is not None
        )
        whole = (
            {} if self._said.is_hetero else _attributes(NODE, columns) | _attributes(EDGE, columns)
        )
        if left_out := self._left_out():
            whole[LEFT_OUT] = left_out
        return Schema(
            self._said.is_hetero,
            tuple(
                NodeTypeInfo(name, nodes.count, _attributes(name, columns) if name else {})
                for name, nodes in self._nodes.items()
            ),
            tuple(
                EdgeTypeInfo(kind, count, _attributes(kind, columns) if any(kind) else {})
                for edges in self._edges
                for kind, count in edges.sizes.items()
            ),
            whole,
            codecs=codecs,
        )

    def _left_out(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            nodes_label(name): nodes.left_out
            for name, nodes in self._nodes.items()
            if nodes.left_out
        }
        for kind, edges in zip(self._said.edges, self._edges, strict=True):
            if edges.left_out:
                found[edges_label(kind)] = edges.left_out
        return found


def _attributes(
    owner: str | EdgeType, columns: Sequence[tuple[ArrayKey, Column]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, column in columns:
        if key.type == owner:
            found |= column.attributes
    return found


# --- tables --------------------------------------------------------------------------------------


class Tables:
    """All tables of a description, found and ready to be read; or only looked at."""

    def __init__(
        self, said: Description, workspace: Workspace, memory: int, *, only_look: bool = False
    ) -> None:
        self._said = said
        opener = Opener(said.folder, workspace, memory)
        opened_nodes = {
            name: opener.open(nodes_label(name), table) for name, table in said.nodes.items()
        }
        opened_edges = {
            kind: opener.open(edges_label(kind), table) for kind, table in said.edges.items()
        }
        opened = [*opened_nodes.values(), *opened_edges.values()]
        self._unread = {each.label for each in opened if each.is_csv and only_look}
        text = _text_among_csv(said, opened_nodes, opened_edges)
        self.nodes = {
            name: _table_of(opened, columns_of_nodes(said.nodes[name]), text, only_look)
            for name, opened in opened_nodes.items()
        }
        self.edges = {
            kind: _table_of(opened, columns_of_edges(said.edges[kind]), text, only_look)
            for kind, opened in opened_edges.items()
        }
        self.is_text = self._kinds_of_ids()

    def all(self) -> list[Table]:
        """Return all tables."""
        return [*self.nodes.values(), *self.edges.values()]

    def nodes_without_table(self) -> list[str]:
        """Return the node types that only edges name, in the order of their first mention."""
        named = [end for kind in self._said.edges for end in (kind[0], kind[2])]
        return [name for name in dict.fromkeys(named) if name not in self.nodes]

    def rows_of(self, table: Table) -> int | None:
        """Return how many rows a table has; None if that is not known before it is read."""
        return None if table.label in self._unread else table.num_rows

    def nbytes(self) -> int:
        """Return how much there is to read, about."""
        total = 0
        for name, table in self.nodes.items():
            total += table.nbytes(column for _, column in columns_of_nodes(self._said.nodes[name]))
        without = self.nodes_without_table()
        for kind, table in self.edges.items():
            said = self._said.edges[kind]
            times = 1 + sum(end in without for end in (kind[0], kind[2]))
            total += table.nbytes([said.source]) * times + table.nbytes([said.target])
            more = [
                column
                for _, column in columns_of_edges(said)
                if column not in (said.source, said.target)
            ]
            total += table.nbytes(more) * (2 if said.reverse else 1)
        return total

    def _kinds_of_ids(self) -> dict[str, bool]:
        """Return of each node type whether its ids are text; they are the same in all tables."""
        found: dict[str, tuple[bool | None, str]] = {}
        for name, said in self._said.nodes.items():
            label = f"{nodes_label(name)}.id"
            if said.id is not None:
                found[name] = key_is_text(self.nodes[name], said.id, "id"), label
            else:
                found[name] = (
                    False,
                    f"{nodes_label(name)}, which has no id and is numbered by rows,",
                )
        for kind, edge_table in self._said.edges.items():
            for what, (name, column) in zip(
                ("source", "target"), ends_of(kind, edge_table), strict=True
            ):
                is_text = key_is_text(self.edges[kind], column, what)
                label = f"{edges_label(kind)}.{what}"
                known, before = found.setdefault(name, (is_text, label))
                if known is None:
                    found[name] = is_text, label
                elif is_text is not None and known != is_text:
                    words = {True: "text", False: "numbers"}
                    raise ValueError(
                        f"{before} has ids that are {words[known]}, and {label} (column "
                        f"{column!r}) has {words[is_text]}: make them the same"
                    )
        return {name: bool(is_text) for name, (is_text, _) in found.items()}


def _table_of(
    opened: OpenedTable,
    columns: Sequence[tuple[str, str]],
    text: Mapping[str, set[str]],
    only_look: bool,
) -> Table:
    names = [column for _, column in columns]
    opened.check(columns)
    table = opened.table(names, text.get(opened.label, ()), only_look=only_look)
    table.check(columns)
    return table


def _text_among_csv(
    said: Description,
    nodes: Mapping[str, OpenedTable],
    edges: Mapping[EdgeType, OpenedTable],
) -> dict[str, set[str]]:
    """Return the columns of ids that are to be read as text, by the labels of tables.

    In CSV, ids that look like numbers are text if ids of the same nodes are text elsewhere.
    """
    columns: dict[str, list[tuple[OpenedTable, str]]] = {}
    for name, table in said.nodes.items():
        if table.id is not None:
            columns.setdefault(name, []).append((nodes[name], table.id))
    for kind, edge_table in said.edges.items():
        for name, column in ends_of(kind, edge_table):
            columns.setdefault(name, []).append((edges[kind], column))
    found: dict[str, set[str]] = {}
    for places in columns.values():
        if any(opened.is_text(column) for opened, column in places):
            for opened, column in places:
                if opened.is_csv:
                    found.setdefault(opened.label, set()).add(column)
    return found


def ends_of(kind: EdgeType, said: EdgeTable) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the node type and the column of both ends."""
    return (kind[0], said.source), (kind[2], said.target)


def columns_of_nodes(said: NodeTable) -> list[tuple[str, str]]:
    """Return the columns that a table of nodes needs, each with what it is for."""
    named = [("id", said.id), ("label", said.label), *_common(said)]
    return [(what, column) for what, column in named if column is not None]


def columns_of_edges(said: EdgeTable) -> list[tuple[str, str]]:
    """Return the columns that a table of edges needs, each with what it is for."""
    named = [
        ("source", said.source),
        ("target", said.target),
        ("label", said.label),
        ("weight", said.weight),
        *_common(said),
    ]
    return [(what, column) for what, column in named if column is not None]


def _common(said: NodeTable | EdgeTable) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = [("time", said.time)]
    if said.split is not None:
        found.append(("split.column", said.split.column))
    for name, feature in said.features.items():
        found += [(f"features.{name}", column) for column in feature.names]
    return found


# --- progress ------------------------------------------------------------------------------------


class Work:
    """Adds up the bytes read and written, and reports them."""

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self._done = self._total = 0

    def expect(self, nbytes: int) -> None:
        """Add bytes that are still to be read or written."""
        self._total += nbytes
        self.add(0)

    def add(self, nbytes: int) -> None:
        """Add bytes that have been read or written."""
        self._done += nbytes
        if self._report is not None:
            self._report(min(self._done, self._total), self._total)


class WorkMeter(Meter):
    """Tells of what is written as of a part of the work."""

    def __init__(self, total: int, work: Work) -> None:
        super().__init__(total, None)
        self._work = work

    def add(self, nbytes: int) -> None:
        self._work.add(nbytes)
