"""What all builds begin with: tables are found, nodes numbered; and what a graph says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.graph.progress import Report
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
from penstock.ingest.description import Description, edges_label, nodes_label
from penstock.ingest.edges import MadeEdges
from penstock.ingest.features import Column
from penstock.ingest.found import Tables, ends_of
from penstock.ingest.nodes import MadeNodes, ids_of, made_nodes
from penstock.ingest.numbering import Discovered, Numbered, Numbering, RowNumbers, numbered
from penstock.ingest.work import Work
from penstock.ingest.workspace import Workspace

LEFT_OUT: Final = "left_out"


class BuildContext:
    """What a build has found and made so far.

    Attributes:
        found: All tables.
        nodes: The nodes of each type.
        edges: The edges of each table that has been read.
        numberings: From users' ids to numbers, by node type.
        work: How far the build is.
    """

    def __init__(
        self,
        said: Description,
        workspace: Workspace,
        memory: int,
        report: Report | None,
        *,
        only_look: bool = False,
    ) -> None:
        self.said = said
        self.workspace = workspace
        self.memory = memory
        self.work = Work(report)
        self.found = Tables(said, workspace, memory, only_look=only_look)
        self.nodes: dict[str, MadeNodes] = {}
        self.edges: list[MadeEdges] = []
        self.numberings: dict[str, Numbering] = {}
        self.work.expect(self.found.nbytes())
        for table in self.found.all():
            table.meter = self.work.add

    def number_nodes(self) -> None:
        """Number the nodes of all types."""
        self._number_nodes()
        self._discover_nodes()

    def ends(self, kind: EdgeType) -> tuple[Numbering, Numbering]:
        """Return the numberings of both ends of edges."""
        return self.numberings[kind[0]], self.numberings[kind[2]]

    def _number_nodes(self) -> None:
        for name, said in self.said.nodes.items():
            table = self.found.nodes[name]
            if said.id is None:
                known = Numbered(RowNumbers(table.label, table.num_rows), None, {})
            else:
                known = numbered(
                    table,
                    said.id,
                    text=self.found.is_text[name],
                    skip=said.on_missing == "skip",
                    workspace=self.workspace,
                    memory=self.memory,
                )
            self.numberings[name] = known.numbering
            self.nodes[name] = made_nodes(name, table, said, known, self.workspace)

    def _discover_nodes(self) -> None:
        """Number nodes that have no table: in the order in which edges name them first."""
        names = self.found.nodes_without_table()
        discovered = {
            name: Discovered(
                nodes_label(name), self.workspace, self.memory, text=self.found.is_text[name]
            )
            for name in names
        }
        for kind, said in self.said.edges.items() if names else ():
            columns = ends_of(kind, said)
            wanted = [(name, column) for name, column in columns if name in discovered]
            table = self.found.edges[kind]
            for rows in table.rows(column for _, column in wanted) if wanted else ():
                for name in dict.fromkeys(name for name, _ in wanted):
                    discovered[name].add(rows, [each for other, each in wanted if other == name])
        for name, each in discovered.items():
            numbering = each.numbering()
            self.numberings[name] = numbering
            self.nodes[name] = MadeNodes(numbering.count, dict(ids_of(name, numbering)))

    def schema(self) -> Schema:
        """Return the types of the graph, once all of them are made."""
        columns = [each for nodes in self.nodes.values() for each in nodes.columns]
        columns += [each for edges in self.edges for each in edges.columns]
        codecs = tuple(
            AttributeCodec(key, column.codec) for key, column in columns if column.codec is not None
        )
        whole = (
            {} if self.said.is_hetero else _attributes(NODE, columns) | _attributes(EDGE, columns)
        )
        if left_out := self._left_out():
            whole[LEFT_OUT] = left_out
        return Schema(
            self.said.is_hetero,
            tuple(
                NodeTypeInfo(name, nodes.count, _attributes(name, columns) if name else {})
                for name, nodes in self.nodes.items()
            ),
            tuple(
                EdgeTypeInfo(kind, count, _attributes(kind, columns) if any(kind) else {})
                for edges in self.edges
                for kind, count in edges.sizes.items()
            ),
            whole,
            codecs=codecs,
        )

    def _left_out(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            nodes_label(name): nodes.left_out
            for name, nodes in self.nodes.items()
            if nodes.left_out
        }
        for kind, edges in zip(self.said.edges, self.edges, strict=True):
            if edges.left_out:  # sorted: which reason is found first depends on who reads
                found[edges_label(kind)] = dict(sorted(edges.left_out.items()))
        return found


def _attributes(
    owner: str | EdgeType, columns: Sequence[tuple[ArrayKey, Column]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, column in columns:
        if key.type == owner:
            found |= column.attributes
    return found
