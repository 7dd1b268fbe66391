"""All tables of a description, found: their columns, how much there is to read, what ids are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.graph.schema import EdgeType
from penstock.ingest.columns import key_is_text
from penstock.ingest.description import (
    Description,
    EdgeTable,
    NodeTable,
    edges_label,
    nodes_label,
)
from penstock.ingest.tables import OpenedTable, Opener, Table
from penstock.ingest.workspace import Workspace


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
            name: _table_of(opened, read_of_nodes(said, name), text, only_look)
            for name, opened in opened_nodes.items()
        }
        self.edges = {
            kind: _table_of(opened, columns_of_edges(said.edges[kind]), text, only_look)
            for kind, opened in opened_edges.items()
        }
        self.is_text = self._kinds_of_ids()

    @property
    def unread(self) -> list[str]:
        """The labels of tables of CSV that were only looked at."""
        return sorted(self._unread)

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
            total += table.nbytes(column for _, column in read_of_nodes(self._said, name))
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


def read_of_nodes(said: Description, name: str) -> list[tuple[str, str]]:
    """Return the columns that a build reads of a table of nodes, each with what it is for."""
    found, column = columns_of_nodes(said.nodes[name]), said.nodes[name].part
    if column is not None and said.cutting is not None and said.cutting.by_column:
        found.append(("part", column))
    return found


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
